package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/hooks"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/notes"
	"github.com/cimeter/cimeter/internal/output/expvar"
	"github.com/cimeter/cimeter/internal/poll"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/refine"
	"github.com/cimeter/cimeter/internal/tally"
)

// ciServer is what can be had of one CI server; what it does not have is nil.
type ciServer struct {
	source poll.Source    // nil without a token
	cancel poll.Canceller // nil without a token that may
	hook   hooks.Hook     // nil without a secret
	writer notes.Writer   // nil without a token that may
	asked  func() int64   // requests that source has made; nil: it does not tell
}

// newCIServer joins the settings of one CI server to its adapter: one case for each
// kind.
func newCIServer(c config.CIServer, e *env) (s ciServer, err error) {
	switch c.Kind {
	case "gitlab":
		return newGitLab(c, e)
	case "drone", "woodpecker", "gitea", "forgejo", "github", "jenkins", "buildkite":
		return newAsked(c, e)
	default:
		return s, fmt.Errorf("ci_servers: %s: %s is not built into this cimeter", c.Name, c.Kind)
	}
}

// ciParts are the parts of a server that learn from CI servers; nil where none is set
// up.
type ciParts struct {
	poller *poll.Poller
	hooks  *hooks.Receiver          // nil: none takes webhooks
	notes  *notes.Notes             // nil: nothing is written back
	logs   map[string]refine.Reader // by CI and server
	refine *refine.Refiner          // nil: no logs are read unasked
}

// openCIServers makes them. Nothing is asked yet.
func openCIServers(conf config.Config, e *env, kept builds, agents func() []httpapi.Agent, counts *tally.Table, log *slog.Logger) (*ciParts, error) {
	if len(conf.CIServers) == 0 {
		return nil, nil
	}
	var asked []poll.Server
	var heard []hooks.Server
	var made []ciServer
	readers := map[string]refine.Reader{}
	for _, c := range conf.CIServers {
		s, err := newCIServer(c, e)
		if err != nil {
			return nil, err
		}
		made = append(made, s)
		if reader, ok := s.source.(refine.Reader); ok {
			readers[readerKey(c.Kind, ci.ServerOf(c.URL))] = reader
		}
		one := poll.Server{
			Name: c.Name, CI: c.Kind, Source: s.source, Cancel: s.cancel, Interval: c.Interval, Timeout: c.Timeout, Requests: c.Requests,
		}
		if events, ok := s.source.(poll.Events); ok {
			one.Events = events
		}
		asked = append(asked, one)
		if s.hook != nil {
			heard = append(heard, hooks.Server{Name: c.Name, CI: c.Kind, Hook: s.hook})
		}
		log.Info("CI server", "name", c.Name, "kind", c.Kind, "asked", s.source != nil, "webhooks", s.hook != nil, "cancels", s.cancel != nil)
	}
	parts := &ciParts{poller: poll.New(poll.Options{
		Servers: asked, Tally: counts, Store: kept, History: kept, Leader: kept, Agents: func() []queue.AgentBuild { return agentBuilds(agents()) },
	}, log)}
	if len(heard) > 0 {
		parts.hooks = hooks.New(hooks.Options{Servers: heard, Take: parts.poller.Take, Tally: counts}, log)
	}
	parts.logs = readers
	parts.refine = newRefiner(conf.CIServers, made, kept, counts, log)
	parts.notes = newNotes(conf.CIServers, made, kept, log)
	return parts, nil
}

// agentBuilds is what the agents that are not away run.
func agentBuilds(agents []httpapi.Agent) (builds []queue.AgentBuild) {
	for _, a := range agents {
		if a.Away {
			continue
		}
		var booted time.Time
		if a.Host != nil {
			booted = a.Host.BootedAt
		}
		for _, p := range a.Pulling {
			builds = append(builds, queue.AgentBuild{Key: p.Key, PullingSince: p.Since})
		}
		for _, b := range a.Running {
			is := cimeter.Build{CI: b.CI, Server: b.Server, Project: b.Project, Pipeline: b.Pipeline, Runner: b.Runner}
			builds = append(builds, queue.AgentBuild{
				Key: b.Key, Machine: a.Machine, Stage: b.Stage, BootedAt: booted, PulledAt: b.PulledAt, StartedAt: b.StartedAt, Place: is.Place(), Attempt: b.Attempt,
			})
		}
	}
	return builds
}

// run runs them until ctx ends.
func (p *ciParts) run(ctx context.Context) error {
	if p == nil {
		return untilDone(ctx)
	}
	parts := []func(context.Context) error{p.poller.Run}
	if p.hooks != nil {
		parts = append(parts, p.hooks.Run)
	}
	if p.notes != nil {
		parts = append(parts, p.notes.Run)
	}
	if p.refine != nil {
		parts = append(parts, p.refine.Run)
	}
	return together(ctx, parts...)
}

// routes gives the API what they know and take.
func (p *ciParts) routes(o *httpapi.Options) {
	if p == nil {
		return
	}
	o.Queue = p.poller.State
	o.Cancel = p.poller.Cancel // where no token may, it says so
	if p.hooks != nil {
		o.Hooks = p.hooks
	}
}

// logReaders are what reads logs of jobs.
func (p *ciParts) logReaders() map[string]refine.Reader {
	if p == nil {
		return nil
	}
	return p.logs
}

// running returns the queue with the builds that CI servers say run, besides those
// that agents do.
func (p *ciParts) running(q expvar.Queue) expvar.Queue {
	if p == nil {
		return q
	}
	metered := map[string]int{}
	for i, b := range q.Builds {
		metered[b.Build] = i
	}
	for _, b := range p.poller.State().Builds {
		if b.Status != cimeter.JobRunning {
			continue
		}
		one := expvar.Build{Repo: b.Project, Branch: b.Ref, Commit: b.SHA, Build: b.Key, Machine: b.Machine}
		if i, ok := metered[b.Key]; ok {
			q.Builds[i] = one
		} else {
			q.Builds = append(q.Builds, one)
		}
	}
	q.Working = cimeter.Some(len(q.Builds))
	return q
}

// checkPollTime bounds a poll that check makes: a large server takes a while.
const checkPollTime = 15 * time.Second

// ciServers names the CI servers that are set up and what they answer.
func (r report) ciServers(conf config.Config, e *env) {
	for _, c := range conf.CIServers {
		s, err := newCIServer(c, e)
		if err != nil {
			r.line("ci server "+c.Name, "a server cannot start: "+err.Error())
			continue
		}
		found := "not asked (no token_file)"
		if s.source != nil {
			found = polled(s.source)
		}
		if s.hook != nil {
			found += "; webhooks at " + httpapi.HooksPath + c.Kind
		}
		for _, f := range []struct{ setting, path string }{
			{"hook_secret_file", c.HookSecretFile}, {"cancel_token_file", c.CancelFile}, {"notes.token_file", c.Notes.TokenFile},
		} {
			if _, err := config.ReadSecret("", f.path, noVariables); err != nil {
				found += "; " + f.setting + ": " + err.Error()
			}
		}
		r.line("ci server "+c.Name, found)
	}
}

// polled says what one poll told.
func polled(source poll.Source) string {
	ctx, stop := context.WithTimeout(context.Background(), checkPollTime)
	defer stop()
	told, err := source.Poll(ctx)
	if err != nil {
		return "told nothing now: " + err.Error()
	}
	n := map[cimeter.JobStatus]int{}
	for _, j := range told.Jobs {
		n[j.Status]++
	}
	return fmt.Sprintf("ok: %d waiting, %d blocked, %d running, %d workers", n[cimeter.JobWaiting], n[cimeter.JobBlocked], n[cimeter.JobRunning], len(told.Workers))
}
