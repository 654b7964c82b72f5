package summary_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/summary"
)

var update = flag.Bool("update", false, "write the golden files anew")

const mib = 1 << 20

func stat(avg, largest, sd float64) *cimeter.Stat {
	s := &cimeter.Stat{Avg: avg, Max: largest}
	if sd >= 0 {
		s.StdDev = cimeter.Some(sd)
	}
	return s
}

type row struct {
	name               string
	time, cpu          float64
	avg, largest, sd   float64 // sd < 0: not known
	memory, disk, nets float64 // MiB
}

func (w row) usage() cimeter.Usage {
	return cimeter.Usage{
		WallSeconds:  w.time,
		CPUSeconds:   cimeter.CPUSeconds{Total: cimeter.Some(w.cpu)},
		CPUCores:     stat(w.avg, w.largest, w.sd),
		MemoryBytes:  &cimeter.MemoryStat{Peak: cimeter.Some(uint64(w.memory * mib))},
		IOBytes:      &cimeter.ReadWrite[uint64]{Write: uint64(w.disk * mib)},
		NetworkBytes: &cimeter.ReceiveTransmit[uint64]{Receive: uint64(w.nets * mib)},
	}
}

// example is the build whose receipt the design of summaries shows.
func example() *cimeter.Record {
	r := &cimeter.Record{Schema: 1, Complete: true, Result: "success", Coverage: cimeter.Some(0.998)}
	r.Build = cimeter.Build{Key: "gitlab/gitlab.example.com/4242", CI: "gitlab", Server: "gitlab.example.com", Project: "group/app",
		Number: "4242", Name: "build-and-test", Machine: "ci-7", Runner: cimeter.Runner{Name: "docker-1"}}
	r.StartedAt = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	r.QueuedAt = r.StartedAt.Add(-3100 * time.Millisecond)
	r.EndedAt = r.StartedAt.Add(253500 * time.Millisecond)
	r.Limits = &cimeter.Limits{CPUCores: cimeter.Some(2.0), MemoryBytes: cimeter.Some[uint64](4096 * mib), MemorySetBy: "/docker/094e3b1cde6e09ff6b0e2cc1b8d1f0e7d7a1"}
	for _, w := range []row{
		{name: "prepare", time: 0.9, cpu: 0.1, avg: 0.11, largest: 0.31, sd: 0.10, memory: 38, disk: 0.4, nets: 0},
		{name: "get_sources", time: 4.2, cpu: 1.9, avg: 0.45, largest: 0.92, sd: 0.21, memory: 88, disk: 142, nets: 61.3},
		{name: "restore_cache", time: 11.8, cpu: 6.4, avg: 0.54, largest: 1.02, sd: 0.33, memory: 212, disk: 905, nets: 874},
		{name: "step_script", time: 214.6, cpu: 343.4, avg: 1.60, largest: 2.00, sd: 0.44, memory: 3174, disk: 1210, nets: 22.4},
		{name: "service:postgres", time: 234, cpu: 21.1, avg: 0.09, largest: 0.71, sd: 0.11, memory: 402, disk: 388, nets: 1.9},
		{name: "after_script", time: 0.3, cpu: 0.1, avg: 0.33, largest: 0.40, sd: -1, memory: 41, disk: 0.1, nets: 0},
		{name: "archive_cache", time: 19.6, cpu: 18.8, avg: 0.96, largest: 1.01, sd: 0.08, memory: 141, disk: 1020, nets: 402},
		{name: "upload_artifacts", time: 2.1, cpu: 0.4, avg: 0.19, largest: 0.35, sd: 0.12, memory: 52, disk: 3.1, nets: 14},
	} {
		r.Stages = append(r.Stages, cimeter.Stage{Name: w.name, Attempt: 1, Alongside: strings.HasPrefix(w.name, "service:"), Usage: w.usage()})
	}
	u := &r.Stages[3].Usage
	u.CPUPeriods, u.CPUThrottledPeriods = cimeter.Some[uint64](2146), cimeter.Some[uint64](386)
	r.Usage = row{time: 253.5, cpu: 392.2, avg: 1.55, largest: 2.00, sd: 0.51, memory: 3174}.usage()
	r.Usage.CPUThrottledSeconds = cimeter.Some(38.2)
	r.Usage.IOBytes = &cimeter.ReadWrite[uint64]{Read: 16206 * mib / 10, Write: 2048 * mib}
	r.Usage.IOOperations = &cimeter.ReadWrite[uint64]{Read: 21210, Write: 20000}
	r.Usage.IOOperationsPerSecond = &cimeter.ReadWrite[cimeter.Stat]{Read: *stat(83, 2140, 1), Write: *stat(80, 900, 1)}
	r.Usage.NetworkBytes = &cimeter.ReceiveTransmit[uint64]{Receive: 12086 * mib / 10, Transmit: 167 * mib}
	r.Usage.NetworkBytesPerSecond = &cimeter.ReceiveTransmit[cimeter.Stat]{Receive: *stat(4.8*mib, 96*mib, 1), Transmit: *stat(0.6*mib, 30*mib, 1)}
	return r
}

// killed is the example killed in its script.
func killed() *cimeter.Record {
	r := example()
	r.Result = "failed"
	r.Stages[3].Usage.MemoryBytes.Peak = cimeter.Some[uint64](4096 * mib)
	r.Usage.MemoryBytes.Peak = cimeter.Some[uint64](4096 * mib)
	r.Verdicts = []cimeter.Verdict{{Kind: "oom", Stage: "step_script", Evidence: "killed at 4.0 of 4.0 GiB"}}
	return r
}

// single is a command that cimeter run metered.
func single() *cimeter.Record {
	r := example()
	r.Stages = r.Stages[3:4]
	return r
}

// absent is a build of which the kernel told nothing but CPU time.
func absent() *cimeter.Record {
	r := example()
	r.Limits, r.Coverage, r.QueuedAt = nil, cimeter.Opt[float64]{}, time.Time{}
	r.Complete, r.Gaps = false, []cimeter.Gap{{To: r.StartedAt, Reason: cimeter.GapBeforeAgent}, {Reason: cimeter.GapMissedEnd}}
	bare := func(u *cimeter.Usage) {
		*u = cimeter.Usage{WallSeconds: u.WallSeconds, CPUSeconds: u.CPUSeconds}
	}
	bare(&r.Usage)
	for i := range r.Stages {
		bare(&r.Stages[i].Usage)
	}
	r.Stages[1].Usage.CPUSeconds = cimeter.CPUSeconds{}
	return r
}

// nothing is a build of which nothing was read at all.
func nothing() *cimeter.Record {
	return &cimeter.Record{Complete: true}
}

func text(t *testing.T, r *cimeter.Record, o summary.TextOptions) string {
	t.Helper()
	var b strings.Builder
	if err := summary.Text(&b, r, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\ngot\n%s\nwant\n%s", path, got, want)
	}
}

// command is one that cimeter run metered on a machine without limits.
func command() *cimeter.Record {
	r := example()
	r.Build = cimeter.Build{CI: "run", Name: "go", Machine: "ci-7"}
	r.Limits, r.Coverage, r.QueuedAt = nil, cimeter.Opt[float64]{}, time.Time{}
	r.Usage = row{time: 0.412, cpu: 0.0042, avg: 0.61, largest: 1, sd: -1, memory: 1023.4, disk: 30}.usage()
	r.Usage.NetworkBytes = nil
	r.Stages = []cimeter.Stage{{Name: "command", Attempt: 1, ExitCode: cimeter.Some(3), Usage: r.Usage}}
	return r
}

const page = "https://cimeter.example.com/builds/gitlab/gitlab.example.com/4242"

func TestText(t *testing.T) {
	for name, r := range map[string]*cimeter.Record{"receipt": example(), "oom": killed(), "single": single(), "absent": absent(), "nothing": nothing()} {
		t.Run(name, func(t *testing.T) {
			golden(t, name+".txt", text(t, r, summary.TextOptions{UTF8: true, URL: page}))
		})
	}
}

func TestText_Command(t *testing.T) {
	machine := cimeter.Limits{CPUCores: cimeter.Some(2.0), MemoryBytes: cimeter.Some[uint64](8 << 30)}
	for name, o := range map[string]summary.TextOptions{
		"command": {UTF8: true, Machine: machine}, "command-ascii": {Machine: machine}, "command-unknown-machine": {},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, name+".txt", text(t, command(), o))
		})
	}
}

// Without a cgroup of its own a command's processes tell what no file backs.
func TestText_CommandWithoutCgroup(t *testing.T) {
	r := command()
	r.Usage.MemoryAnonBytes, r.Usage.MemoryBytes = &cimeter.Stat{Avg: 20 * mib, Max: 22.5 * mib}, nil
	got := text(t, r, summary.TextOptions{})
	for _, want := range []string{"(0.61 cores), memory 22.5 MiB anon, disk ", "\n  memory  22.5 MiB anonymous, the largest sample\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %q", got, want)
		}
	}
}

// What is less than half a unit is not shown as nothing.
func TestText_LittleMemory(t *testing.T) {
	r := example()
	r.Stages[0].Usage.MemoryBytes = &cimeter.MemoryStat{Peak: cimeter.Some[uint64](300 << 10)}
	r.Stages[1].Usage.MemoryBytes = &cimeter.MemoryStat{Peak: cimeter.Some[uint64](0)}
	got := text(t, r, summary.TextOptions{})
	for _, want := range []string{"0.10      0.3      0.4", "0.21        0    142.0"} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %q", got, want)
		}
	}
}

func TestLines(t *testing.T) {
	for name, r := range map[string]*cimeter.Record{"receipt": example(), "oom": killed(), "absent": absent(), "nothing": nothing()} {
		t.Run(name, func(t *testing.T) {
			golden(t, name+".line", summary.Short(r)+"\n"+summary.Logfmt(r)+"\n")
			var b strings.Builder
			if err := summary.Markdown(&b, r); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".md", b.String())
		})
	}
}

func TestJSON(t *testing.T) {
	var b strings.Builder
	if err := summary.JSON(&b, example()); err != nil {
		t.Fatal(err)
	}
	var got cimeter.Record
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Key != example().Key || len(got.Stages) != 8 {
		t.Errorf("got %s", b.String())
	}
}
