package main

import (
	"context"
	"math"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/web"
	"github.com/cimeter/cimeter/internal/wire"
)

// goneAfter is how long a machine that is silent is shown.
const goneAfter = 10 * time.Minute

// Machines implements web.Fleet. What no heartbeat tells is absent.
func (s pageSource) Machines(context.Context) (machines []web.Machine, gone int, err error) {
	now, agents := time.Now(), s.agents()
	machines = make([]web.Machine, 0, len(agents))
	for i := range agents {
		a := &agents[i]
		if now.Sub(a.SeenAt) > goneAfter {
			gone++
			continue
		}
		machines = append(machines, machineOf(a))
	}
	return machines, gone, nil
}

// Past is a web.Past.
func (s pageSource) Past(ctx context.Context, machine string, since time.Time) ([]web.Moment, error) {
	points, err := s.kept.MachinePoints(ctx, machine, since)
	if err != nil {
		return nil, err
	}
	moments := make([]web.Moment, 0, len(points))
	for i := range points {
		p := &points[i]
		moments = append(moments, web.Moment{At: p.At, Builds: float64(p.Builds), Other: float64(p.Other), Cimeter: float64(p.Cimeter), Coverage: float64(p.Coverage),
			MemoryUsed: float64(p.Memory), Disk: float64(p.IO), Net: float64(p.Network), Pressure: float64(p.Pressure)})
	}
	return moments, nil
}

// machineOf is a machine without what only few are shown with: its builds and its
// history are filled in when they are asked for.
func machineOf(a *httpapi.Agent) web.Machine {
	m := web.Machine{
		Runs: len(a.Running), More: func(m *web.Machine) { tellMore(m, a) },
		Name: a.Machine, LastSeen: a.SeenAt, Interval: time.Duration(a.IntervalSeconds * float64(time.Second)), AgentVersion: a.Version,
	}
	if a.Spool != nil {
		m.SpoolBytes = cimeter.Some(uint64(max(0, a.Spool.Bytes)))
	}
	if a.Host != nil {
		tell(&m, a.Host)
	}
	if n := a.Now; n != nil {
		if c := n.CPUCores; c != nil {
			m.CPUBuilds, m.CPUOther, m.CPUOwn = cimeter.Some(c.Builds), cimeter.Some(c.Other), cimeter.Some(c.Cimeter)
		}
		m.MemoryUsed, m.DiskRate, m.NetRate = n.MemoryUsedBytes, n.IOBytesPerSecond, n.NetworkBytesPerSecond
		if n.AgentCPUCores.Known {
			m.OwnCPUMillis = cimeter.Some(1000 * n.AgentCPUCores.Value)
		}
		if p := n.Pressure; p != nil {
			for _, w := range []struct {
				of    string
				share cimeter.Opt[float64]
			}{{"CPU", p.CPU}, {"memory", p.Memory}, {"disk", p.IO}} {
				if w.share.Known && (!m.Pressure.Known || w.share.Value > m.Pressure.Value) {
					m.Pressure, m.PressureOf = w.share, w.of
				}
			}
		}
	}
	return m
}

func tellMore(m *web.Machine, a *httpapi.Agent) {
	for _, p := range a.History {
		m.History = append(m.History, web.Moment{
			At: time.Unix(p.At, 0), Builds: float64(p.Builds), Other: float64(p.Other), Cimeter: float64(p.Cimeter), MemoryUsed: float64(p.MemoryUsed),
			Disk: float64(p.IO), Net: float64(p.Network), Pressure: float64(p.Pressure),
		})
	}
	for i := range a.Running {
		var rates httpapi.BuildRates
		if i < len(a.Builds) {
			rates = a.Builds[i]
		}
		m.Running = append(m.Running, runningOf(&a.Running[i], &rates, a))
	}
}

// tell gives a machine what its agent told of it.
func tell(m *web.Machine, h *wire.Host) {
	m.OS, m.Kernel, m.Cgroup, m.Pool = h.OS, h.Kernel, h.Cgroup, h.Pool
	m.BootedAt, m.AgentSince, m.Containers, m.Coverage = h.BootedAt, h.StartedAt, h.Containers, h.Coverage
	m.CPUs = int(math.Round(min(h.CPUCores.Value, 1e6)))
	if h.MemoryBytes != nil {
		m.MemoryBytes = h.MemoryBytes.Total
	}
	if h.Agent != nil {
		m.OwnMemoryBytes = h.Agent.MemoryBytes
	}
}

func runningOf(b *wire.Running, now *httpapi.BuildRates, a *httpapi.Agent) web.Running {
	r := web.Running{
		Row: web.Row{
			Build: cimeter.Build{
				Key: b.Key, CI: b.CI, Project: b.Project, Number: b.Number, Name: b.Name, Runner: b.Runner, URL: b.URL, Machine: a.Machine,
			},
			StartedAt: b.StartedAt, EndedAt: a.SeenAt, Running: true, Complete: true,
			WallSeconds: max(0, a.SeenAt.Sub(b.StartedAt).Seconds()), CPUSeconds: b.CPUSeconds,
		},
		Stage: b.Stage, MemoryNow: b.MemoryBytes, CPUNow: now.CPUCores, DiskNow: now.IOBytesPerSecond, NetNow: now.NetworkBytesPerSecond, CPUMinute: now.Minute,
	}
	if l := b.Limits; l != nil {
		r.CPULimit, r.MemoryLimit = l.CPUCores, l.MemoryBytes
	}
	return r
}

// soFar is the account of a build that an agent says runs; nil when none does.
func (s pageSource) soFar(key string) *cimeter.Record {
	for _, a := range s.agents() {
		if a.Away {
			continue
		}
		for i := range a.Running {
			if b := &a.Running[i]; b.Key == key {
				row := runningOf(b, &httpapi.BuildRates{}, &a)
				r := &cimeter.Record{
					Schema: cimeter.RecordSchema, Build: row.Build, StartedAt: b.StartedAt, EndedAt: a.SeenAt, Complete: true, Gaps: []cimeter.Gap{}, Limits: b.Limits,
					Usage: cimeter.Usage{WallSeconds: row.WallSeconds, IOBytes: b.IOBytes, NetworkBytes: b.NetworkBytes},
				}
				r.Usage.CPUSeconds.Total = b.CPUSeconds
				return r
			}
		}
	}
	return nil
}
