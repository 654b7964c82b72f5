package main

import (
	"context"
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
	"github.com/cimeter/cimeter/internal/docker"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/httpapi/webconfig"
	"github.com/cimeter/cimeter/internal/output/prometheus"
	"github.com/cimeter/cimeter/internal/records"
	"github.com/cimeter/cimeter/internal/tally"
)

const (
	// quiet is how long a build whose containers exist, but do not run, stays
	// open: a runner may pull a large image between two steps.
	quiet = 10 * time.Minute
)

// Run starts the agent.
//
//	kernel ──▶ agent ──▶ records ──▶ API, summaries
//	engine ──▶   │
//	             └─────▶ tally ────▶ /metrics
func (c *agentCmd) Run(e *env) error {
	conf, err := c.load(e)
	if err != nil {
		return err
	}
	log, limit := e.logger(conf.Log)
	defer func() { _ = limit.Flush(context.Background(), time.Now()) }()
	limitMemory(conf)

	who, err := newIdentifiers(conf.Agent)
	if err != nil {
		return err
	}
	var engine agent.Engine
	if conf.Agent.Docker.Enabled {
		client, err := docker.Open(docker.Options{Host: conf.Agent.Docker.Host, Variables: who.variables})
		if err != nil {
			return err
		}
		defer client.Close()
		engine = client
	}
	dir, err := records.Open(records.Options{
		Dir: conf.Data, MaxBytes: int64(conf.Records.MaxBytes), MaxRecords: conf.Records.MaxRecords,
	})
	if err != nil {
		return err
	}
	defer dir.Close()
	// Listening comes last of what can fail, metering after it.
	counts := newTally(conf)
	meter, err := agent.New(agent.Options{
		Machine: conf.Machine, Interval: conf.Agent.Interval, FullEvery: conf.Agent.FullEvery,
		Grace: conf.Agent.Grace, Quiet: quiet,
		CgroupRoot: conf.Agent.CgroupRoot, ProcRoot: conf.Agent.ProcRoot, SysRoot: conf.Agent.SysRoot,
		WakeBlockIO: conf.Agent.WakeBlockIO, ContainerInfo: conf.Agent.ContainerInfo, NoTrace: !conf.Agent.Trace,
		Engine: engine, Identify: who.identify, InspectAll: who.inspectAll, Stager: newStager,
		CommandStage: commandStage, JobLists: newJobLists(conf.Agent.GitLabRunners),
		Tally: counts, Records: dir,
	}, log)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", conf.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	log.Info("listening", "address", listener.Addr().String())
	ctx, stop := untilSignal()
	defer stop()
	time.AfterFunc(startTime, func() { releaseStart(conf.Agent.ProcRoot) })
	return together(ctx,
		meter.Run,
		func(ctx context.Context) error {
			api := httpapi.New(httpapi.Options{
				Store: dir, Metrics: prometheus.New(counts), Ready: func() []string { return reasons(meter.Ready()) },
				Version: apiVersion(), Report: func(route string, err error) { log.Error("request failed", "route", route, "err", err) },
			})
			return serve(ctx, api, listener, conf.WebConfigFile, log)
		},
	)
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
