package attrib_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/tally"
)

var t0 = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return t0.Add(time.Duration(seconds * float64(time.Second))) }

func newLedger(t *tally.Table) *attrib.Ledger {
	return attrib.New(attrib.Options{
		Machine: "ci-7", Interval: time.Second, Grace: 2 * time.Second, Quiet: time.Minute, Tally: t,
	})
}

func identity(key, stage string, role cimeter.Role) cimeter.Identity {
	return cimeter.Identity{
		Build: cimeter.Build{Key: key, CI: "drone", Project: "group/app", Runner: cimeter.Runner{Name: "r1"}},
		Role:  role, Stage: stage, Group: "net-" + key,
	}
}

// cpu returns a sample of CPU time in seconds and memory in bytes.
func cpu(seconds float64, memory uint64) *cimeter.Sample {
	var s cimeter.Sample
	s.SetCounter(cimeter.CPUTotal, uint64(seconds*1e9))
	s.SetGauge(cimeter.MemoryCurrent, memory)
	s.SetGauge(cimeter.MemoryPeak, memory)
	return &s
}

func mustBind(t *testing.T, l *attrib.Ledger, s *attrib.Segment, now time.Time, id cimeter.Identity) {
	t.Helper()
	if err := l.Bind(s, now, "name", id); err != nil {
		t.Fatal(err)
	}
}

// only returns the one record of the builds that are over at now.
func only(t *testing.T, l *attrib.Ledger, now time.Time) *cimeter.Record {
	t.Helper()
	r := l.Finish(now)
	if len(r) != 1 {
		t.Fatalf("%d records, want 1", len(r))
	}
	return r[0]
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestLedger_oneStage(t *testing.T) {
	table := tally.New(tally.Options{})
	l := newLedger(table)
	s := l.Open("c1", "/docker/c1", 1, at(0), true)
	mustBind(t, l, s, at(0), identity("k", "compile", cimeter.RoleBuild))
	l.SetLimits(s, cimeter.Limits{CPUCores: cimeter.Some(2.0)})
	for i, use := range []float64{1, 3, 3} { // 1, 2 and 0 cores
		l.Advance(s, cpu(use, uint64(100*(i+1))))
		l.Tick(at(float64(i+1)), cimeter.Some(uint64((4+4*float64(i))*1e9)))
	}
	l.Advance(s, cpu(3.5, 50))
	if r := l.Running(at(3.5)); len(r) != 1 || r[0].Usage.CPUSeconds.Total.Value != 3.5 || r[0].Usage.WallSeconds != 3.5 ||
		len(r[0].Stages) != 1 || r[0].Stages[0].Usage.CPUSeconds.Total.Value != 3.5 || r[0].Result != "" ||
		r[0].Stage != "compile" || r[0].MemoryBytes != cimeter.Some(uint64(300)) {
		t.Errorf("running: %+v", r)
	}
	l.Close(s, at(3.5), cimeter.Opt[int]{})
	l.SetExit(s, at(3.6), 0)
	l.SetExit(s, at(3.7), 137) // what is known stays
	l.Gone("c1")
	if r := l.Finish(at(5)); len(r) != 0 {
		t.Fatalf("over %v before the grace time", r[0].Key)
	}
	r := only(t, l, at(5.5))

	near(t, "cpu seconds", r.Usage.CPUSeconds.Total.Value, 3.5)
	near(t, "wall", r.Usage.WallSeconds, 3.5)
	near(t, "average cores", r.Usage.CPUCores.Avg, 1)
	near(t, "maximum cores", r.Usage.CPUCores.Max, 2)
	// 1, 2, 0 cores for a second each, 1 for half a second: variance 2/3.5
	near(t, "deviation", r.Usage.CPUCores.StdDev.Value, math.Sqrt(2/3.5))
	near(t, "memory peak", float64(r.Usage.MemoryBytes.Peak.Value), 300)
	near(t, "coverage", r.Coverage.Value, 2.0/8) // the first tick is its base
	if r.Result != "success" || !r.Complete || r.Machine != "ci-7" || r.Limits.CPUCores.Value != 2 {
		t.Errorf("record %+v", r)
	}
	if len(r.Stages) != 1 || r.Stages[0].Name != "compile" || r.Stages[0].Boundary != cimeter.BoundaryContainer {
		t.Fatalf("stages %+v", r.Stages)
	}
	if r.Usage.IOBytes != nil || r.Usage.NetworkBytes != nil || r.Usage.OOMKills.Known {
		t.Error("what no sample had is in the usage")
	}
	got, ok := table.Stage(tally.Labels{CI: "drone", Project: "group/app", Machine: "ci-7", Runner: "r1", Stage: "compile"}).Counter(cimeter.CPUTotal)
	if !ok || got != 3.5e9 {
		t.Errorf("counter %d, want 3.5e9", got)
	}
}

// Whatever is sampled when, in whatever order segments begin, split, are bound
// and end: the stages' totals are the build's, and the counters', and all are
// what the kernel showed.
func TestLedger_sums(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for round := range 300 {
		table := tally.New(tally.Options{})
		l := newLedger(table)
		type seg struct {
			s      *attrib.Segment
			used   uint64
			bound  bool
			closed bool
			name   string
		}
		var segs []*seg
		now, want := 0.0, uint64(0)
		names := []string{"a", "b", "c"}
		for range 40 {
			now += rng.Float64()
			switch n := rng.IntN(6); {
			case n == 0 && len(segs) < 8:
				name := string(rune('a'+len(segs))) + "-container"
				segs = append(segs, &seg{s: l.Open(name, "/"+name, uint64(len(segs)), at(now), true), name: names[rng.IntN(3)]})
			case n == 1:
				l.Tick(at(now), cimeter.Opt[uint64]{})
			case len(segs) > 0:
				g := segs[rng.IntN(len(segs))]
				if !g.bound && rng.IntN(2) == 0 {
					g.bound = true
					mustBind(t, l, g.s, at(now), identity("k", g.name, cimeter.RoleBuild))
				}
				if g.closed {
					continue
				}
				d := rng.Uint64N(1e9)
				g.used += d
				want += d
				var s cimeter.Sample
				s.SetCounter(cimeter.CPUTotal, g.used)
				s.SetCounter(cimeter.IOReadBytes, g.used/3)
				l.Advance(g.s, &s)
				switch rng.IntN(6) {
				case 0:
					g.closed = true
					l.Close(g.s, at(now), cimeter.Opt[int]{})
				case 1:
					l.Enter(g.s, at(now), names[rng.IntN(3)], cimeter.BoundaryCommand, &s)
				}
			}
		}
		io := uint64(0)
		for _, g := range segs {
			if !g.bound {
				mustBind(t, l, g.s, at(now), identity("k", g.name, cimeter.RoleBuild))
			}
			l.Close(g.s, at(now), cimeter.Opt[int]{})
			l.Gone(g.s.Container())
			io += g.used / 3
		}
		if len(segs) == 0 {
			continue
		}
		r := only(t, l, at(now+10))
		stages, reads := 0.0, uint64(0)
		for _, s := range r.Stages {
			stages += s.Usage.CPUSeconds.Total.Value
			if s.Usage.IOBytes != nil {
				reads += s.Usage.IOBytes.Read
			}
		}
		counters := uint64(0)
		for _, s := range table.Stages() {
			v, _ := s.Counter(cimeter.CPUTotal)
			counters += v
		}
		if got := r.Usage.CPUSeconds.Total.Value; math.Abs(got-float64(want)/1e9) > 1e-6 || math.Abs(stages-got) > 1e-6 || counters != want {
			t.Fatalf("seed %d round %d: build %v s, stages %v s, counters %d ns, want %d ns", seed, round, got, stages, counters, want)
		}
		if r.Usage.IOBytes != nil && (r.Usage.IOBytes.Read != io || reads != io) {
			t.Fatalf("seed %d round %d: read %d bytes, stages %d, want %d", seed, round, r.Usage.IOBytes.Read, reads, io)
		}
	}
}

func TestLedger_attemptsAndServices(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	run := func(container, stage string, role cimeter.Role, alongside bool, from, to float64, exit int) {
		s := l.Open(container, "/"+container, 1, at(from), true)
		id := identity("k", stage, role)
		id.Alongside = alongside
		mustBind(t, l, s, at(from), id)
		l.Advance(s, cpu(to-from, 10))
		l.Close(s, at(to), cimeter.Some(exit))
	}
	run("init1", "prepare_executor", cimeter.RoleCache, false, 0, 1, 0)
	run("init2", "prepare_executor", cimeter.RoleWait, false, 2, 3, 0)
	run("db", "service:db", cimeter.RoleService, true, 3, 20, 137)
	run("step", "test", cimeter.RoleBuild, false, 4, 6, 1)
	run("step", "test", cimeter.RoleBuild, false, 7, 9, 0)
	run("step", "after_script", cimeter.RoleBuild, false, 9, 10, 1)
	r := only(t, l, at(200))
	var got []string
	for _, s := range r.Stages {
		got = append(got, s.Name+" "+string(rune('0'+s.Attempt)))
	}
	if want := "prepare_executor 1,test 1,test 2,after_script 1,service:db 1"; strings.Join(got, ",") != want {
		t.Fatalf("stages %v, want %s", got, want)
	}
	if r.Result != "success" {
		t.Errorf("result %q: the last attempt of test passed, and neither after_script nor the service counts", r.Result)
	}
	if p := r.Stages[0]; p.Usage.WallSeconds != 3 || p.Usage.CPUSeconds.Total.Value != 2 {
		t.Errorf("merged stage: %v s, %v s CPU; want 3 and 2", p.Usage.WallSeconds, p.Usage.CPUSeconds.Total.Value)
	}
}

// A runner may pull an image for minutes after it has prepared volumes, with no
// container at all.
func TestLedger_preparationIsNotTheBuild(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	s := l.Open("init", "/init", 1, at(0), true)
	mustBind(t, l, s, at(0), identity("k", "prepare_executor", cimeter.RoleCache))
	l.Close(s, at(1), cimeter.Some(0))
	l.Gone("init")
	if len(l.Finish(at(50))) != 0 {
		t.Fatal("over before its work began")
	}
	s = l.Open("step", "/step", 2, at(51), true)
	mustBind(t, l, s, at(51), identity("k", "step", cimeter.RoleBuild))
	l.Close(s, at(52), cimeter.Some(0))
	l.Gone("step")
	if r := only(t, l, at(55)); len(r.Stages) != 2 {
		t.Fatalf("%d stages, want 2", len(r.Stages))
	}
	t.Run("what comes after the end is refused", func(t *testing.T) {
		s := l.Open("late", "/late", 3, at(60), true)
		if err := l.Bind(s, at(60), "late", identity("k", "step", cimeter.RoleBuild)); !errors.Is(err, cimeter.ErrUnavailable) {
			t.Fatalf("error %v, want unavailable", err)
		}
	})
}

func TestLedger_Miss(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	id := identity("k", "prepare_executor", cimeter.RoleCache)
	l.Miss(at(1), id, cimeter.Gap{From: at(0), To: at(1), Reason: cimeter.GapMissedSegment})
	s := l.Open("step", "/step", 2, at(2), true)
	mustBind(t, l, s, at(2), identity("k", "step", cimeter.RoleBuild))
	l.Close(s, at(3), cimeter.Some(0))
	l.Gone("step")
	r := only(t, l, at(10))
	if r.Complete || len(r.Gaps) != 1 || r.Gaps[0].Reason != cimeter.GapMissedSegment {
		t.Errorf("complete %v, gaps %+v", r.Complete, r.Gaps)
	}
}

// A build of which nothing was read is over like any other.
func TestLedger_Miss_all(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	l.Miss(at(1), identity("k", "step", cimeter.RoleBuild), cimeter.Gap{From: at(0), To: at(1), Reason: cimeter.GapMissedSegment})
	if r := only(t, l, at(4)); r.Complete || len(r.Stages) != 0 || r.Usage.CPUSeconds.Total.Known {
		t.Errorf("complete %v, %d stages, CPU %+v", r.Complete, len(r.Stages), r.Usage.CPUSeconds)
	}
}

func TestLedger_disputed(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	mine := l.Open("mine", "/mine", 1, at(0), true)
	mustBind(t, l, mine, at(0), identity("k", "s", cimeter.RoleBuild))
	t.Run("of another group", func(t *testing.T) {
		s := l.Open("other", "/other", 2, at(1), true)
		id := identity("k", "s", cimeter.RoleBuild)
		id.Group = "net-of-another"
		l.Advance(s, cpu(100, 1))
		if err := l.Bind(s, at(1), "other", id); !errors.Is(err, cimeter.ErrConflict) {
			t.Fatalf("error %v, want a conflict", err)
		}
		if v := l.Running(at(1))[0].Verdicts; len(v) != 1 || v[0].Kind != "disputed" {
			t.Errorf("verdicts %+v of a build that one container claims", v)
		}
	})
	t.Run("in doubt", func(t *testing.T) {
		s := l.Open("forged", "/forged", 3, at(1), true)
		id := identity("k", "s", cimeter.RoleBuild)
		id.Doubt = "the name denies the label"
		if err := l.Bind(s, at(1), "forged", id); !errors.Is(err, cimeter.ErrConflict) || !strings.Contains(err.Error(), id.Doubt) {
			t.Fatalf("error %v, want a conflict that says why", err)
		}
	})
	l.Advance(mine, cpu(1, 1))
	l.Close(mine, at(2), cimeter.Some(0))
	r := only(t, l, at(100))
	near(t, "cpu", r.Usage.CPUSeconds.Total.Value, 1)
	if len(r.Verdicts) != 1 || r.Verdicts[0].Kind != "disputed" {
		t.Errorf("verdicts %+v", r.Verdicts)
	}
}

func TestLedger_quietAndGone(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	s := l.Open("c", "/c", 1, at(0), true)
	mustBind(t, l, s, at(0), identity("k", "s", cimeter.RoleBuild))
	l.Close(s, at(1), cimeter.Opt[int]{})
	if len(l.Finish(at(30))) != 0 {
		t.Fatal("over while its container exists and is quiet for less than Quiet")
	}
	if len(l.Finish(at(61))) != 1 {
		t.Fatal("not over after Quiet")
	}
}

func TestLedger_oomAndThrottling(t *testing.T) {
	for nested, killed := range []string{"a process was killed", "2 processes were killed"} {
		oomAndThrottling(t, uint64(nested), killed)
	}
}

func oomAndThrottling(t *testing.T, nested uint64, killed string) {
	t.Helper()
	l := newLedger(tally.New(tally.Options{}))
	s := l.Open("c", "/docker/c", 1, at(0), true)
	mustBind(t, l, s, at(0), identity("k", "step_script", cimeter.RoleBuild))
	l.SetLimits(s, cimeter.Limits{MemoryBytes: cimeter.Some(uint64(64 << 20)), MemorySetBy: "/docker/c"})
	sample := cpu(1, 64<<20)
	sample.SetCounter(cimeter.OOMKills, 1)
	sample.SetCounter(cimeter.OOMKillsNested, nested)
	sample.SetCounter(cimeter.CPUPeriods, 100)
	sample.SetCounter(cimeter.CPUThrottledPeriods, 40)
	sample.SetCounter(cimeter.CPUThrottled, 3e9)
	l.Advance(s, sample)
	l.Close(s, at(2), cimeter.Some(0)) // pid 1 survived (cases E10)
	l.Gone("c")
	r := only(t, l, at(10))
	want := []cimeter.Verdict{
		{Kind: "oom", Stage: "step_script", Evidence: killed + " at 64.0 MiB of 64.0 MiB set by /docker/c"},
		{Kind: "throttled", Stage: "step_script", Evidence: "throttled in 40 of 100 periods (40 %), for 3.0 s"},
	}
	if len(r.Verdicts) != 2 || r.Verdicts[0] != want[0] || r.Verdicts[1] != want[1] {
		t.Errorf("verdicts %+v, want %+v", r.Verdicts, want)
	}
}

func TestLedger_gaps(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	s := l.Open("c", "/c", 1, at(0), false)
	l.Advance(s, cpu(50, 1)) // spent before: only the base
	mustBind(t, l, s, at(0), identity("k", "s", cimeter.RoleBuild))
	l.Tick(at(0), cimeter.Opt[uint64]{})
	l.Advance(s, cpu(51, 1))
	l.Tick(at(1), cimeter.Opt[uint64]{})
	l.Advance(s, cpu(251, 1)) // the machine slept: 200 s of CPU in two minutes
	l.Tick(at(121), cimeter.Opt[uint64]{})
	l.Advance(s, cpu(252, 1))
	l.Tick(at(122), cimeter.Opt[uint64]{})
	l.Close(s, at(122), cimeter.Opt[int]{})
	l.Gone("c")
	r := only(t, l, at(200))
	near(t, "cpu", r.Usage.CPUSeconds.Total.Value, 202)
	near(t, "maximum", r.Usage.CPUCores.Max, 202.0/122) // no rate is taken over the gap
	if r.Complete || len(r.Gaps) != 2 || r.Gaps[0].Reason != cimeter.GapBeforeAgent || r.Gaps[1].Reason != cimeter.GapLongInterval {
		t.Errorf("complete %v, gaps %+v", r.Complete, r.Gaps)
	}
}

func TestLedger_traceBound(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	s := l.Open("c", "/c", 1, at(0), true)
	mustBind(t, l, s, at(0), identity("k", "s", cimeter.RoleBuild))
	rng := rand.New(rand.NewPCG(1, 2))
	var sample cimeter.Sample
	var used [cimeter.NumCounters]uint64
	total := 0.0
	for i := 1; i <= 5000; i++ {
		for c := range cimeter.NumCounters {
			used[c] += rng.Uint64N(64e9)
			sample.SetCounter(c, used[c])
		}
		sample.SetGauge(cimeter.MemoryCurrent, 1<<40+rng.Uint64N(1<<40))
		sample.SetGauge(cimeter.MemoryWorkingSet, 1<<40+rng.Uint64N(1<<40))
		l.Advance(s, &sample)
		l.Tick(at(float64(i)), cimeter.Opt[uint64]{})
	}
	total = float64(used[cimeter.CPUTotal]) / 1e9
	l.Close(s, at(5000), cimeter.Opt[int]{})
	l.Gone("c")
	r := only(t, l, at(6000))
	b, err := json.Marshal(r.Trace)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 10<<10 {
		t.Errorf("trace of %d bytes, want at most 10 KiB", len(b))
	}
	if n := len(r.Trace.CPUMillicores); n < 32 {
		t.Errorf("%d steps: a trace of any use has more", n)
	}
	sum := 0.0
	for i, v := range r.Trace.CPUMillicores {
		step := min(r.Trace.StepSeconds, 5000-float64(i)*r.Trace.StepSeconds)
		sum += float64(v.Value) / 1000 * step
	}
	if math.Abs(sum-total) > total/1000 {
		t.Errorf("the trace adds up to %v s CPU, the build used %v", sum, total)
	}
}

func TestLedger_allocations(t *testing.T) {
	table := tally.New(tally.Options{})
	l := newLedger(table)
	s := l.Open("c", "/c", 1, at(0), true)
	mustBind(t, l, s, at(0), identity("k", "s", cimeter.RoleBuild))
	now := 0.0
	step := func() {
		now++
		l.Advance(s, cpu(now, 5))
		l.Tick(at(now), cimeter.Some(uint64(now)))
		l.Finish(at(now))
	}
	for range 300 { // the trace has its full length
		step()
	}
	if n := testing.AllocsPerRun(200, step); n > 0 {
		t.Errorf("%v allocations a round, want 0", n)
	}
}

// Two containers at once: the build holds what both do, each stage what its own
// does while it runs, and the limits are those of the one with the user's commands.
func TestLedger_twoAtOnce(t *testing.T) {
	table := tally.New(tally.Options{})
	l := newLedger(table)
	helper, work := l.Open("h", "/h", 1, at(0), true), l.Open("w", "/w", 2, at(0), true)
	l.Advance(helper, cpu(1, 100)) // before it is known whose it is
	mustBind(t, l, helper, at(0), identity("k", "service:db", cimeter.RoleService))
	mustBind(t, l, work, at(0), identity("k", "test", cimeter.RoleBuild))
	l.SetLimits(helper, cimeter.Limits{CPUCores: cimeter.Some(1.0)})
	l.SetLimits(work, cimeter.Limits{CPUCores: cimeter.Some(4.0)})
	l.Advance(work, cpu(2, 200))
	l.Tick(at(1), cimeter.Opt[uint64]{})
	if got := l.AttributedCPU(); got != 3e9 {
		t.Errorf("attributed %d ns, want 3 s", got)
	}
	held := func() cimeter.Opt[uint64] {
		v, ok := table.Stage(tally.Labels{CI: "drone", Project: "group/app", Machine: "ci-7", Runner: "r1", Stage: "service:db"}).Gauge(cimeter.MemoryCurrent)
		return cimeter.Opt[uint64]{Value: v, Known: ok}
	}
	l.Advance(helper, cpu(1.5, 120))
	if got := held(); got != cimeter.Some(uint64(120)) {
		t.Errorf("the running stage holds %+v, want 120 bytes", got)
	}
	l.Close(helper, at(1.5), cimeter.Some(0))
	if got := held(); got.Known {
		t.Errorf("the ended stage holds %+v", got)
	}
	l.Tick(at(2), cimeter.Opt[uint64]{})
	l.Close(work, at(2), cimeter.Some(0))
	r := only(t, l, at(100))
	near(t, "memory of both", r.Usage.MemoryBytes.Max, 300)
	near(t, "average memory", r.Usage.MemoryBytes.Avg, 250) // 300, then 200
	if r.Limits == nil || r.Limits.CPUCores != cimeter.Some(4.0) {
		t.Errorf("limits %+v, want those of the container with the user's commands", r.Limits)
	}
}

// Containers that make one stage: it is the worst of them.
func TestLedger_mergedStage(t *testing.T) {
	for _, exits := range [][2]int{{0, 2}, {2, 0}} {
		l := newLedger(tally.New(tally.Options{}))
		for i, exit := range exits {
			s := l.Open("init", "/init", uint64(i), at(float64(2*i)), true)
			mustBind(t, l, s, at(float64(2*i)), identity("k", "prepare_executor", cimeter.RoleCache))
			sample := cpu(1, 5)
			sample.SetGauge(cimeter.MemoryPeak, uint64(10+20*i)) // between two readings
			l.Advance(s, sample)
			l.Close(s, at(float64(2*i+1)), cimeter.Some(exit))
		}
		r := only(t, l, at(200))
		if len(r.Stages) != 1 || r.Stages[0].ExitCode != cimeter.Some(2) || r.Stages[0].Usage.MemoryBytes.Peak != cimeter.Some(uint64(30)) {
			t.Errorf("exit codes %v: %+v, want one stage with exit code 2 and a peak of 30 bytes", exits, r.Stages)
		}
	}
}

func TestLedger_Image(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	mustBind(t, l, l.Open("c", "/c", 1, at(1000), true), at(1000), identity("k", "s", cimeter.RoleBuild))
	for _, c := range []struct{ image, want string }{{"golang:1.26", "golang:1.26"}, {"golang:1.27", "golang:1.27"}, {strings.Repeat("x", 513), "golang:1.27"}} {
		l.Image("k", c.image)
		l.Image("of nobody", c.image)
		if got := l.Running(at(1001))[0].Image; got != c.want {
			t.Errorf("image %.20q: the record has %q, want %q", c.image, got, c.want)
		}
	}
}

func TestLedger_Pulled(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	s := l.Open("c", "/c", 1, at(1000), true)
	mustBind(t, l, s, at(1000), identity("k", "s", cimeter.RoleBuild))
	for _, p := range []struct{ pulled, want float64 }{{300, 0}, {900, 900}, {950, 950}, {940, 950}, {1001, 950}} {
		l.Pulled("k", at(p.pulled))
		want := time.Time{}
		if p.want > 0 {
			want = at(p.want)
		}
		if got := l.Running(at(1002))[0].ImagePulledAt; !got.Equal(want) {
			t.Errorf("an image was pulled %v s before the start: %v, want %v", 1000-p.pulled, got, want)
		}
	}
}

// A flapping agent does not grow a record.
func TestLedger_manyGaps(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	s := l.Open("c", "/c", 1, at(0), true)
	mustBind(t, l, s, at(0), identity("k", "s", cimeter.RoleBuild))
	for i := range 1000 {
		l.Gap("k", cimeter.Gap{From: at(float64(i)), To: at(float64(i)), Reason: cimeter.GapLongInterval})
	}
	if n := len(l.Running(at(1))[0].Gaps); n < 10 || n > 100 {
		t.Errorf("%d gaps of 1000 are in the record, want some dozens", n)
	}
}

// Over a few milliseconds a rate says more of the instant of reading than of the build.
func TestLedger_shortInterval(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	s := l.Open("c", "/c", 1, at(0), true)
	mustBind(t, l, s, at(0), identity("k", "s", cimeter.RoleBuild))
	for _, p := range []struct{ at, cpu float64 }{{1, 1}, {1.01, 1.1}, {2, 2}} { // 1, 10 and 0.9 cores
		l.Advance(s, cpu(p.cpu, 1))
		l.Tick(at(p.at), cimeter.Opt[uint64]{})
	}
	l.Close(s, at(2), cimeter.Some(0))
	near(t, "maximum cores", only(t, l, at(100)).Usage.CPUCores.Max, 1.1/1.01)
}

// A container that goes through stages without end has a bounded number of them.
func TestLedger_manyStages(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	s := l.Open("c", "/c", 1, at(0), true)
	mustBind(t, l, s, at(0), identity("k", "s", cimeter.RoleBuild))
	for i := range 3000 {
		sample := cpu(float64(i+1), 1)
		l.Advance(s, sample)
		l.Enter(s, at(float64(i+1)), string(rune('a'+i%2)), cimeter.BoundaryCommand, sample)
	}
	if n := l.Parts("k"); n < 500 || n > 2000 {
		t.Errorf("%d parts of 3000 stages, want about a thousand", n)
	}
	l.Close(s, at(3001), cimeter.Some(0))
	near(t, "cpu", only(t, l, at(4000)).Usage.CPUSeconds.Total.Value, 3000)
}
