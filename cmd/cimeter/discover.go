package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/discover"
	"github.com/cimeter/cimeter/internal/discover/consul"
	"github.com/cimeter/cimeter/internal/discover/filesd"
	"github.com/cimeter/cimeter/internal/discover/neighbour"
	"github.com/cimeter/cimeter/internal/discover/targets"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/tally"
	"github.com/cimeter/cimeter/internal/wire"
)

// discovery is how an agent is found by Prometheus: by its heartbeats, through
// Consul, by a file.
type discovery struct {
	conf      config.Config
	counts    *tally.Table
	log       *slog.Logger
	registry  *consul.Client // nil: none
	announcer *discover.Announcer
}

// openDiscovery prepares what the settings ask for. Nothing is told to anybody
// before run.
func openDiscovery(conf config.Config, e *env, counts *tally.Table, log *slog.Logger) (*discovery, error) {
	d := &discovery{conf: conf, counts: counts, log: log}
	c := conf.Discover.Consul
	if c.Address == "" {
		return d, nil
	}
	var err error
	d.registry, err = consul.New(consul.Options{
		URL: c.Address, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile,
		Token: func() (string, error) {
			token, err := config.ReadSecret("CONSUL_HTTP_TOKEN", c.TokenFile, e.getenv)
			return token.Reveal(), err
		},
	})
	if err != nil {
		return nil, fmt.Errorf("discover.consul: %w", err)
	}
	return d, nil
}

// scrape is what heartbeats tell. It is called after run has begun only.
func (d *discovery) scrape() *wire.Scrape { return d.announcer.Targets() }

// run returns what announces an agent that listens at that address.
// heartbeats tells that there are any; file that the agent writes its own.
func (d *discovery) run(at net.Addr, heartbeats, file bool) func(context.Context) error {
	conf := d.conf.Discover
	own := ownTarget(conf, at)
	o := discover.AnnouncerOptions{
		Machine: d.conf.Machine, Version: readBuild().Version, Pool: d.conf.Pool, Runner: conf.Runner, Own: own,
		Neighbours: neighbours(conf, own),
		Service:    conf.Consul.Service, Tags: conf.Consul.Tags, TTL: conf.Consul.TTL, DeregisterAfter: conf.Consul.DeregisterAfter, Tally: d.counts,
	}
	if d.registry != nil {
		o.Registry = d.registry
	}
	d.announcer = discover.NewAnnouncer(o, d.log)
	parts := []func(context.Context) error{untilDone}
	if heartbeats || d.registry != nil || file && conf.File != "" {
		parts = append(parts, d.announcer.Run)
	}
	if file && conf.File != "" {
		parts = append(parts, discover.NewPublisher(discover.PublisherOptions{
			File: filesd.New(conf.File), Leave: true, Tally: d.counts,
			List: func() []targets.Group {
				return targets.Of(wire.Heartbeat{Machine: d.conf.Machine, Version: o.Version, Host: &wire.Host{Pool: d.conf.Pool}, Scrape: d.announcer.Targets()})
			},
		}, d.log).Run)
	}
	return func(ctx context.Context) error {
		if d.registry != nil {
			d.log.Info("registering with consul", "address", d.registry.Address(), "target", own.Address)
			defer d.registry.Close()
		}
		return together(ctx, parts...)
	}
}

func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// settleTime is how long a server that has begun again waits for its agents
// before it tells of them: four of their heartbeats.
const settleTime = 20 * time.Second

// fleetSettled tells whether all agents have had the time to be heard of. A
// server that has no builds yet has no agents to wait for.
func fleetSettled(ctx context.Context, kept httpapi.Query, now func() time.Time) (func() bool, error) {
	page, err := kept.List(ctx, store.Query{Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(page.Records) == 0 {
		return func() bool { return true }, nil
	}
	began := now()
	return func() bool { return now().Sub(began) >= settleTime }, nil
}

// publishFleet returns what keeps a server's file of targets, where the settings
// name one.
func publishFleet(conf config.Config, agents func() []httpapi.Agent, settled func() bool, counts *tally.Table, log *slog.Logger) func(context.Context) error {
	if conf.Discover.File == "" {
		return untilDone
	}
	return discover.NewPublisher(discover.PublisherOptions{
		File: filesd.New(conf.Discover.File), Ready: settled, Tally: counts,
		List: func() []targets.Group { return httpapi.Targets(agents()) },
	}, log).Run
}

// ownTarget is where the agent itself is scraped. The host stays open where the
// settings do not say it: who is told sees it.
func ownTarget(conf config.Discover, at net.Addr) wire.Target {
	t := wire.Target{Job: "cimeter", Address: conf.Advertise}
	if conf.Scheme != "http" {
		t.Scheme = conf.Scheme
	}
	tcp, ok := at.(*net.TCPAddr)
	if t.Address == "" && ok {
		host := tcp.IP.String()
		if tcp.IP == nil || tcp.IP.IsUnspecified() {
			host = ""
		}
		t.Address = wire.JoinTarget(host, strconv.Itoa(tcp.Port))
	}
	return t
}

// neighbours are looked for where the settings say, and told at the agent's host.
func neighbours(conf config.Discover, own wire.Target) (all []discover.Neighbour) {
	host, _, _ := wire.SplitTarget(own.Address)
	for _, n := range []struct{ job, at string }{{neighbour.NodeExporter, conf.NodeExporter}, {neighbour.Cadvisor, conf.Cadvisor}} {
		if n.at == "" {
			continue
		}
		_, port, _ := wire.SplitTarget(n.at)
		all = append(all, discover.Neighbour{
			Target: wire.Target{Job: n.job, Address: wire.JoinTarget(host, port)},
			Find:   func(ctx context.Context) (bool, error) { return neighbour.Find(ctx, n.job, n.at) },
		})
	}
	return all
}
