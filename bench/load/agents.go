package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/push"
	"github.com/cimeter/cimeter/internal/wire"
)

// sender is an agent's way to the server, over a connection of its own.
func (p *process) sender(address, agent string) (*push.Sender, error) {
	return push.NewSender(push.SenderOptions{
		URL: "http://" + address, Agent: agent, Token: func() (string, error) { return p.token, nil },
		Transport: &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute},
	})
}

// record is build n as a job of six stages with a trace makes it.
func record(n int, ended time.Time) *cimeter.Record {
	const stages, wall = 6, 90 * time.Second
	usage := func(d time.Duration) cimeter.Usage {
		rate := cimeter.Stat{Avg: 1e5, Max: 1e6, StdDev: cimeter.Some(1e4)}
		return cimeter.Usage{
			WallSeconds: d.Seconds(), CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(float64(1 + n%50)), User: cimeter.Some(1.0), System: cimeter.Some(0.2)},
			CPUCores: &cimeter.Stat{Avg: 0.8, Max: 2, StdDev: cimeter.Some(0.3)}, MemoryBytes: &cimeter.MemoryStat{Stat: cimeter.Stat{Avg: 1e8, Max: 2e8}, Peak: cimeter.Some(uint64(2e8 + n))},
			IOBytes: &cimeter.ReadWrite[uint64]{Read: uint64(n) << 10, Write: 1 << 20}, IOBytesPerSecond: &cimeter.ReadWrite[cimeter.Stat]{Read: rate, Write: rate},
			NetworkBytes: &cimeter.ReceiveTransmit[uint64]{Receive: 1 << 20, Transmit: uint64(n)},
		}
	}
	r := &cimeter.Record{Schema: cimeter.RecordSchema, StartedAt: ended.Add(-wall), EndedAt: ended, QueuedAt: ended.Add(-wall - 3*time.Second),
		Complete: true, Result: []string{"success", "success", "success", "failed"}[n%4], Gaps: []cimeter.Gap{}, Usage: usage(wall)}
	r.CI, r.Server, r.Number = "gitlab", "gitlab.example.com", fmt.Sprint(n)
	r.Key = cimeter.BuildKey(r.CI, r.Server, r.Number)
	r.Project, r.Name, r.Ref = fmt.Sprintf("group-%d/app-%d", n%10, n%70), []string{"build", "test", "lint"}[n%3], "main"
	r.Machine = fmt.Sprintf("ci-%d", n%100)
	r.Runner = cimeter.Runner{ID: "s_" + r.Machine, Name: "docker-" + r.Machine}
	for i, name := range []string{"prepare_executor", "get_sources", "restore_cache", "step_script", "archive_cache", "upload_artifacts_on_success"} {
		from := r.StartedAt.Add(wall * time.Duration(i) / stages)
		r.Stages = append(r.Stages, cimeter.Stage{Name: name, Attempt: 1, Boundary: cimeter.BoundaryContainer, StartedAt: from, EndedAt: from.Add(wall / stages), Usage: usage(wall / stages)})
	}
	r.Trace = &cimeter.Trace{StepSeconds: 1}
	for i := range int(wall.Seconds()) {
		r.Trace.CPUMillicores = append(r.Trace.CPUMillicores, cimeter.Some(int64((i*n+i*i)%2000)))
		r.Trace.MemoryKiB = append(r.Trace.MemoryKiB, cimeter.Some(int64(100_000+i*500+n%97)))
	}
	return r
}

// send sends records first to first+n-1, the last of which ended when.
func send(ctx context.Context, way *push.Sender, first, n int, when time.Time) error {
	lines := make([][]byte, n)
	for i := range lines {
		var err error
		if lines[i], err = json.Marshal(record(first+i, when.Add(-time.Duration(n-1-i)*time.Second))); err != nil {
			return err
		}
	}
	results, err := way.Records(ctx, lines)
	for _, r := range results {
		if r.Status != wire.Stored {
			return fmt.Errorf("record %s: %s %s: want it stored", r.Key, r.Status, r.Reason)
		}
	}
	return err
}

// fill stores n builds that ended in the days before now.
func fill(ctx context.Context, p *process, n int) error {
	way, err := p.sender(p.address, "fill")
	if err != nil {
		return err
	}
	defer way.Close()
	const batch = 50
	for i := 0; i < n; i += batch {
		size := min(batch, n-i)
		if err := send(ctx, way, i, size, time.Now().Add(-time.Duration(n-i)*time.Minute)); err != nil {
			return fmt.Errorf("filling the store: %w", err)
		}
	}
	return nil
}

// fleet is the agents that are played.
type fleet struct {
	beats, failed, records, refused atomic.Int64

	mu    sync.Mutex
	times []time.Duration
	why   map[string]int // failures by what they said
}

// run has every agent send heartbeats, and one of them records too.
func (f *fleet) run(ctx context.Context, p *process, z size) {
	var all sync.WaitGroup
	for n := range z.agents {
		all.Go(func() { f.agent(ctx, p, z, n) })
	}
	all.Go(func() { f.builds(ctx, p, z) })
	all.Wait()
}

func (f *fleet) agent(ctx context.Context, p *process, z size, n int) {
	name := fmt.Sprintf("%032x", n)
	way, err := p.sender(p.address, name)
	if err != nil {
		f.fail(err)
		return
	}
	defer way.Close()
	h := wire.Heartbeat{Agent: name, Machine: fmt.Sprintf("ci-%d", n), Version: "load", IntervalSeconds: z.interval.Seconds(), Spool: &wire.Spool{}}
	for i := range z.running {
		h.Running = append(h.Running, wire.Running{
			Key: fmt.Sprintf("gitlab/gitlab.example.com/9%d0%d", n, i), CI: "gitlab", Project: fmt.Sprintf("group/app-%d", n%70), Name: "test", Stage: "step_script",
			Runner: cimeter.Runner{ID: "s_" + h.Machine}, StartedAt: time.Now(), URL: "https://gitlab.example.com/group/app/-/jobs/1",
		})
	}
	tick := time.NewTimer(rand.N(z.interval)) // they do not start together
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		tick.Reset(z.interval)
		for i := range h.Running {
			at := &h.Running[i]
			at.CPUSeconds, at.MemoryBytes = cimeter.Some(time.Since(at.StartedAt).Seconds()*0.7), cimeter.Some(uint64(100+i)<<20)
		}
		begun := time.Now()
		if err := way.Heartbeat(ctx, h); err != nil && ctx.Err() == nil {
			f.fail(err)
			continue
		}
		f.beats.Add(1)
		f.mu.Lock()
		f.times = append(f.times, time.Since(begun))
		f.mu.Unlock()
	}
}

func (f *fleet) fail(err error) {
	f.failed.Add(1)
	f.because(err)
}

func (f *fleet) because(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.why == nil {
		f.why = map[string]int{}
	}
	text := err.Error() // its end: the beginning has addresses
	f.why[text[max(0, len(text)-60):]]++
}

// builds sends records at the rate that is asked for.
func (f *fleet) builds(ctx context.Context, p *process, z size) {
	way, err := p.sender(p.address, "builds")
	if err != nil {
		f.fail(err)
		return
	}
	defer way.Close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for next := 1_000_000; ; next += z.records {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := send(ctx, way, next, z.records, time.Now()); err != nil && ctx.Err() == nil {
			f.refused.Add(int64(z.records))
			f.because(err)
			continue
		}
		f.records.Add(int64(z.records))
	}
}

func (f *fleet) report(t *table, z size, m measured) {
	f.mu.Lock()
	defer f.mu.Unlock()
	want := float64(z.agents) / z.interval.Seconds()
	took := float64(len(m.resident)) // seconds
	t.note("heartbeats taken", fmt.Sprintf("%.0f/s of %.0f/s, p99 %.1f ms", float64(f.beats.Load())/took, want, milliseconds(quantile(f.times, 0.99))))
	detail := ""
	for why, n := range f.why {
		detail += fmt.Sprintf("%d: …%s ", n, why)
	}
	t.bound("heartbeats that failed", 0, float64(f.failed.Load()), "", detail)
	t.bound("records turned away meanwhile", 0, float64(f.refused.Load()), "", fmt.Sprintf("%d stored", f.records.Load()))
}
