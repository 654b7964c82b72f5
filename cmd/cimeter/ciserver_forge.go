package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/askhttp"
	"github.com/cimeter/cimeter/internal/ci/forge"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/notes"
)

// forgeWriter names the status that all of cimeter's are.
type forgeWriter struct{ forge.Forge }

// PutStatus implements notes.Writer. These forges know no pipelines of statuses.
func (w forgeWriter) PutStatus(ctx context.Context, project, sha, description, url string, _ int64) error {
	return w.Forge.PutStatus(ctx, project, sha, forge.Status{Name: "cimeter", Description: description, URL: url})
}

// newForgeWriter returns what writes to a server that is no GitLab; nil: the
// settings ask for nothing.
func newForgeWriter(c config.CIServer, e *env) (notes.Writer, error) {
	if c.Notes.TokenFile == "" {
		return nil, nil
	}
	base := ""
	switch c.Kind {
	case "github":
	case "gitea", "forgejo":
		base = "/api/v1"
	default:
		return nil, fmt.Errorf("ci_servers: %s: %s has no commits to write at: want notes.token_file at the forge's own entry", c.Name, c.Kind)
	}
	to, err := askhttp.New(askOptions(c, secretOf(e, "", c.Notes.TokenFile)))
	if err != nil {
		return nil, fmt.Errorf("ci_servers: %s: %w", c.Name, err)
	}
	return forgeWriter{forge.Forge{Ask: to, Base: base}}, nil
}

// mergeRequestOf tells the number of the merge request of a build's ref, 0 for
// none, by the manner of a kind of CI server.
func mergeRequestOf(kind string) func(ref string) int64 {
	if kind == "gitlab" {
		return gitlab.MergeRequestOf
	}
	return func(ref string) int64 {
		n, _ := forge.PullRequest(&cimeter.Build{Ref: ref})
		return n
	}
}

// pipelineURL is the page of a pipeline at a CI server; "" where its address is
// not told by its id.
func pipelineURL(c config.CIServer) func(project, id string) string {
	base := strings.TrimRight(c.URL, "/") + "/"
	switch c.Kind {
	case "gitlab":
		return func(project, id string) string { return base + project + "/-/pipelines/" + id }
	case "github":
		return func(project, id string) string { return base + project + "/actions/runs/" + id }
	}
	return func(string, string) string { return "" }
}
