package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
	"github.com/cimeter/cimeter/internal/ci/gitlab/gitlabapi"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/notes"
	"github.com/cimeter/cimeter/internal/outbound"
)

// newGitLab joins the settings of a GitLab server to its adapter.
func newGitLab(c config.CIServer, e *env) (s ciServer, err error) {
	o := gitlabapi.Options{URL: c.URL, Projects: c.Projects, Requests: c.Requests}
	if c.TokenFile != "" {
		o.Token = secretOf(e, "", c.TokenFile)
	}
	if c.CancelFile != "" {
		o.CancelToken = secretOf(e, "", c.CancelFile)
	}
	if c.Notes.TokenFile != "" {
		o.WriteToken = secretOf(e, "", c.Notes.TokenFile)
	}
	if c.CAFile != "" {
		if o.Transport, err = outbound.Transport(outbound.Options{CAFile: c.CAFile}); err != nil {
			return s, fmt.Errorf("ci_servers: %s: %w", c.Name, err)
		}
	}
	client, err := gitlabapi.New(o)
	if err != nil {
		return s, fmt.Errorf("ci_servers: %s: %w", c.Name, err)
	}
	if o.Token != nil {
		s.source = client
	}
	if o.CancelToken != nil {
		s.cancel = client
	}
	if o.WriteToken != nil {
		s.writer = gitlabWriter{client}
	}
	if c.HookSecretFile != "" {
		s.hook = &gitlabapi.Hook{Server: ci.ServerOf(c.URL), Secrets: secretOf(e, "", c.HookSecretFile)}
	}
	return s, nil
}

// gitlabWriter names the status that all of cimeter's are.
type gitlabWriter struct{ *gitlabapi.Client }

func (w gitlabWriter) PutStatus(ctx context.Context, project, sha, description, url string, pipeline int64) error {
	return w.Client.PutStatus(ctx, project, sha, gitlabapi.Status{Name: "cimeter", Description: description, URL: url, Pipeline: pipeline})
}

// FindMergeRequest implements notes.Finder.
func (w gitlabWriter) FindMergeRequest(ctx context.Context, project, sha string) (int64, string, error) {
	m, err := w.Client.FindMergeRequest(ctx, project, sha)
	return m.Number, m.Target, err
}

// newNotes makes what writes to merge requests; nil: no settings ask for it.
func newNotes(conf []config.CIServer, made []ciServer, kept builds, log *slog.Logger) *notes.Notes {
	o := notes.Options{Store: kept, Leader: kept}
	var tell []func(*notes.Notes)
	for i, c := range conf {
		n := c.Notes
		if made[i].writer == nil || len(n.MergeRequests)+len(n.Statuses) == 0 {
			continue
		}
		host := ci.ServerOf(c.URL)
		o.Servers = append(o.Servers, notes.Server{
			Name: c.Name, CI: c.Kind, Host: host, Writer: made[i].writer, MergeRequest: mergeRequestOf(c.Kind), Pages: n.PagesURL,
			Rule: func(project string) notes.Rule {
				return notes.Rule{Note: anyGlob(n.MergeRequests, project), Always: anyGlob(n.Always, project), Status: anyGlob(n.Statuses, project)}
			},
			PipelineURL: pipelineURL(c),
		})
		if finder, ok := made[i].writer.(notes.Finder); ok {
			o.Servers[len(o.Servers)-1].Finder = finder
		}
		if hook, ok := made[i].hook.(*gitlabapi.Hook); ok {
			tell = append(tell, func(to *notes.Notes) {
				hook.Pipeline = func(p gitlab.Pipeline) {
					to.Tell(c.Name, notes.Pipeline{ID: p.ID, Project: p.Project, SHA: p.SHA, MergeRequest: p.MergeRequest, Target: p.TargetBranch, Ended: p.Ended})
				}
			})
		}
		log.Info("merge requests are told what builds cost", "server", c.Name, "notes", n.MergeRequests, "statuses", n.Statuses)
	}
	if len(o.Servers) == 0 {
		return nil
	}
	to := notes.New(o, log)
	for _, t := range tell {
		t(to)
	}
	return to
}

// anyGlob reports whether a path is of one of the patterns, in which * is any text.
func anyGlob(patterns []string, path string) bool {
	for _, p := range patterns {
		parts := strings.Split(p, "*")
		rest, ok := strings.CutPrefix(path, parts[0])
		for i := 1; ok && i < len(parts); i++ {
			if i == len(parts)-1 {
				ok = strings.HasSuffix(rest, parts[i])
				rest = ""
				break
			}
			_, rest, ok = strings.Cut(rest, parts[i])
		}
		if ok && rest == "" {
			return true
		}
	}
	return false
}
