package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/daybook"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/output/expvar"
	"github.com/cimeter/cimeter/internal/output/prometheus"
	"github.com/cimeter/cimeter/internal/poll"
	"github.com/cimeter/cimeter/internal/process"
	"github.com/cimeter/cimeter/internal/refine"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/server"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/postgres"
	"github.com/cimeter/cimeter/internal/store/sqlite"
	"github.com/cimeter/cimeter/internal/tally"
)

// serverCmd is the server role.
type serverCmd struct {
	serveFlags `embed:""`
}

// Help is the end of --help.
func (c *serverCmd) Help() string { return serverHelp }

// serveFlags are the settings of a server that have a flag.
type serveFlags struct {
	Config    string `type:"path" env:"CIMETER_CONFIG" placeholder:"FILE" help:"Configuration file (YAML). Flags win over it."`
	Listen    string `env:"CIMETER_LISTEN" placeholder:"ADDR" help:"Address to serve pages, API and metrics at; :9808 where nothing is said."`
	Data      string `type:"path" env:"CIMETER_DATA" placeholder:"DIR" help:"Directory of the store; /var/lib/cimeter where nothing is said."`
	Database  string `env:"CIMETER_DATABASE" placeholder:"URL" help:"PostgreSQL to keep builds in, postgres://USER@HOST/DATABASE, in place of a file in the directory of data. Give a password by the variable, not by the flag."`
	Tokens    string `type:"path" env:"CIMETER_TOKENS_FILE" placeholder:"FILE" help:"File of the tokens that may read or push; \"cimeter token\" writes it."`
	WebConfig string `name:"web.config.file" type:"path" env:"CIMETER_WEB_CONFIG_FILE" placeholder:"FILE" help:"TLS, in the form of the Prometheus exporter toolkit."`

	Debug debugFlags `embed:""`
}

func (c *serveFlags) overrides(e *env) (over []config.Override) {
	for _, f := range []struct{ path, value, flag string }{
		{"listen", c.Listen, "--listen"},
		{"data", c.Data, "--data"},
		{"access.tokens_file", c.Tokens, "--tokens"},
		{"web_config_file", c.WebConfig, "--web.config.file"},
		{"log.level", e.log.Level, "--log.level"},
		{"log.format", e.log.Format, "--log.format"},
	} {
		if f.value != "" {
			over = append(over, config.Override{Path: f.path, Value: f.value, Source: f.flag})
		}
	}
	return append(over, c.Debug.overrides()...)
}

// builds is what the server keeps its builds in: one of the back ends.
type builds interface {
	server.Store
	httpapi.Query
	server.Keeper
	poll.Store
	poll.History
	refine.Store
	daybook.Store
	MachinePoints(ctx context.Context, machine string, since time.Time) ([]store.MachinePoint, error)
	History(ctx context.Context, q store.HistoryQuery) ([]*cimeter.Record, error)
	Course(ctx context.Context, f filter.Filter, most int) (store.Sum, []store.Point, error)
	Neighbours(ctx context.Context, of *cimeter.Record) (store.Neighbours, error)
	Close() error
}

// Run starts the server.
//
//	agents ──▶ ingest ──▶ store ──▶ API, pages
//	              └─────▶ tally ──▶ /metrics, outputs
func (c *serverCmd) Run(e *env) error {
	conf, err := config.Load(c.Config, c.overrides(e)...)
	if err != nil {
		return err
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
	kept, err := c.openStore(ctx, conf)
	if err != nil {
		return err
	}
	err = c.serve(ctx, conf, e, kept, life, log)
	return errors.Join(err, kept.Close())
}

func (c *serverCmd) serve(ctx context.Context, conf config.Config, e *env, kept builds, life *lifeline, log *slog.Logger) error {
	counts := newTally(conf)
	from := newSources(conf, counts, log)
	out, err := openExports(conf, e, counts, log, from.families...)
	if err != nil {
		return err
	}
	role := newServer(conf, kept, counts, nil, life, log)
	front, err := openFront(ctx, conf, e, kept, role, counts, from, func() []string { return reasons(role.Ready()) },
		func() expvar.Queue { return fleetQueue(role.Agents()) }, log)
	if err != nil {
		return err
	}
	return together(ctx, append(front.parts, out.around(role.Run), from.run)...)
}

// front is where a server is asked: what answers there, and what it needs for that.
type front struct {
	listener net.Listener
	parts    []func(context.Context) error
}

// openFront opens the front of a role last of what can fail. ready tells why the
// process does not do all that it should, queue what runs as agents tell it.
func openFront(ctx context.Context, conf config.Config, e *env, kept builds, role *server.Server, counts *tally.Table, from sourced,
	ready func() []string, queue func() expvar.Queue, log *slog.Logger) (_ *front, err error) {
	listener, err := net.Listen("tcp", conf.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	defer func() {
		if err != nil {
			listener.Close()
		}
	}()
	access, err := newAccess(conf.Access, listener.Addr(), counts, log)
	if err != nil {
		return nil, err
	}
	settled, err := fleetSettled(ctx, kept, time.Now)
	if err != nil {
		return nil, err
	}
	ci, err := openCIServers(conf, e, kept, role.Agents, counts, log)
	if err != nil {
		return nil, err
	}
	api, err := newServerAPI(role, kept, counts, from.served, ci, access, settled, ready, log)
	if err != nil {
		return nil, err
	}
	debugging, err := openDebug(conf, e, counts, func() expvar.Queue { return ci.running(queue()) }, log)
	if err != nil {
		return nil, err
	}
	log.Info("listening", "address", listener.Addr().String())
	return &front{listener, []func(context.Context) error{
		ci.run, daybook.New(daybook.Options{Store: kept, Agents: role.Agents}, log).Run, debugging, publishFleet(conf, role.Agents, settled, counts, log),
		func(ctx context.Context) error { return serve(ctx, api, listener, conf.WebConfigFile, log) },
	}}, nil
}

// newServer returns the server's role on a store. counted tells which builds are
// in the counters already; life learns that it works.
func newServer(conf config.Config, kept builds, counts *tally.Table, counted func(*cimeter.Record) bool, life *lifeline, log *slog.Logger) *server.Server {
	committers := 1
	if _, ok := kept.(*postgres.Store); ok {
		committers = 2 // more do not make it faster on the two cores that it is meant for
	}
	own, err := process.Open(conf.Agent.ProcRoot).Self()
	if err != nil {
		log.Warn("own memory is not told", "err", err)
	}
	return server.New(server.Options{
		Usage: func() (time.Duration, uint64, error) {
			cpu, err := own.CPU()
			if err != nil {
				return 0, 0, err
			}
			resident, err := own.Resident()
			return cpu, resident, err
		},
		Store: kept, Committers: committers, Tally: counts, Counted: counted,
		Keeper: kept, KeepBuilds: conf.Store.KeepBuilds, KeepTotals: conf.Store.KeepTotals, MaxBytes: int64(conf.Store.MaxBytes),
		Alive: life.part(), AliveEvery: life.every,
	}, log)
}

// newServerAPI joins the server's role and store to the routes.
func newServerAPI(role *server.Server, kept builds, counts *tally.Table, served []func() []series.Family, ci *ciParts, access *httpapi.Access, settled func() bool, ready func() []string, log *slog.Logger) (http.Handler, error) {
	report := func(route string, err error) { log.Error("request failed", "route", route, "err", err) }
	sections := &jobSections{kept: kept, readers: ci.logReaders(), log: log}
	pages, err := newPages(role, kept, ci, sections, report)
	if err != nil {
		return nil, err
	}
	o := httpapi.Options{
		Query: kept, Ingest: role, Agents: role.Agents, Settled: settled, Access: access, Sections: sections,
		Metrics: prometheus.New(counts, served...), Ready: ready, Version: apiVersion(), Pages: pages, Report: report,
		Answered: func(route string, status int) {
			counts.Value(catalog.ServerRequests, route, strconv.Itoa(status)).Add(1)
		},
		Closed: func() { counts.Value(catalog.ServerRejected, "connections").Add(1) },
	}
	ci.routes(&o)
	return httpapi.New(o), nil
}

// openStore opens the back end that the settings name.
func (c *serveFlags) openStore(ctx context.Context, conf config.Config) (builds, error) {
	address := config.NewSecret(c.Database)
	if address.IsZero() {
		var err error
		if address, err = config.ReadSecret("", conf.Store.DatabaseFile, noVariables); err != nil {
			return nil, err
		}
	}
	if !address.IsZero() {
		return postgres.Open(ctx, postgres.Options{URL: address.Reveal(), Migrate: true})
	}
	folder := filepath.Join(conf.Data, "store")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(folder, "cimeter.db"), Migrate: true})
}

const serverHelp = `
The server takes the records of agents, keeps them, and shows them. It serves:

  /api/v1/builds         builds, filtered and sorted; /api/v1/openapi.json describes all of the API
  /metrics               Prometheus text and OpenMetrics, summed over the fleet
  /healthz, /readyz      for probes

An agent sends to it when its configuration has server.url and a token of the role push. Reading needs a token of the role read, unless the server listens on a loopback address or access.public is set.

SIGTERM and SIGINT end it; a second signal ends it at once. What was acknowledged is on the disk.

Examples:

  cimeter server --listen 127.0.0.1:9808 --data /srv/cimeter
  cimeter token --role push --name agents --tokens /etc/cimeter/tokens
  cimeter server --tokens /etc/cimeter/tokens
  CIMETER_DATABASE=postgres://cimeter:...@db/cimeter cimeter server

Exit codes: 0 after a signal; 1 when it could not start or go on; 2 for a wrong command line.

Everything else is set in the configuration file: see docs/config.md.`
