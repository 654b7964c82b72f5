package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/cgroup"
	"github.com/cimeter/cimeter/internal/machine"
	"github.com/cimeter/cimeter/internal/netns"
	"github.com/cimeter/cimeter/internal/process"
	"github.com/cimeter/cimeter/internal/watch"
)

// Agent meters one machine. Make it with New, run it once.
type Agent struct {
	opts  Options
	log   *slog.Logger
	host  *cgroup.Host
	nets  *netns.Reader
	procs *process.FS
	watch *watch.Watcher

	ledger *attrib.Ledger
	meter  *meter
	writer *writer

	engines []*followed
	shells  *shells // nil: processes are not looked at
	looks   chan look
	jobs    chan struct{}
	refresh chan struct{}

	started atomic.Bool // the first scan is done

	machine *machine.Machine
	size    cimeter.HostSize
	covered covered
	pulls   pulling
}

// nice is the nice value of the process. It runs for moments, but on a machine
// whose builds keep all CPUs busy it must run at once: 10 ms after the last
// process of a container its counters are gone. It is the whole process because
// its threads wait for each other (locks, the garbage collector).
const nice = -10

// monitorSlack is how late the kernel may wake the Go runtime's monitor: half of
// what an agent costs on an idle machine was that thread. Threads that it makes
// inherit it, so it is well below the 10 ms in which an end must be read.
const monitorSlack = 2 * time.Millisecond

// New opens what an agent reads. It fails when there is no cgroup hierarchy to
// meter or to watch; a container engine may come later.
func New(o Options, log *slog.Logger) (*Agent, error) {
	host, err := cgroup.Open(cgroup.Options{Root: o.CgroupRoot, Proc: o.ProcRoot, Sys: o.SysRoot})
	if err != nil {
		return nil, err
	}
	w, err := watch.New(watch.Options{Root: host.WatchDir(), IsContainer: cgroup.Metered})
	if err != nil {
		host.Close()
		return nil, err
	}
	nets, err := netns.Open(netns.Options{Proc: o.ProcRoot})
	if err != nil {
		w.Close()
		host.Close()
		return nil, err
	}
	a := &Agent{
		machine: machine.Open(o.ProcRoot, o.SysRoot),
		opts:    o, log: log, host: host, nets: nets, procs: process.Open(o.ProcRoot), watch: w,
		ledger: attrib.New(attrib.Options{
			Machine: o.Machine, Interval: o.Interval, Grace: o.Grace, Quiet: o.Quiet, Tally: o.Tally, Stager: o.Stager,
		}),
		writer:  newWriter(o.Records, o.Tally, log),
		looks:   make(chan look, maxLooks),
		jobs:    make(chan struct{}, 1),
		refresh: make(chan struct{}, 1),
	}
	for _, e := range o.Engines {
		a.engines = append(a.engines, newFollowed(a, e))
	}
	a.size = cimeter.HostSize{CPUs: int(host.MachineCores()), MemoryBytes: a.machine.Read().MemoryTotal.Value}
	a.meter = newMeter(a)
	if o.Processes != nil {
		if a.shells, err = newShells(a, o.Processes); err != nil {
			a.meter.gauges.self.Close()
			nets.Close()
			w.Close()
			host.Close()
			return nil, err
		}
	}
	return a, nil
}

// Layout returns the machine's cgroup layout: v1, v2 or hybrid.
func (a *Agent) Layout() string { return a.host.Layout() }

// Ready returns nil when the agent meters, knows its containers and keeps its
// records, and else what is missing.
func (a *Agent) Ready() error {
	var errs []error
	if !a.started.Load() {
		errs = append(errs, fmt.Errorf("the first scan is not done: %w", cimeter.ErrUnavailable))
	}
	for _, f := range a.engines {
		if err := *f.away.Load(); err != nil {
			errs = append(errs, err)
		}
	}
	if err := a.writer.err(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// runningTimeout bounds how long a question for the running builds may take: the
// meter answers between two samples.
const runningTimeout = 2 * time.Second

// Running returns the accounts so far of the builds that run; nil when the meter
// does not answer in time.
func (a *Agent) Running() []attrib.Running {
	answer := make(chan []attrib.Running, 1)
	a.meter.post(func() { answer <- a.ledger.Running(time.Now()) })
	t := time.NewTimer(runningTimeout)
	defer t.Stop()
	select {
	case r := <-answer:
		return r
	case <-t.C:
		return nil
	}
}

// Run meters until ctx ends. Then it checkpoints the builds that run, so that
// the next start goes on with them, writes what is finished, and returns.
func (a *Agent) Run(ctx context.Context) error {
	defer a.watch.Close()
	defer a.host.Close()
	defer a.nets.Close()
	defer a.meter.gauges.self.Close()
	if err := a.procs.SetNice(nice); err != nil {
		a.log.Info("metering at normal priority: ends of containers on a busy machine may be missed", "err", err)
	}
	if err := a.procs.SetMonitorSlack(monitorSlack); err != nil {
		a.log.Debug("the runtime's monitor runs as often as it likes", "err", err)
	}
	if err := a.host.BlockIO(); err != nil {
		a.wakeBlockIO(err)
	}
	a.meter.begin(time.Now())

	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var others, writer sync.WaitGroup
	for _, f := range a.engines {
		others.Go(func() { f.follow(run) })
		others.Go(func() { f.inspectAll(run) })
	}
	others.Go(func() { a.followNetworks(run) })
	if a.shells != nil {
		others.Go(func() { a.shells.run(run) })
	}
	if a.opts.CommandStage != nil {
		others.Go(func() { a.lookAtCommands(run) })
	}
	if len(a.opts.JobLists) > 0 {
		others.Go(func() { a.pollJobs(run) })
		others.Go(func() { a.lookForPulls(run) })
	}
	write, stopWriter := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriter()
	writer.Go(func() { a.writer.run(write) })

	stop := context.AfterFunc(ctx, a.watch.Wake)
	defer stop()
	err := a.meter.loop(ctx)
	cancel()
	others.Wait()
	a.meter.end(time.Now())
	stopWriter()
	writer.Wait()
	return err
}

// followNetworks reads the counters of all network namespaces in one go whenever
// the meter asks for them: its next round takes them. The kernel makes it wait
// while a runtime changes networks; the meter does not wait for it.
func (a *Agent) followNetworks(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.refresh:
		}
		a.refreshNetworks()
	}
}

func (a *Agent) refreshNetworks() {
	if err := a.nets.Refresh(); err != nil {
		a.log.Warn("networks are read one by one", "err", err)
	}
}

func (a *Agent) wakeBlockIO(why error) {
	if !a.opts.WakeBlockIO {
		a.log.Warn("block IO is not metered", "err", why, "hint", "agent.wake_block_io: true makes the kernel count it")
		return
	}
	if err := a.host.WakeBlockIO(); err != nil {
		a.log.Warn("block IO is not metered", "err", err)
		return
	}
	a.log.Info("block IO counters woken")
}
