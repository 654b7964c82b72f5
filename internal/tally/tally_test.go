package tally_test

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/tally"
)

func labels(stage string) tally.Labels {
	return tally.Labels{CI: "gitlab", Project: "group/app", Machine: "ci-7", Runner: "s_a1b2", Stage: stage}
}

func TestStage_Add(t *testing.T) {
	table := tally.New(tally.Options{})
	s := table.Stage(labels("step_script"))
	if _, ok := s.Counter(cimeter.CPUUser); ok {
		t.Error("a counter that nobody added to is there")
	}
	s.Add(cimeter.CPUUser, 0)
	if v, ok := s.Counter(cimeter.CPUUser); v != 0 || !ok {
		t.Errorf("after adding 0: %d, %t: want 0, true", v, ok)
	}
	s.Add(cimeter.CPUUser, 7)
	table.Stage(labels("step_script")).Add(cimeter.CPUUser, 5)
	if v, _ := s.Counter(cimeter.CPUUser); v != 12 {
		t.Errorf("two builds of one label set: %d: want 12", v)
	}
	if v, ok := table.Stage(labels("get_sources")).Counter(cimeter.CPUUser); ok {
		t.Errorf("another stage has %d", v)
	}
	if v, ok := s.Counter(cimeter.CPUSystem); ok {
		t.Errorf("another counter has %d", v)
	}
}

func TestShare(t *testing.T) {
	s := tally.New(tally.Options{}).Stage(labels("step_script"))
	want := func(what string, g cimeter.Gauge, v uint64, known bool) {
		t.Helper()
		if got, ok := s.Gauge(g); got != v || ok != known {
			t.Errorf("%s: %d, %t: want %d, %t", what, got, ok, v, known)
		}
	}
	a, b := s.Share(), s.Share()
	want("shares that were not set", cimeter.MemoryAnon, 0, false)
	var sample cimeter.Sample
	sample.SetGauge(cimeter.MemoryAnon, 100)
	sample.SetGauge(cimeter.MemorySwap, 0)
	a.Set(&sample)
	want("one", cimeter.MemoryAnon, 100, true)
	want("a known zero", cimeter.MemorySwap, 0, true)
	want("not in the sample", cimeter.MemoryFile, 0, false)
	sample.SetGauge(cimeter.MemoryAnon, 30)
	b.Set(&sample)
	want("two", cimeter.MemoryAnon, 130, true)
	a.Set(&sample)
	want("one fell", cimeter.MemoryAnon, 60, true)
	sample.ClearGauge(cimeter.MemoryAnon)
	a.Set(&sample)
	want("one has it no more", cimeter.MemoryAnon, 30, true)
	a.Release()
	a.Release()
	want("released twice", cimeter.MemoryAnon, 30, true)
	b.Release()
	want("none runs", cimeter.MemoryAnon, 0, false)
	want("none runs", cimeter.MemorySwap, 0, false)
}

func TestStage_Ended(t *testing.T) {
	s := tally.New(tally.Options{}).Stage(labels("step_script"))
	if h := s.Histogram(catalog.StageDuration); h != nil {
		t.Error("a histogram before any end")
	}
	s.Ended(1, cimeter.Some(uint64(16<<20)), cimeter.Opt[float64]{})
	s.Ended(1.001, cimeter.Opt[uint64]{}, cimeter.Opt[float64]{})
	s.Ended(100*3600, cimeter.Opt[uint64]{}, cimeter.Opt[float64]{})
	s.Ended(math.NaN(), cimeter.Opt[uint64]{}, cimeter.Opt[float64]{})
	s.Ended(-1, cimeter.Opt[uint64]{}, cimeter.Opt[float64]{})
	d := s.Histogram(catalog.StageDuration)
	m, _ := catalog.Lookup(catalog.StageDuration)
	for i := range len(m.Buckets) + 1 {
		want := uint64(0)
		if i == 0 || i == 1 || i == len(m.Buckets) {
			want = 1
		}
		if got := d.Bucket(i); got != want {
			t.Errorf("bucket %d: %d: want %d", i, got, want)
		}
	}
	if want := 1 + 1.001 + 360000; d.Sum() != want {
		t.Errorf("sum %g: want %g", d.Sum(), want)
	}
	if got := s.Histogram(catalog.StageMemoryPeak).Bucket(0); got != 1 {
		t.Errorf("a peak on the bound: bucket 0 has %d: want 1", got)
	}
	if s.Histogram(catalog.StageCPUCores) != nil {
		t.Error("cores were never known, yet there is a histogram")
	}
}

func TestBuild(t *testing.T) {
	b := tally.New(tally.Options{}).Build(tally.BuildLabels{CI: "drone", Project: "a/b"})
	for range 6 {
		b.Started()
	}
	if b.Running() != 6 {
		t.Errorf("%d run: want 6", b.Running())
	}
	b.Ended("success", 10, cimeter.Some(2.0))
	b.Ended("failed", 10, cimeter.Opt[float64]{})
	b.Ended("canceled", 10, cimeter.Opt[float64]{})
	b.Ended("", 10, cimeter.Opt[float64]{})
	b.Ended("made \"up\"\n", 10, cimeter.Opt[float64]{})
	b.Abandoned()
	if b.Running() != 0 {
		t.Errorf("%d run: want 0", b.Running())
	}
	for i, want := range []uint64{1, 1, 1, 2} {
		if n, _ := b.Count(i); n != want || b.Duration(i).Bucket(2) != want {
			t.Errorf("result %d: %d ended, %d took 10 s: want %d", i, n, b.Duration(i).Bucket(2), want)
		}
	}
	if q := b.Queue(); q.Bucket(1) != 1 || q.Sum() != 2 {
		t.Errorf("queue: %d within 3 s, sum %g: want 1 and 2", q.Bucket(1), q.Sum())
	}
}

// Where nothing tells results, none is claimed to be 0.
func TestBuild_Count(t *testing.T) {
	b := tally.New(tally.Options{}).Build(tally.BuildLabels{CI: "drone"})
	known := func() (all [4]bool) {
		for i := range all {
			_, all[i] = b.Count(i)
		}
		return all
	}
	end := func(result string) { b.Started(); b.Ended(result, 1, cimeter.Opt[float64]{}) }
	if got := known(); got != [4]bool{} {
		t.Errorf("before any end: %v", got)
	}
	end("")
	if got := known(); got != [4]bool{3: true} {
		t.Errorf("after an unknown end: %v: want only unknown", got)
	}
	end("success")
	if got := known(); got != [4]bool{true, true, true, true} {
		t.Errorf("after a success: %v: want all", got)
	}
	b = tally.New(tally.Options{}).Build(tally.BuildLabels{CI: "drone"})
	end("success")
	if got := known(); got != [4]bool{true, true, true, false} {
		t.Errorf("after a success alone: %v: want all but unknown", got)
	}
}

func TestValue(t *testing.T) {
	table := tally.New(tally.Options{})
	want := func(v *tally.Value, f float64, known bool) {
		t.Helper()
		if got, ok := v.Get(); got != f || ok != known {
			t.Errorf("%g, %t: want %g, %t", got, ok, f, known)
		}
	}
	c := table.Value(catalog.AgentGaps, cimeter.GapMissedEnd)
	want(c, 0, true)
	c.Add(2)
	c.Add(-5)
	c.Add(math.NaN())
	c.Set(1)
	c.Set(math.Inf(1))
	want(c, 2, true)
	c.Set(3.5)
	c.Clear()
	want(table.Value(catalog.AgentGaps, cimeter.GapMissedEnd), 3.5, true)
	g := table.Value(catalog.AgentCoverage)
	want(g, 0, false)
	g.Set(0.9)
	g.Set(0.5)
	g.Add(-0.25)
	want(g, 0.25, true)
	g.Clear()
	if _, ok := g.Get(); ok {
		t.Error("a cleared gauge is there")
	}
}

func TestTable_programmerErrors(t *testing.T) {
	table := tally.New(tally.Options{})
	for name, do := range map[string]func(){
		"no such metric":   func() { table.Value("cimeter_agent_nonsense") },
		"too few labels":   func() { table.Value(catalog.AgentGaps) },
		"too many labels":  func() { table.Value(catalog.AgentRounds, "x") },
		"scope":            func() { table.Value(catalog.BuildsRunning, "", "", "", "") },
		"a value of info":  func() { table.Value(catalog.BuildInfo, "", "", "") },
		"an info of value": func() { table.Info(catalog.AgentRounds) },
		"info labels":      func() { table.Info(catalog.BuildInfo, "v1") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("want a panic")
				}
			}()
			do()
		})
	}
	for _, m := range catalog.Metrics() {
		values := make([]string, len(m.Labels))
		switch {
		case m.Kind == catalog.Info:
			table.Info(m.Name, values...)
		case m.Scope == catalog.Program && m.Kind == catalog.Histogram:
			table.Distribution(m.Name, values...)
		case m.Scope == catalog.Program:
			table.Value(m.Name, values...)
		}
	}
}

func TestTable_Info(t *testing.T) {
	table := tally.New(tally.Options{})
	set := func(key, build string) {
		table.SetInfo(catalog.ContainerInfo, key, "gitlab", "a/b", "m", "r", key, build)
	}
	_, v0 := table.Infos(catalog.ContainerInfo)
	set("c1", "1")
	set("c2", "1")
	old, v1 := table.Infos(catalog.ContainerInfo)
	set("c2", "2")
	set("c1", "1")
	series, _ := table.Value(catalog.AgentSeries).Get()
	table.RemoveInfo(catalog.ContainerInfo, "c1")
	table.RemoveInfo(catalog.ContainerInfo, "c1")
	if got, _ := table.Value(catalog.AgentSeries).Get(); got != series-1 {
		t.Errorf("%g series after one was removed, before %g", got, series)
	}
	now, v2 := table.Infos(catalog.ContainerInfo)
	if v0 == v1 || v1 == v2 {
		t.Errorf("versions %d %d %d: want them to differ", v0, v1, v2)
	}
	if len(old) != 2 || old[1].Labels()[5] != "1" {
		t.Error("a slice that was handed out changed")
	}
	if len(now) != 1 || now[0].Labels()[4] != "c2" || now[0].Labels()[5] != "2" {
		t.Errorf("after replacing one and removing one: %v", now)
	}
}

func TestTable_labelsAreBounded(t *testing.T) {
	table := tally.New(tally.Options{})
	long := strings.Repeat("ä", 1000)
	got := table.Stage(tally.Labels{CI: "x\xffy", Project: long, Machine: long[:400], Runner: "a\xc0\xa7", Stage: "tab\tnew\nline\"\\"}).Labels()
	want := tally.Labels{CI: "x\uFFFDy", Project: long[:400], Machine: long[:400], Runner: "a\uFFFD", Stage: "tab\tnew\nline\"\\"}
	if got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if table.Stage(want) != table.Stage(got) {
		t.Error("a bounded label set is not itself")
	}
}

func FuzzTable_labels(f *testing.F) {
	f.Add("gitlab", "group/app", "\xff\xff\xffC")
	f.Add("", strings.Repeat("\xc0", 500), "a\x00b")
	f.Fuzz(func(t *testing.T, ci, project, stage string) {
		table := tally.New(tally.Options{})
		s := table.Stage(tally.Labels{CI: ci, Project: project, Stage: stage})
		for _, v := range []string{s.Labels().CI, s.Labels().Project, s.Labels().Stage} {
			if !utf8.ValidString(v) || utf8.RuneCountInString(v) > 200 {
				t.Errorf("label value %q", v)
			}
		}
		if table.Stage(s.Labels()) != s {
			t.Error("a cell's own labels lead to another cell")
		}
	})
}

func TestTable_budget(t *testing.T) {
	const budget, names = 5_000, 1_000_000
	var before, after runtime.MemStats
	table := tally.New(tally.Options{Budget: budget})
	first := table.Stage(labels("first"))
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range names {
		l := labels(fmt.Sprint("stage-", i))
		l.CI = fmt.Sprint("ci-", i%1000)
		table.Stage(l).Add(cimeter.CPUUser, 1)
		if i%1000 == 0 {
			table.Build(tally.BuildLabels{CI: l.CI, Project: fmt.Sprint(i)}).Started()
			table.Value(catalog.AgentDropped, fmt.Sprint("reason ", i)).Add(1)
			table.SetInfo(catalog.ContainerInfo, fmt.Sprint(i), "", "", "", "", fmt.Sprint(i), "")
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if used, _ := table.Value(catalog.AgentSeries).Get(); used > budget || used < budget/2 {
		t.Errorf("%g series reserved: want at most %d and at least half", used, budget)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("the heap grew by %d bytes: want at most 4 MiB", grown)
	}
	var total, folded uint64
	var whole bool
	for _, s := range table.Stages() {
		v, _ := s.Counter(cimeter.CPUUser)
		total += v
		if l := s.Labels(); l.Project == tally.Other {
			folded += v
			if l.Runner != tally.Other || l.Stage != tally.Other {
				t.Errorf("fold %q keeps more than CI and machine", l)
			}
			whole = whole || l.CI == tally.Other
		}
	}
	if total != names {
		t.Errorf("all label sets together counted %d: want %d, nothing lost in the fold", total, names)
	}
	if !whole {
		t.Error("a thousand CI kinds found room for a fold each")
	}
	if n, _ := table.Value(catalog.AgentSeriesFolded).Get(); n < float64(folded) {
		t.Errorf("%g folds counted for %d folded stages", n, folded)
	}
	if table.Stage(labels("first")) != first {
		t.Error("a label set that had room lost it")
	}
	var running int64
	for _, b := range table.Builds() {
		running += b.Running()
	}
	if running != names/1000 {
		t.Errorf("%d builds run: want %d", running, names/1000)
	}
	var dropped float64
	for _, v := range table.Values(catalog.AgentDropped) {
		f, _ := v.Get()
		dropped += f
	}
	if dropped != names/1000 {
		t.Errorf("%g dropped: want %d", dropped, names/1000)
	}
}

func TestTable_foldKeepsCIAndMachine(t *testing.T) {
	table := tally.New(tally.Options{Budget: 1})
	for i := range 50 {
		table.Stage(labels(fmt.Sprint(i)))
	}
	got := table.Stage(labels("another")).Labels()
	if want := (tally.Labels{CI: "gitlab", Project: "#other#", Machine: "ci-7", Runner: "#other#", Stage: "#other#"}); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestAllocs(t *testing.T) {
	table := tally.New(tally.Options{})
	l := labels("step_script")
	s, v := table.Stage(l), table.Value(catalog.AgentRounds)
	b := table.Build(tally.BuildLabels{CI: "gitlab"})
	share := s.Share()
	var sample cimeter.Sample
	sample.SetGauge(cimeter.MemoryAnon, 1)
	s.Ended(1, cimeter.Some(uint64(1)), cimeter.Some(1.0))
	if n := testing.AllocsPerRun(100, func() {
		table.Stage(l).Add(cimeter.CPUUser, 3)
		share.Set(&sample)
		share.Release()
		s.Ended(2, cimeter.Some(uint64(1)), cimeter.Some(1.0))
		v.Add(1)
		v.Set(5)
		b.Started()
		b.Abandoned()
	}); n != 0 {
		t.Errorf("%g allocations: want 0", n)
	}
}

func TestCounters_neverFallAndLoseNothing(t *testing.T) {
	const writers, each = 4, 2_000
	table := tally.New(tally.Options{})
	s := table.Stage(labels("step_script"))
	rounds := table.Value(catalog.AgentRounds)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			share := s.Share()
			var sample cimeter.Sample
			for i := range uint64(each) {
				table.Stage(labels("step_script")).Add(cimeter.CPUUser, 1)
				rounds.Add(0.5)
				sample.SetGauge(cimeter.MemoryAnon, i)
				share.Set(&sample)
				s.Ended(float64(i), cimeter.Opt[uint64]{}, cimeter.Opt[float64]{})
			}
			share.Release()
		})
	}
	var last, lastEnded uint64
	for last < writers*each {
		v, _ := s.Counter(cimeter.CPUUser)
		if v < last {
			t.Fatalf("fell from %d to %d", last, v)
		}
		last = v
		if h := s.Histogram(catalog.StageDuration); h != nil {
			if n := h.Bucket(0); n < lastEnded {
				t.Fatalf("bucket fell from %d to %d", lastEnded, n)
			} else {
				lastEnded = n
			}
		}
		if g, _ := s.Gauge(cimeter.MemoryAnon); g > writers*each {
			t.Fatalf("gauge %d is more than all shares", g)
		}
		runtime.Gosched()
	}
	wg.Wait()
	if v, _ := rounds.Get(); v != writers*each/2 {
		t.Errorf("%g rounds: want %d", v, writers*each/2)
	}
	if g, ok := s.Gauge(cimeter.MemoryAnon); g != 0 || ok {
		t.Errorf("gauge %d, %t after all were released", g, ok)
	}
}

// Builds leave room for stages: a label set of builds takes what its builds
// need, and a histogram without room is its fold's, with nothing lost.
func TestBuild_roomForHistograms(t *testing.T) {
	const projects = 300
	table := tally.New(tally.Options{Budget: 5_000})
	for i := range projects {
		b := table.Build(tally.BuildLabels{CI: "gitlab", Project: fmt.Sprint("p", i), Machine: "m"})
		b.Started()
	}
	own := 0
	for _, b := range table.Builds() {
		if b.Labels().Project != tally.Other {
			own++
		}
	}
	if own < projects {
		t.Errorf("%d of %d projects have a label set of their own: running ones need no histogram", own, projects)
	}
	for i := range projects {
		b := table.Build(tally.BuildLabels{CI: "gitlab", Project: fmt.Sprint("p", i), Machine: "m"})
		b.Ended("success", 2, cimeter.Some(1.0))
	}
	var ended, long, queued, folded uint64
	shown := 0
	for _, b := range table.Builds() {
		n, _ := b.Count(0)
		ended += n
		if h := b.Duration(0); h != nil {
			n := h.Bucket(1) // all took 2 s, which is in the second
			long += n
			shown++
			if b.Labels().Project == tally.Other {
				folded += n
			}
		}
		if h := b.Queue(); h != nil {
			queued += h.Bucket(0)
		}
	}
	if ended != projects || long != projects || queued != projects {
		t.Errorf("%d ended, %d durations, %d queue times: want %d of each", ended, long, queued, projects)
	}
	if folded == 0 || folded == projects || shown < 20 {
		t.Errorf("%d of %d durations are the fold's, %d label sets have their own", folded, projects, shown)
	}
	if used, _ := table.Value(catalog.AgentSeries).Get(); used > 5_000 {
		t.Errorf("%g series reserved of 5,000", used)
	}
}
