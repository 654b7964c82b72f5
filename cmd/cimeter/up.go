package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/output/expvar"
	"github.com/cimeter/cimeter/internal/push"
	"github.com/cimeter/cimeter/internal/server"
	"github.com/cimeter/cimeter/internal/wire"
)

// upCmd is agent and server in one process.
type upCmd struct {
	serveFlags `embed:""`

	Engines engineFlags `embed:""`
	Machine string      `env:"CIMETER_MACHINE" placeholder:"NAME" help:"Name of this machine; the host's name where nothing is said."`
}

// Help is the end of --help.
func (c *upCmd) Help() string { return upHelp }

// Run starts both. What the agent finishes goes through the same spool as to a
// server elsewhere, without the network between.
//
//	kernel ──▶ agent ──▶ records, spool ──▶ ingest ──▶ store ──▶ API, pages
//	engine ──▶   └─────▶ tally ──▶ /metrics   ▲
//	                                other agents
func (c *upCmd) Run(e *env) error {
	over := append(c.overrides(e), c.Engines.overrides()...)
	if c.Machine != "" {
		over = append(over, config.Override{Path: "machine", Value: c.Machine, Source: "--machine"})
	}
	conf, err := config.Load(c.Config, over...)
	if err != nil {
		return err
	}
	if conf.Server.URL != "" {
		return fmt.Errorf("server.url %s: up is its own server: want none, or \"cimeter agent\"", conf.Server.URL)
	}
	log, limit := e.logger(conf.Log)
	defer func() { _ = limit.Flush(context.Background(), time.Now()) }()
	ctx, stop := untilSignal()
	defer stop()
	life, err := openLifeline(e, log)
	if err != nil {
		return err
	}
	defer life.stopping(ctx)()
	limitMemory(conf)
	counts := newTally(conf)
	kept, err := c.openStore(ctx, conf)
	if err != nil {
		return err
	}
	defer kept.Close()
	role := newServer(conf, kept, counts, func(r *cimeter.Record) bool { return r.Machine == conf.Machine }, life, log)
	from := newSources(conf, counts, log)
	out, err := openExports(conf, e, counts, log, from.families...)
	if err != nil {
		return err
	}
	found, err := openDiscovery(conf, e, counts, log)
	if err != nil {
		return err
	}
	m, err := openMetering(conf, counts, out, life, func(tell telling) (*sending, error) {
		tell.scrape = found.scrape
		queue, err := openSpool(conf)
		if err != nil {
			return nil, err
		}
		return newSending(conf, queue, here{role, queue.ID()}, func() {}, counts, tell, log), nil
	}, log)
	if err != nil {
		return err
	}
	defer m.Close()
	jobs, err := openJobSocket(conf, m.agent, ownHistory(kept), counts, log)
	if err != nil {
		return err
	}
	front, err := openFront(ctx, conf, e, kept, role, counts, from, func() []string { return append(reasons(role.Ready()), m.ready()...) },
		func() expvar.Queue { return ownQueue(m.accounts()) }, log)
	if err != nil {
		return err
	}
	releaseUnused(conf.Agent.ProcRoot)
	metering := func(ctx context.Context) error { return together(ctx, role.Run, m.run) }
	return together(ctx, append(front.parts, out.around(metering), jobs, from.run, found.run(front.listener.Addr(), true, false))...)
}

// here is the way to the server in the same process.
type here struct {
	role  *server.Server
	agent string
}

// Address implements push.Server.
func (h here) Address() string { return "this process" }

// Records implements push.Server. A line that is no record is refused as a
// server elsewhere would.
func (h here) Records(ctx context.Context, lines [][]byte) ([]wire.Result, error) {
	results := make([]wire.Result, len(lines))
	var records []*cimeter.Record
	var places []int
	for i, line := range lines {
		r, err := wire.DecodeRecord(line)
		if err != nil {
			results[i] = wire.Result{Status: wire.Refused, Reason: err.Error()}
			h.role.Refused(1)
			continue
		}
		records, places = append(records, r), append(places, i)
	}
	if len(records) == 0 {
		return results, nil
	}
	stored, err := h.role.Put(ctx, h.agent, records)
	if errors.Is(err, httpapi.ErrBusy) {
		return nil, &push.Refusal{Status: http.StatusTooManyRequests}
	}
	if err != nil {
		return nil, err
	}
	for i, r := range stored {
		results[places[i]] = r
	}
	return results, nil
}

// Heartbeat implements push.Server.
func (h here) Heartbeat(_ context.Context, beat wire.Heartbeat) error {
	b, err := json.Marshal(beat)
	if err != nil {
		return err
	}
	beat, err = wire.DecodeHeartbeat(strings.NewReader(string(b)), "")
	if err != nil {
		return errors.Join(errors.New("own heartbeat"), err)
	}
	h.role.Heartbeat(beat)
	return nil
}

const upHelp = `
It is "cimeter agent" and "cimeter server" in one process: for one machine, or for the first of several. Other agents may push to it with a token of the role push.

Examples:

  cimeter up --listen 127.0.0.1:9808
  cimeter up --config /etc/cimeter.yaml

Exit codes: 0 after a signal; 1 when it could not start or go on; 2 for a wrong command line.

Everything else is set in the configuration file: see docs/config.md.`
