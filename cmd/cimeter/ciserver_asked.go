package main

import (
	"fmt"

	"github.com/cimeter/cimeter/internal/ci/askhttp"
	"github.com/cimeter/cimeter/internal/ci/buildkite/buildkiteapi"
	"github.com/cimeter/cimeter/internal/ci/drone/droneapi"
	"github.com/cimeter/cimeter/internal/ci/drone/dronedb"
	"github.com/cimeter/cimeter/internal/ci/gitea/giteaapi"
	"github.com/cimeter/cimeter/internal/ci/github/githubapi"
	"github.com/cimeter/cimeter/internal/ci/jenkins/jenkinsapi"
	"github.com/cimeter/cimeter/internal/ci/woodpecker/woodpeckerapi"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/hooks"
	"github.com/cimeter/cimeter/internal/poll"
)

// askedServer is a CI server that is asked and that ends builds.
type askedServer interface {
	poll.Source
	poll.Canceller
}

// newAsked joins the settings of a CI server that speaks JSON over HTTP. Builds are
// ended by a client of its own, which has the token that may.
func newAsked(c config.CIServer, e *env) (s ciServer, err error) {
	of := func(file string) (askedServer, *askhttp.Server, error) {
		to, err := askhttp.New(askOptions(c, secretOf(e, "", file)))
		if err != nil {
			return nil, nil, err
		}
		by, err := askedBy(c, to)
		return by, to, err
	}
	if c.TokenFile != "" {
		by, to, err := of(c.TokenFile)
		if err != nil {
			return s, fmt.Errorf("ci_servers: %s: %w", c.Name, err)
		}
		s.source, s.asked = by, to.Asked
	}
	if c.CancelFile != "" {
		if s.cancel, _, err = of(c.CancelFile); err != nil {
			return s, fmt.Errorf("ci_servers: %s: %w", c.Name, err)
		}
	}
	if c.DatabaseFile != "" {
		s.asked = func() int64 { return 0 } // a database has no limit of requests
		if s.source, err = dronedb.Open(dronedb.Options{URL: c.URL, Address: secretOf(e, "", c.DatabaseFile)}); err != nil {
			return s, fmt.Errorf("ci_servers: %s: %w", c.Name, err)
		}
	}
	if c.HookSecretFile != "" {
		if s.hook = askedHook(c, secretOf(e, "", c.HookSecretFile), s.source); s.hook == nil {
			return s, fmt.Errorf("ci_servers: %s: %s sends no webhooks that can be verified: want token_file and no hook_secret_file", c.Name, c.Kind)
		}
	}
	s.writer, err = newForgeWriter(c, e)
	return s, err
}

// askOptions are how a CI server is reached.
func askOptions(c config.CIServer, token func() (string, error)) askhttp.Options {
	o := askhttp.Options{URL: c.URL, Token: token, CAFile: c.CAFile}
	switch c.Kind {
	case "github":
		o.URL, o.Header = githubapi.API(c.URL), githubapi.Header()
	case "buildkite":
		o.URL = buildkiteapi.API(c.URL)
	case "jenkins":
		o.User = c.User
	}
	return o
}

// askedBy returns the adapter of a kind.
func askedBy(c config.CIServer, to *askhttp.Server) (askedServer, error) {
	switch c.Kind {
	case "drone":
		return droneapi.New(droneapi.Options{URL: c.URL, Ask: to})
	case "woodpecker":
		return woodpeckerapi.New(woodpeckerapi.Options{URL: c.URL, Ask: to, Stream: to})
	case "gitea", "forgejo":
		client, err := giteaapi.New(giteaapi.Options{Kind: c.Kind, URL: c.URL, Ask: to, Projects: c.Projects})
		return client, err
	case "github":
		return githubapi.New(githubapi.Options{URL: c.URL, Ask: to, Projects: c.Projects})
	case "jenkins":
		return jenkinsapi.New(jenkinsapi.Options{URL: c.URL, Ask: to})
	case "buildkite":
		return buildkiteapi.New(buildkiteapi.Options{URL: c.URL, Ask: to, Projects: c.Projects})
	}
	return nil, fmt.Errorf("%s is not built into this cimeter", c.Kind)
}

// askedHook returns what reads the webhooks of a kind; nil where it has none.
func askedHook(c config.CIServer, secret func() (string, error), source poll.Source) hooks.Hook {
	switch c.Kind {
	case "drone":
		return droneapi.Hook{URL: c.URL, Secret: secret}
	case "gitea", "forgejo":
		h := giteaapi.Hook{Kind: c.Kind, URL: c.URL, Secret: secret}
		if tasks, ok := source.(giteaapi.Tasks); ok {
			h.Tasks = tasks
		}
		return h
	case "github":
		return githubapi.Hook{URL: c.URL, Secret: secret}
	case "jenkins":
		return jenkinsapi.Hook{URL: c.URL, Secret: secret}
	case "buildkite":
		return buildkiteapi.Hook{URL: c.URL, Secret: secret}
	}
	return nil
}
