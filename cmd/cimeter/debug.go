package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/debug"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/output/expvar"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

// debugFlags are the settings of the debug endpoints that have a flag.
type debugFlags struct {
	Listen string `name:"debug.listen" env:"CIMETER_DEBUG_LISTEN" placeholder:"ADDR" help:"Address to serve profiles and variables at, such as 127.0.0.1:6060; not served where nothing is said."`
}

func (f debugFlags) overrides() []config.Override {
	if f.Listen == "" {
		return nil
	}
	return []config.Override{{Path: "debug.listen", Value: f.Listen, Source: "--debug.listen"}}
}

// openDebug listens for those who look at the program itself, and returns what
// answers them. Nothing is opened unless it is asked for.
func openDebug(conf config.Config, e *env, counts *tally.Table, queue func() expvar.Queue, log *slog.Logger) (func(context.Context) error, error) {
	if conf.Debug.Listen == "" {
		return untilDone, nil
	}
	token, err := debugToken(conf, e)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", conf.Debug.Listen)
	if err != nil {
		return nil, fmt.Errorf("debug.listen: %w", err)
	}
	web := conf.WebConfigFile
	if at, ok := listener.Addr().(*net.TCPAddr); ok && at.IP.IsLoopback() {
		web = "" // nobody listens in between
	} else if token.IsZero() {
		return nil, errors.Join(errDebugToken(conf), listener.Close())
	}
	walker := series.NewWalker(counts, time.Now())
	handler := debug.New(debug.Options{
		Vars:  expvar.New(expvar.Options{Program: "cimeter", Queue: func() expvar.Queue { return told(counts, queue()) }, Families: walker.Families}),
		Token: token.Reveal(),
	})
	log.Info("debug endpoints are served", "at", listener.Addr().String())
	return func(ctx context.Context) error { return serve(ctx, handler, listener, web, log) }, nil
}

func debugToken(conf config.Config, e *env) (config.Secret, error) {
	token, err := config.ReadSecret("CIMETER_DEBUG_TOKEN", conf.Debug.TokenFile, e.getenv)
	if err != nil {
		return token, fmt.Errorf("debug.token_file: %w", err)
	}
	return token, nil
}

func errDebugToken(conf config.Config) error {
	return fmt.Errorf("debug.listen: %s is not a loopback address: want debug.token_file", conf.Debug.Listen)
}

// ownQueue is what an agent can tell of the queue: the builds that run on its
// machine. How many wait, and for whom, only the CI server knows.
func ownQueue(records []*cimeter.Record) expvar.Queue {
	q := expvar.Queue{Working: cimeter.Some(len(records))}
	for _, r := range records {
		q.Builds = append(q.Builds, expvar.Build{Repo: r.Project, Branch: r.Ref, Commit: r.SHA, Build: r.Key, Machine: r.Machine})
	}
	return q
}

// fleetQueue is what a server can tell of the queue: the builds that its agents
// run. Heartbeats do not tell branch and commit.
func fleetQueue(agents []httpapi.Agent) expvar.Queue {
	var q expvar.Queue
	for _, a := range agents {
		for _, b := range a.Running {
			q.Builds = append(q.Builds, expvar.Build{Repo: b.Project, Build: b.Key, Machine: a.Machine})
		}
	}
	q.Working = cimeter.Some(len(q.Builds))
	return q
}

// told returns the queue with what CI servers tell of it, where any does.
func told(counts *tally.Table, q expvar.Queue) expvar.Queue {
	sum := func(metric, of string, into *cimeter.Opt[int]) {
		for _, v := range counts.Values(metric) {
			if n, ok := v.Get(); ok && v.Labels()[1] == of { // server, then what
				*into = cimeter.Some(into.Value + int(n))
			}
		}
	}
	sum(catalog.QueueBuilds, "waiting", &q.Length)
	sum(catalog.Workers, "idle", &q.Waiting)
	if q.Waiting.Known {
		q.Workers = q.Waiting
		sum(catalog.Workers, "busy", &q.Workers)
	}
	return q
}
