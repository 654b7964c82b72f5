package main

import (
	"fmt"

	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/hooks"
	"github.com/cimeter/cimeter/internal/poll"
)

// ciServer is what can be had of one CI server; what it does not have is nil.
type ciServer struct {
	source poll.Source    // nil without a token
	cancel poll.Canceller // nil without a token that may
	hook   hooks.Hook     // nil without a secret
}

// newCIServer joins the settings of one CI server to its adapter: one case for each
// kind.
func newCIServer(c config.CIServer, e *env) (s ciServer, err error) {
	switch c.Kind {
	default:
		return s, fmt.Errorf("ci_servers: %s: %s is not built into this cimeter", c.Name, c.Kind)
	}
}
