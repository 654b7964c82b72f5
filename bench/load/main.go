// Command load puts a server under the load of a fleet, all of it on loopback,
// and prints what it cost as a table with ratios: `make load`.
//
// It owns the server that it starts (bin/cimeter in a process of its own, with a
// store of its own), the agents that it plays with the agents' own sender, one
// connection each, one real pusher whose server is away meanwhile, and the
// readers of pages and lists. It measures the server from outside, by /proc and
// by the clock of its clients, which share the machine with it. It leaves
// nothing behind. With --strict it ends with 1 when a bound is missed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// size is how large the load is.
type size struct {
	program, database string
	agents, builds    int
	running           int // builds that each agent tells of
	viewers           int // live pages that are open
	outage            int // records that wait while the server is away
	records           int // a second, from the agents
	interval          time.Duration
	duration          time.Duration
	strict            bool
}

func main() {
	var z size
	flag.StringVar(&z.program, "program", "bin/cimeter", "the cimeter to put under load")
	flag.StringVar(&z.database, "database", "", "an empty PostgreSQL, postgres://...; nothing is SQLite")
	flag.IntVar(&z.agents, "agents", 2000, "agents that send heartbeats")
	flag.DurationVar(&z.interval, "interval", 5*time.Second, "between two heartbeats of an agent")
	flag.IntVar(&z.running, "running", 5, "builds that each agent tells of")
	flag.IntVar(&z.builds, "builds", 5000, "builds that are stored before")
	flag.IntVar(&z.viewers, "viewers", 10, "live pages that are open meanwhile")
	flag.IntVar(&z.records, "records", 5, "records a second that come in meanwhile")
	flag.IntVar(&z.outage, "outage", 600, "records of an agent whose server is away for the first half")
	flag.DurationVar(&z.duration, "duration", time.Minute, "how long; 10m shows whether memory grows")
	flag.BoolVar(&z.strict, "strict", false, "end with 1 when a bound is missed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	missed, err := run(ctx, z)
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	if missed > 0 && z.strict {
		os.Exit(1)
	}
}

func run(ctx context.Context, z size) (missed int, err error) {
	if z.agents < 1 || z.viewers < 1 || z.records < 1 || z.outage < 1 || z.builds < 100 || z.interval < time.Second || z.duration < 20*time.Second {
		return 0, errors.New("want at least one agent, viewer, record and waiting record, 100 builds, an interval of 1s and a duration of 20s")
	}
	s, err := startServer(ctx, z.program, z.database)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	begun := time.Now()
	if err := fill(ctx, s, z.builds); err != nil {
		return 0, err
	}
	rate := float64(z.builds) / time.Since(begun).Seconds()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var parts sync.WaitGroup
	fleet, readers := &fleet{}, newReaders(s)
	away, err := newOutage(s, z.outage)
	if err != nil {
		return 0, err
	}
	defer away.close()
	parts.Go(func() { fleet.run(ctx, s, z) })
	parts.Go(func() { away.run(ctx) })
	for range z.viewers {
		parts.Go(func() { readers.watch(ctx) })
	}
	parts.Go(func() { readers.walk(ctx) })
	away.comesBack(ctx, z.duration/2)
	m, err := s.measure(ctx, z.duration)
	if err == nil {
		err = away.wait(ctx)
	}
	cancel()
	parts.Wait()
	if err != nil {
		return 0, err
	}
	stored, err := s.keys()
	if err != nil {
		return 0, err
	}
	t := &table{title: fmt.Sprintf("%d agents, a heartbeat each %s with %d builds, %d live pages, %d builds stored, %s",
		z.agents, z.interval, z.running, z.viewers, z.builds, z.duration)}
	t.note("stored before, one sender", fmt.Sprintf("%.0f records/s", rate))
	fleet.report(t, z, m)
	m.report(t)
	readers.report(t)
	away.report(t, stored)
	t.print(os.Stdout)
	return t.missed, nil
}
