package webtest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/web"
)

// History is a fleet's builds of the last days: the named ones of this package,
// and n more.
func History(n int) []*cimeter.Record {
	rnd := rand.New(rand.NewPCG(1, 2))
	rs := []*cimeter.Record{Example(), OOM(), Incomplete(), Absent(), Single()}
	jobs := []struct {
		project, name string
		factor        float64
	}{{"group/app", "build-and-test", 1}, {"group/app", "e2e", 2.6}, {"group/app", "lint", 0.16}, {"group/site", "deploy", 0.3}, {"infra/terraform", "plan", 0.2}, {"data/etl", "nightly", 7}}
	for i := range n {
		j := jobs[rnd.IntN(len(jobs))]
		if i%3 == 0 {
			j = jobs[0]
		}
		at := Now.Add(-time.Duration(float64(i)*17+rnd.Float64()*10) * time.Minute).Add(-8 * time.Minute)
		r := Make(4230-i, at, j.factor*(0.85+0.3*rnd.Float64()))
		r.Project, r.Name = j.project, j.name
		r.Machine = fmt.Sprintf("ci-%d", 1+rnd.IntN(9))
		r.Runner = cimeter.Runner{ID: "s_" + r.Machine, Name: "docker-" + r.Machine[3:]}
		r.QueuedAt = r.StartedAt.Add(-time.Duration(rnd.ExpFloat64() * 9 * float64(time.Second)))
		switch rnd.IntN(12) {
		case 0:
			r.Result = "failed"
		case 1:
			r.Result = "canceled"
		}
		if i%4 == 1 {
			r.Ref, r.Event = fmt.Sprintf("feature/issue-%d", i), "merge_request_event"
		}
		if rnd.IntN(3) > 0 {
			r.Verdicts = nil
		}
		rs = append(rs, r)
	}
	return rs
}

// Running is a build that runs now.
func Running() *cimeter.Record {
	r := Make(4246, Now.Add(-95*time.Second), 0.8)
	r.Result, r.Coverage = "", cimeter.Opt[float64]{}
	r.Machine = "ci-3"
	r.EndedAt = Now
	r.Stages = append(r.Stages[:4], r.Stages[len(r.Stages)-1])
	for _, i := range []int{3, 4} {
		s := &r.Stages[i]
		share := Now.Sub(s.StartedAt).Seconds() / s.Usage.WallSeconds
		s.EndedAt, s.ExitCode = Now, cimeter.Opt[int]{}
		s.Usage.WallSeconds *= share
		s.Usage.CPUSeconds.Total.Value *= share
	}
	r.Usage.WallSeconds = 95
	r.Usage.CPUSeconds.Total = cimeter.Some(132.0)
	trace(r, 5)
	return r
}

// Machines are the fleet's last heartbeats.
func Machines() []web.Machine {
	rnd := rand.New(rand.NewPCG(4, 4))
	some := func(v float64) cimeter.Opt[float64] { return cimeter.Some(v) }
	var ms []web.Machine
	for i := range 9 {
		m := web.Machine{Name: fmt.Sprintf("ci-%d", i+1), LastSeen: Now.Add(-time.Duration(rnd.IntN(5)) * time.Second), Interval: 5 * time.Second, CPUs: 16, MemoryBytes: 64 << 30,
			Kernel: "6.8.0-49", Cgroup: "v2", Executors: []string{"docker"}, AgentVersion: "1.0.0", Slots: 4,
			CPUOther: some(0.4 + rnd.Float64()), CPUOwn: some(0.01), MemoryUsed: cimeter.Some(uint64(5+rnd.IntN(9)) << 30), DiskRate: some(float64(rnd.IntN(90)) * mib), NetRate: some(float64(rnd.IntN(30)) * mib),
			Pressure: some(0.01), PressureOf: "cpu", Coverage: some(0.97 + 0.03*rnd.Float64()), OwnCPUMillis: some(6.1), OwnMemoryBytes: cimeter.Some[uint64](31 << 20), SpoolBytes: cimeter.Some[uint64](0)}
		cpu := 0.0
		for j := range rnd.IntN(5) {
			r := Make(4300+10*i+j, Now.Add(-time.Duration(20+rnd.IntN(400))*time.Second), 1)
			r.Machine, r.EndedAt = m.Name, Now
			r.Project = []string{"group/app", "group/site", "data/etl", "infra/terraform"}[rnd.IntN(4)]
			b := web.Running{Row: web.RowOf(r), Stage: []string{"step_script", "restore_cache", "get_sources"}[rnd.IntN(3)], CPUNow: some(0.3 + 1.7*rnd.Float64()),
				MemoryNow: cimeter.Some(uint64(400+rnd.IntN(3600)) << 20), DiskNow: some(float64(rnd.IntN(40)) * mib), NetNow: some(float64(rnd.IntN(10)) * mib)}
			b.Row.Running = true
			for range 30 {
				b.CPUMinute = append(b.CPUMinute, cimeter.Some(int64(400+rnd.IntN(1600))))
			}
			cpu += b.CPUNow.Value
			m.Running = append(m.Running, b)
		}
		m.CPUBuilds = some(cpu)
		m.OS, m.BootedAt, m.AgentSince, m.Containers = "Debian GNU/Linux 12 (bookworm)", Now.Add(-41*24*time.Hour), Now.Add(-3*time.Hour), cimeter.Some(uint64(2*len(m.Running)))
		for j := range 30 {
			share := 0.6 + 0.4*rnd.Float64()
			m.History = append(m.History, web.Moment{At: Now.Add(-time.Duration(30-j) * 20 * time.Second), Builds: share * cpu, Other: 0.4 + rnd.Float64(), Cimeter: 0.006,
				MemoryUsed: share * float64(m.MemoryUsed.Value), Disk: share * m.DiskRate.Value, Net: share * m.NetRate.Value, Pressure: 0.05 * rnd.Float64()})
		}
		ms = append(ms, m)
	}
	ms[4].LastSeen = Now.Add(-42 * time.Second)
	ms[2].Pressure, ms[2].PressureOf = some(0.31), "io"
	ms[5].Coverage, ms[5].Cgroup = some(0.71), "v1"
	ms[1].Pool = "spot"
	// The agent of the version before tells nothing but what runs.
	ms[7] = web.Machine{Name: ms[7].Name, LastSeen: ms[7].LastSeen, Interval: ms[7].Interval, AgentVersion: "0.1.0", Running: ms[7].Running}
	for i := range ms[7].Running {
		r := &ms[7].Running[i]
		r.CPUNow, r.DiskNow, r.NetNow, r.CPUMinute = cimeter.Opt[float64]{}, cimeter.Opt[float64]{}, cimeter.Opt[float64]{}, nil
	}
	return ms
}

// NameMachine gives a machine and what runs on it s for every name.
func NameMachine(m *web.Machine, s string) {
	m.Name, m.Kernel, m.Cgroup, m.Executors, m.AgentVersion, m.PressureOf, m.OS, m.Pool = s, s, s, []string{s}, s, s, s, s
	for i := range m.Running {
		r := &m.Running[i]
		r.Key, r.Project, r.Name, r.Number, r.Machine, r.Stage = cimeter.BuildKey("gitlab", s), s, s, s, s, s
	}
}
