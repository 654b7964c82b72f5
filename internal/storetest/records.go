package storetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
)

// Base is the time that the records of tests end before: a midnight, so that
// what is of one day is easily told.
var Base = time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)

// Maker makes records as a fleet would: few projects with most of the builds,
// absent readings, several stages, a trace.
type Maker struct {
	Random *rand.Rand
	Span   time.Duration // in which they end, before Base
	Stages int           // of each; 0: one to four
	Steps  int           // of the trace; 0: some have none
	Small  bool          // few names, so that filters meet often
}

var stageNames = []string{"prepare", "get_sources", "restore_cache", "step_script", "after_script", "archive_cache", "upload_artifacts", "postgres", "lint", "test"}

// NewMaker makes a Maker of few names whose records are the same for a seed.
func NewMaker(seed uint64, span time.Duration) *Maker {
	return &Maker{Random: rand.New(rand.NewPCG(seed, 1)), Span: span, Small: true}
}

// Record makes record n.
func (m *Maker) Record(n int) *cimeter.Record {
	r := m.Random
	projects, jobs, machines := 200, 8, 100
	if m.Small {
		projects, jobs, machines = 4, 3, 3
	}
	pick := func(n int) int { return int(float64(n) * math.Pow(r.Float64(), 2)) } // the first ones most
	project := fmt.Sprintf("group-%d/app-%d", pick(projects)%10, pick(projects))
	machine := fmt.Sprintf("ci-%d", r.IntN(machines))
	// Whole milliseconds, so that ends collide now and then in a small span.
	end := Base.Add(-time.Duration(r.Int64N(int64(m.Span)))).Truncate(time.Millisecond)
	wall := time.Duration(1+r.IntN(600_000)) * time.Millisecond
	rec := &cimeter.Record{
		Schema: cimeter.RecordSchema,
		Build: cimeter.Build{
			Key: cimeter.BuildKey("gitlab", "gitlab.example.com", fmt.Sprint(100000+n)), CI: []string{"gitlab", "gitlab", "gitlab", "drone", "woodpecker"}[r.IntN(5)],
			Server: "gitlab.example.com", Project: project, Number: fmt.Sprint(100000 + n), Name: []string{"build", "test", "lint", "deploy", "e2e", "docs", "package", "scan"}[pick(jobs)],
			Attempt: 1, Pipeline: fmt.Sprint(n / 5), PipelineStage: "test", Ref: []string{"main", "main", "main", "feature/a", "fix-" + fmt.Sprint(r.IntN(50))}[r.IntN(5)],
			SHA: fmt.Sprintf("%040x", r.Uint64()), Event: []string{"push", "merge_request_event"}[r.IntN(2)], URL: fmt.Sprintf("https://gitlab.example.com/%s/-/jobs/%d", project, n),
			Machine: machine, Runner: cimeter.Runner{ID: "s_" + machine, ShortToken: "Zx8" + machine, Name: "docker-" + machine},
		},
		StartedAt: end.Add(-wall), EndedAt: end, Result: []string{"success", "success", "success", "success", "failed", "canceled", ""}[r.IntN(7)],
		Complete: true, Gaps: []cimeter.Gap{}, Coverage: cimeter.Some(0.99),
		Usage: m.usage(wall), Stages: []cimeter.Stage{},
	}
	if r.IntN(4) > 0 {
		rec.QueuedAt = rec.StartedAt.Add(-time.Duration(r.IntN(60000)) * time.Millisecond)
	}
	if r.IntN(2) == 0 {
		rec.Limits = &cimeter.Limits{CPUCores: cimeter.Some(2.0), MemoryBytes: cimeter.Some(uint64(2 << 30)), MemorySetBy: "/docker/094e"}
	}
	if r.IntN(10) == 0 {
		rec.Usage.OOMKills = cimeter.Some(uint64(1))
		rec.Verdicts = []cimeter.Verdict{{Kind: "oom", Stage: "step_script", Evidence: "killed at 2.0 of 2.0 GiB set by /docker/094e"}}
		rec.Parts = []cimeter.Part{{Kind: cimeter.PartContainer, ID: "0123", Counted: true, Attribution: cimeter.AttributedNested, Confidence: cimeter.Certain, CPUSeconds: cimeter.Some(0.5)}}
	}
	stages := m.Stages
	if stages == 0 {
		stages = 1 + r.IntN(4)
	}
	first := r.IntN(3)
	for i := range stages {
		from := rec.StartedAt.Add(wall * time.Duration(i) / time.Duration(stages))
		rec.Stages = append(rec.Stages, cimeter.Stage{Name: stageNames[(first+i)%len(stageNames)], Attempt: 1, Boundary: cimeter.BoundaryContainer,
			StartedAt: from, EndedAt: from.Add(wall / time.Duration(stages)), ExitCode: cimeter.Some(0), Usage: m.usage(wall / time.Duration(stages))})
	}
	if m.Steps > 0 || r.IntN(2) == 0 {
		rec.Trace = m.trace(max(m.Steps, 5), wall)
	}
	return rec
}

// Put is record n as it is put.
func (m *Maker) Put(n int) store.Put {
	r := m.Record(n)
	return store.Put{Record: r, ReceivedAt: r.EndedAt.Add(2 * time.Second), Agent: r.Machine}
}

// Puts are records first to first+n-1.
func (m *Maker) Puts(first, n int) []store.Put {
	out := make([]store.Put, n)
	for i := range out {
		out[i] = m.Put(first + i)
	}
	return out
}

func (m *Maker) usage(wall time.Duration) cimeter.Usage {
	r := m.Random
	stat := func(max float64) cimeter.Stat {
		return cimeter.Stat{Avg: round(max * r.Float64() / 2), Max: round(max), StdDev: cimeter.Some(round(max / 5))}
	}
	cpu := stat(3 * r.Float64())
	mem := stat(float64(r.IntN(2 << 30)))
	u := cimeter.Usage{WallSeconds: wall.Seconds(), CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(round(wall.Seconds() * cpu.Avg)), User: cimeter.Some(1.5), System: cimeter.Some(0.25)},
		CPUCores: &cpu, CPUThrottledSeconds: cimeter.Some(round(r.Float64() * 10)), MemoryBytes: &cimeter.MemoryStat{Stat: mem, Peak: cimeter.Some(uint64(mem.Max))},
		MemoryWorkingSetBytes: &mem, ProcessesMax: cimeter.Some(uint64(r.IntN(100))), OOMKills: cimeter.Some(uint64(0))}
	if r.IntN(8) > 0 {
		rate := stat(1e6)
		u.IOBytes = &cimeter.ReadWrite[uint64]{Read: r.Uint64N(1 << 30), Write: r.Uint64N(1 << 30)}
		u.IOOperations = &cimeter.ReadWrite[uint64]{Read: r.Uint64N(1 << 20), Write: r.Uint64N(1 << 20)}
		u.IOBytesPerSecond = &cimeter.ReadWrite[cimeter.Stat]{Read: rate, Write: rate}
		u.IOOperationsPerSecond = &cimeter.ReadWrite[cimeter.Stat]{Read: rate, Write: rate}
	}
	if r.IntN(3) > 0 {
		rate := stat(1e6)
		u.NetworkBytes = &cimeter.ReceiveTransmit[uint64]{Receive: r.Uint64N(1 << 30), Transmit: r.Uint64N(1 << 30)}
		u.NetworkBytesPerSecond = &cimeter.ReceiveTransmit[cimeter.Stat]{Receive: rate, Transmit: rate}
	}
	if r.IntN(10) == 0 {
		u.CPUSeconds, u.MemoryBytes = cimeter.CPUSeconds{}, nil
	}
	return u
}

func round(v float64) float64 { return math.Round(v*1000) / 1000 }

func (m *Maker) trace(steps int, wall time.Duration) *cimeter.Trace {
	column := func(max int64) []cimeter.Opt[int64] {
		out := make([]cimeter.Opt[int64], steps)
		for i := range out {
			if m.Random.IntN(10) > 0 {
				out[i] = cimeter.Some(m.Random.Int64N(max))
			}
		}
		return out
	}
	return &cimeter.Trace{StepSeconds: wall.Seconds() / float64(steps), CPUMillicores: column(2000), CPUMillicoresMax: column(4000), MemoryKiB: column(4 << 20),
		MemoryWorkingSetKiB: column(4 << 20), IOReadBytesPerSecond: column(1e8), IOWriteBytesPerSecond: column(1e8), NetworkReceivePerSec: column(1e8), NetworkTransmitPerSec: column(1e8)}
}
