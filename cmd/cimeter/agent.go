package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/cimeter/cimeter/internal/agent"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/httpapi/webconfig"
	"github.com/cimeter/cimeter/internal/output/expvar"
	"github.com/cimeter/cimeter/internal/output/prometheus"
	"github.com/cimeter/cimeter/internal/records"
	"github.com/cimeter/cimeter/internal/tally"
)

// Run starts the agent.
//
//	kernel ──▶ agent ──▶ records ──▶ API, summaries
//	engine ──▶   │          └──────▶ spool ──▶ server, where there is one
//	             └─────▶ tally ────▶ /metrics, outputs
//	discovery ──▶ heartbeats, Consul, file
func (c *agentCmd) Run(e *env) error {
	conf, err := c.load(e)
	if err != nil {
		return err
	}
	log, limit := e.logger(conf.Log)
	defer func() { _ = limit.Flush(context.Background(), time.Now()) }()
	ctx, stop := untilSignal() // before anything is told to be ready
	defer stop()
	life, err := openLifeline(e, log)
	if err != nil {
		return err
	}
	defer life.stopping(ctx)()
	limitMemory(conf)
	counts := newTally(conf)
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
		return openSending(conf, e, counts, tell, log)
	}, log)
	if err != nil {
		return err
	}
	defer m.Close()
	jobs, err := openJobSocket(conf, m.agent, serverHistory(conf, e), counts, log)
	if err != nil {
		return err
	}
	// Listening comes last of what can fail.
	listener, err := net.Listen("tcp", conf.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	debugging, err := openDebug(conf, e, counts, func() expvar.Queue { return ownQueue(m.accounts()) }, log)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	log.Info("listening", "address", listener.Addr().String())
	releaseUnused(conf.Agent.ProcRoot)
	return together(ctx, out.around(m.run), jobs, from.run, debugging, found.run(listener.Addr(), conf.Server.URL != "", true), func(ctx context.Context) error {
		api := httpapi.New(httpapi.Options{
			Store: m.records, Running: m.accounts, Metrics: prometheus.New(counts, from.served...), Ready: m.ready, Version: apiVersion(),
			Report: func(route string, err error) { log.Error("request failed", "route", route, "err", err) },
			Closed: func() { counts.Value(catalog.AgentDropped, "connections").Add(1) },
		})
		return serve(ctx, api, listener, conf.WebConfigFile, log)
	})
}

// metering is an agent with what it needs.
type metering struct {
	agent   *agent.Agent
	records *records.Dir
	sending *sending
	engines *engines
	jobs    runnerJobs
	pool    string
}

// openMetering opens all that the agent of the settings needs. open opens the
// way that its records go; out is given them too; life learns that it meters.
func openMetering(conf config.Config, counts *tally.Table, out *exports, life *lifeline, open func(telling) (*sending, error), log *slog.Logger) (_ *metering, err error) {
	m := &metering{pool: conf.Pool}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	if m.jobs, err = openRunnerJobs(conf.Agent.Kubernetes, log); err != nil {
		return nil, err
	}
	who, err := newIdentifiers(conf.Agent, m.jobs)
	if err != nil {
		return nil, err
	}
	if m.engines, err = openEngines(&conf.Agent, who.variables); err != nil {
		return nil, err
	}
	m.records, err = records.Open(records.Options{
		Dir: conf.Data, MaxBytes: int64(conf.Records.MaxBytes), MaxRecords: conf.Records.MaxRecords,
	})
	if err != nil {
		return nil, err
	}
	m.sending, err = open(telling{running: m.running, pulling: m.pulling, host: m.host})
	if err != nil {
		return nil, err
	}
	m.agent, err = agent.New(agent.Options{
		Machine: conf.Machine, Interval: conf.Agent.Interval, FullEvery: conf.Agent.FullEvery,
		Grace: conf.Agent.Grace, Quiet: conf.Agent.Quiet,
		CgroupRoot: conf.Agent.CgroupRoot, ProcRoot: conf.Agent.ProcRoot, SysRoot: conf.Agent.SysRoot,
		WakeBlockIO: conf.Agent.WakeBlockIO, ContainerInfo: conf.Agent.ContainerInfo, NoTrace: !conf.Agent.Trace,
		Engines: m.engines.list, Processes: newProcesses(conf.Agent), Identify: who.identify, InspectAll: who.inspectAll, Stager: newStager,
		CommandStage: commandStage, JobLists: newJobLists(conf.Agent.GitLabRunners),
		Tally: counts, Records: m.sending.before(out.after(m.records)), Alive: life.part(), AliveEvery: life.every,
	}, log)
	return m, err
}

// run meters and sends until ctx ends.
func (m *metering) run(ctx context.Context) error {
	return together(ctx, m.agent.Run, m.sending.run, m.jobs.run)
}

// ready returns why the agent does not do all that it should.
func (m *metering) ready() []string { return reasons(errors.Join(m.agent.Ready(), m.sending.ready())) }

// Close gives everything back that openMetering opened.
func (m *metering) Close() {
	m.sending.Close()
	if m.records != nil {
		m.records.Close()
	}
	if m.engines != nil {
		m.engines.Close()
	}
}

// serve answers on l by the limits of httpapi, with the TLS and authentication
// of the web configuration file where there is one.
func serve(ctx context.Context, h http.Handler, l net.Listener, webConfig string, log *slog.Logger) error {
	clients := slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	return httpapi.NewServer(h, clients).Serve(ctx, l, func(l net.Listener, s *http.Server) error {
		return webconfig.Serve(l, s, webConfig, log)
	})
}

// together runs parts until the first one returns, ends the others, and returns
// the first error when all are gone.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	for _, part := range parts {
		wg.Go(func() {
			err := part(ctx)
			if err != nil {
				once.Do(func() { first = err })
			}
			cancel()
		})
	}
	wg.Wait()
	return first
}

func newTally(conf config.Config) *tally.Table {
	t := tally.New(tally.Options{Budget: conf.Metrics.SeriesBudget})
	b := readBuild()
	t.Info(catalog.BuildInfo, b.Version, b.Revision, b.Go)
	return t
}

func apiVersion() httpapi.Version {
	b := readBuild()
	return httpapi.Version{Version: b.Version, Revision: b.Revision, Go: b.Go}
}

// reasons returns one line for each of a joined error's parts.
func reasons(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

// jobClient asks the runners on this machine: few, near, and one at a time.
var jobClient = &http.Client{Transport: &http.Transport{MaxIdleConns: 8, IdleConnTimeout: time.Minute}}
