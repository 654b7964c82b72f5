package webtest

import (
	"fmt"
	"time"

	"github.com/cimeter/cimeter"
)

const mib = 1 << 20

// Now is the clock of the tests.
var Now = time.Date(2026, 11, 30, 14, 2, 11, 0, time.UTC)

// phase is a stage in the making.
type phase struct {
	name              string
	seconds, cpu      float64
	cores, memory     float64 // largest cores; MiB
	read, write       float64 // MiB
	receive, transmit float64 // MiB
	alongside         bool
}

func stat(avg, largest float64) *cimeter.Stat {
	return &cimeter.Stat{Avg: avg, Max: max(avg, largest), StdDev: cimeter.Some((max(avg, largest) - avg) / 2)}
}

func (p phase) usage() cimeter.Usage {
	s := max(p.seconds, 0.01)
	rw := func(r, w, peak float64) *cimeter.ReadWrite[cimeter.Stat] {
		return &cimeter.ReadWrite[cimeter.Stat]{Read: *stat(r/s, peak*r/s), Write: *stat(w/s, peak*w/s)}
	}
	return cimeter.Usage{
		WallSeconds:           p.seconds,
		CPUSeconds:            cimeter.CPUSeconds{Total: cimeter.Some(p.cpu), User: cimeter.Some(p.cpu * 0.85), System: cimeter.Some(p.cpu * 0.15)},
		CPUCores:              stat(p.cpu/s, p.cores),
		CPUPeriods:            cimeter.Some(uint64(s * 10)),
		CPUThrottledPeriods:   cimeter.Some[uint64](0),
		CPUThrottledSeconds:   cimeter.Some(0.0),
		MemoryBytes:           &cimeter.MemoryStat{Stat: *stat(p.memory*mib*0.7, p.memory*mib*0.97), Peak: cimeter.Some(uint64(p.memory * mib))},
		MemoryWorkingSetBytes: stat(p.memory*mib*0.6, p.memory*mib*0.9),
		MemoryAnonBytes:       stat(p.memory*mib*0.55, p.memory*mib*0.85),
		IOBytes:               &cimeter.ReadWrite[uint64]{Read: uint64(p.read * mib), Write: uint64(p.write * mib)},
		IOOperations:          &cimeter.ReadWrite[uint64]{Read: uint64(p.read * 12), Write: uint64(p.write * 9)},
		IOBytesPerSecond:      rw(p.read*mib, p.write*mib, 4),
		IOOperationsPerSecond: rw(p.read*12, p.write*9, 5),
		NetworkBytes:          &cimeter.ReceiveTransmit[uint64]{Receive: uint64(p.receive * mib), Transmit: uint64(p.transmit * mib)},
		NetworkBytesPerSecond: &cimeter.ReceiveTransmit[cimeter.Stat]{Receive: *stat(p.receive*mib/s, 3*p.receive*mib/s), Transmit: *stat(p.transmit*mib/s, 3*p.transmit*mib/s)},
		PressureSeconds:       &cimeter.PressureSeconds{CPUSome: cimeter.Some(s * 0.01), MemorySome: cimeter.Some(0.0), IOSome: cimeter.Some(s * 0.012)},
		ProcessesMax:          cimeter.Some[uint64](34),
		OOMKills:              cimeter.Some[uint64](0),
	}
}

// gitlab are the phases of the build that the design shows.
var gitlab = []phase{
	{"prepare", 0.9, 0.1, 0.31, 38, 0.4, 0, 0, 0, false},
	{"get_sources", 4.2, 1.9, 0.92, 88, 40, 102, 60, 1.3, false},
	{"restore_cache", 11.8, 6.4, 1.02, 212, 205, 700, 874, 4, false},
	{"step_script", 214.6, 343.4, 2.00, 3174, 830, 380, 20, 2.4, false},
	{"after_script", 0.3, 0.1, 0.40, 41, 0, 0.1, 0, 0, false},
	{"archive_cache", 19.6, 18.8, 1.01, 141, 620, 400, 2, 400, false},
	{"upload_artifacts", 2.1, 0.4, 0.35, 52, 2, 1.1, 0.2, 13.8, false},
	{"service:postgres", 234, 21.1, 0.71, 402, 90, 298, 1, 0.9, true},
}

// Example is the GitLab build that the design shows.
func Example() *cimeter.Record {
	return Make(4242, Now.Add(-6*time.Minute), 1)
}

// Make is a build like the example, of a number, begun at a time, and by its
// factor larger or smaller.
func Make(n int, started time.Time, factor float64) *cimeter.Record {
	r := &cimeter.Record{Schema: cimeter.RecordSchema, Complete: true, Result: "success", Coverage: cimeter.Some(0.998), Gaps: []cimeter.Gap{}}
	r.Build = cimeter.Build{Key: fmt.Sprintf("gitlab/gitlab.example.com/%d", n), CI: "gitlab", Server: "gitlab.example.com", Project: "group/app",
		Number: fmt.Sprint(n), Name: "build-and-test", Attempt: 1, Pipeline: fmt.Sprint(n / 4), PipelineStage: "test", Ref: "main",
		SHA: fmt.Sprintf("%08x7e4d1c9a%08x", uint32(n)*2654435761, uint32(n)*40503), Event: "push",
		URL: fmt.Sprintf("https://gitlab.example.com/group/app/-/jobs/%d", n), Machine: "ci-7",
		Runner: cimeter.Runner{ID: "s_a1b2c3d4", ShortToken: "Zx8k2mQpL", Name: "docker-1"}}
	r.StartedAt = started.Truncate(time.Millisecond)
	r.QueuedAt = r.StartedAt.Add(-3100 * time.Millisecond)
	r.Limits = &cimeter.Limits{CPUCores: cimeter.Some(2.0), MemoryBytes: cimeter.Some[uint64](4096 * mib), MemorySetBy: "/docker/094e3b1cde6e"}
	fill(r, gitlab, factor, uint64(n))
	u := &stage(r, "step_script").Usage
	periods := u.CPUPeriods.Value
	u.CPUThrottledPeriods, u.CPUThrottledSeconds = cimeter.Some(periods*18/100), cimeter.Some(38.2*factor)
	r.Usage.CPUThrottledSeconds = u.CPUThrottledSeconds
	r.Verdicts = []cimeter.Verdict{{Kind: "throttled", Stage: "step_script", Evidence: fmt.Sprintf("throttled in %d of %d periods (18 %%), for %.1f s", periods*18/100, periods, 38.2*factor)}}
	return r
}
