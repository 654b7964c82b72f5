package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/store"
)

// addTo adds a build to totals as simply as can be.
func addTo(t *store.Totals, p store.Put) { addPart(t, p, true, true) }

// addPart adds what a record of a build tells; counted: the build is counted with it,
// killed: so is that something in it was killed for memory.
func addPart(t *store.Totals, p store.Put, counted, killed bool) {
	known := func(s store.Sort) int64 { return max(0, cost(p, s)) }
	if counted {
		t.Builds++
		switch p.Record.Result {
		case "failed":
			t.Failed++
		case "canceled":
			t.Canceled++
		}
		t.QueueSeconds += float64(known(store.SortQueue)) / 1e6
		if !p.Record.QueuedAt.IsZero() {
			t.Queued++
		}
	}
	if killed && oom(p.Record) {
		t.OOM++
	}
	t.WallSeconds += float64(known(store.SortWall)) / 1e6
	t.CPUSeconds += float64(known(store.SortCPU)) / 1e6
	if v, ok := p.Record.Usage.CPUThrottledSeconds.Get(); ok {
		t.ThrottledSeconds += float64(int64(v*1e6)) / 1e6
	}
	t.IOBytes += known(store.SortIO)
	t.NetworkBytes += known(store.SortNet)
	if v := cost(p, store.SortMemory); v >= 0 {
		t.MemoryPeakBytes = cimeter.Some(max(v, t.MemoryPeakBytes.Value))
	}
	if end := time.UnixMicro(at(p)).UTC(); end.After(t.Last) {
		t.Last = end
	}
}

func oom(r *cimeter.Record) bool {
	return r.Usage.OOMKills.Value > 0 || slices.ContainsFunc(r.Verdicts, func(v cimeter.Verdict) bool { return v.Kind == "oom" })
}

// near compares totals; seconds are sums of rounded microseconds.
func near(got, want store.Totals) bool {
	for _, x := range [][2]*float64{{&got.WallSeconds, &want.WallSeconds}, {&got.CPUSeconds, &want.CPUSeconds}, {&got.QueueSeconds, &want.QueueSeconds}, {&got.ThrottledSeconds, &want.ThrottledSeconds}} {
		if math.Abs(*x[0]-*x[1]) > 1e-5*(1+math.Abs(*x[1])) {
			return false
		}
		*x[0] = *x[1]
	}
	return got == want
}

func testSum(t *testing.T, s Store) {
	m := filled(t, s, 30, 300, 72*time.Hour)
	for _, text := range Filters {
		f := Parse(t, text)
		found := m.find(f, store.SortEnded, false)
		var want store.Totals
		var walls []float64
		for _, p := range found {
			addTo(&want, p)
			walls = append(walls, float64(cost(p, store.SortWall))/1e6)
		}
		got, err := s.Sum(t.Context(), f)
		got.Last, want.Last = time.Time{}, time.Time{}
		if err != nil || got.Partial || !near(got.Totals, want) {
			t.Errorf("Sum(%q) = %+v, %v; want %+v", text, got, err, want)
			continue
		}
		if len(walls) == 0 {
			if got.WallP50.Known {
				t.Errorf("Sum(%q): a median of nothing", text)
			}
			continue
		}
		slices.Sort(walls)
		for _, x := range []struct {
			p   float64
			got cimeter.Opt[float64]
		}{{0.5, got.WallP50}, {0.95, got.WallP95}} {
			i := int(math.Ceil(x.p*float64(len(walls)))) - 1
			if x.got.Value != walls[max(i, 0)] {
				t.Errorf("Sum(%q): share %g of %d is %v, want %v", text, x.p, len(walls), x.got, walls[i])
			}
		}
	}
}

// A course is the sum of the latest builds, and each of them.
func testCourse(t *testing.T, s Store) {
	m := filled(t, s, 32, 300, 72*time.Hour)
	for _, text := range Filters {
		f := Parse(t, text)
		found := m.find(f, store.SortEnded, false) // the latest first
		sum, points, err := s.Course(t.Context(), f, store.MaxExamine)
		all, sumErr := s.Sum(t.Context(), f)
		if err != nil || sumErr != nil || sum != all || len(points) != len(found) {
			t.Errorf("Course(%q) = %+v and %d points, %v; want %+v and %d", text, sum, len(points), err, all, len(found))
			continue
		}
		ended := map[string]int{} // points may share an end
		line := func(at int64, result string, oom bool, wall, cpu, mem, limit int64) string {
			return fmt.Sprint(at, " ", result, " ", oom, " ", wall, " ", cpu, " ", mem, " ", limit)
		}
		for _, p := range found {
			limit := int64(-1)
			if l := p.Record.Limits; l != nil && l.MemoryBytes.Known {
				limit = int64(l.MemoryBytes.Value)
			}
			ended[line(at(p), p.Record.Result, oom(p.Record), cost(p, store.SortWall), cost(p, store.SortCPU), cost(p, store.SortMemory), limit)]++
		}
		us := func(o cimeter.Opt[float64]) int64 {
			if !o.Known {
				return -1
			}
			return int64(math.Round(o.Value * 1e6))
		}
		bytes := func(o cimeter.Opt[int64]) int64 {
			if !o.Known {
				return -1
			}
			return o.Value
		}
		for i, p := range points {
			if i > 0 && p.EndedAt.Before(points[i-1].EndedAt) {
				t.Errorf("Course(%q): point %d ended before the one before it", text, i)
			}
			l := line(p.EndedAt.UnixMicro(), p.Result, p.OOM, us(p.WallSeconds), us(p.CPUSeconds), bytes(p.MemoryPeakBytes), bytes(p.MemoryLimitBytes))
			if ended[l]--; ended[l] < 0 {
				t.Errorf("Course(%q): point %s is of no build", text, l)
			}
		}
	}
	found := m.find(nil, store.SortEnded, false)
	sum, points, err := s.Course(t.Context(), nil, 7)
	if err != nil || !sum.Partial || sum.Builds != 7 || len(points) != 7 || points[6].EndedAt.UnixMicro() != at(found[0]) || points[0].EndedAt.UnixMicro() != at(found[6]) {
		t.Errorf("the latest 7: %+v, %d points, %v", sum, len(points), err)
	}
	for _, most := range []int{0, -1, store.MaxExamine + 1} {
		if _, _, err := s.Course(t.Context(), nil, most); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("a course of %d builds: %v", most, err)
		}
	}
}

func checkGroups(t testing.TB, s Store, m *model, q store.GroupQuery) {
	t.Helper()
	got, err := s.Groups(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if got.From.After(q.From) || got.To.Before(q.To) {
		t.Fatalf("groups by %s: of %s to %s, want at least %s to %s", q.By, got.From, got.To, q.From, q.To)
	}
	want := map[store.Group]*store.Totals{}
	of := func(g store.Group) *store.Totals {
		if want[g] == nil {
			want[g] = &store.Totals{}
		}
		return want[g]
	}
	for _, p := range m.find(filter.Filter{{Field: filter.Since, At: got.From}, {Field: filter.Before, At: got.To}}, store.SortEnded, false) {
		r := p.Record
		if q.Project != "" && q.Project != r.Project || q.Name != "" && q.Name != r.Name || q.Machine != "" && q.Machine != r.Machine {
			continue
		}
		once := func(g store.Group, part store.Part) {
			addPart(of(g), p, m.counts(p, part), part != store.AgainOfBuild || m.counts(p, store.AgainKilled))
		}
		switch q.By {
		case store.ByProject:
			once(store.Group{Project: r.Project}, store.AgainOfBuild)
		case store.ByJob:
			once(store.Group{Project: r.Project, Name: r.Name}, store.AgainOfBuild)
		case store.ByMachine:
			once(store.Group{Machine: r.Machine}, store.AgainOnMachine)
		case store.ByMachineJob:
			once(store.Group{Machine: r.Machine, Project: r.Project, Name: r.Name}, store.AgainOnMachine)
		case store.ByRunner:
			once(store.Group{Runner: r.Runner.Key(), RunnerName: r.Runner.Name, Machine: r.Machine}, store.AgainOnRunner)
		case store.ByStage:
			for _, st := range r.Stages {
				one := store.Put{ReceivedAt: p.ReceivedAt, Record: &cimeter.Record{EndedAt: r.EndedAt, Usage: st.Usage}}
				one.Record.Usage.CPUThrottledSeconds = cimeter.Opt[float64]{}
				addTo(of(store.Group{Project: r.Project, Name: r.Name, Stage: st.Name}), one)
			}
		}
	}
	if len(got.Groups) != len(want) || got.More {
		t.Errorf("groups by %s: %d, more %t; want %d", q.By, len(got.Groups), got.More, len(want))
	}
	for i, g := range got.Groups {
		totals := g.Totals
		g.Totals = store.Totals{}
		if w := want[g]; w == nil || !near(totals, *w) {
			t.Errorf("group %+v by %s: %+v, want %+v", g, q.By, totals, w)
		}
		if i > 0 && got.Groups[i-1].CPUSeconds < totals.CPUSeconds {
			t.Errorf("groups by %s: not the most CPU time first", q.By)
		}
	}
}

func testGroups(t *testing.T, s Store) {
	m := filled(t, s, 31, 300, 10*24*time.Hour)
	p := m.puts[0].Record
	for _, span := range []struct{ from, to time.Time }{
		{Base.Add(-24 * time.Hour), Base}, {Base.Add(-36*time.Hour - time.Minute), Base.Add(-time.Hour)}, {Base.AddDate(0, 0, -7), Base}, {Base.Add(-100 * time.Hour), Base.Add(-30 * time.Hour)},
	} {
		for _, q := range []store.GroupQuery{
			{By: store.ByProject}, {By: store.ByJob}, {By: store.ByJob, Project: p.Project}, {By: store.ByMachine}, {By: store.ByRunner},
			{By: store.ByMachineJob, Machine: "ci-1"}, {By: store.ByStage}, {By: store.ByStage, Project: p.Project, Name: p.Name}, {By: store.ByProject, Project: "none"},
		} {
			q.From, q.To, q.Limit = span.from, span.to, store.MaxGroups
			checkGroups(t, s, m, q)
		}
	}
	got, err := s.Groups(t.Context(), store.GroupQuery{By: store.ByJob, From: Base.AddDate(0, 0, -7), To: Base, Sort: store.SortEnded, Limit: 2})
	if err != nil || len(got.Groups) != 2 || !got.More || got.Groups[0].Last.Before(got.Groups[1].Last) {
		t.Errorf("two groups by the latest end = %+v, %v", got, err)
	}
}

func testBuckets(t *testing.T, s Store) {
	m := filled(t, s, 32, 300, 10*24*time.Hour)
	p := m.puts[0].Record
	for _, q := range []store.BucketQuery{
		{From: Base.Add(-24 * time.Hour), To: Base, Bucket: time.Hour},
		{From: Base.Add(-24*time.Hour - 7*time.Minute), To: Base.Add(-time.Minute), Bucket: 2 * time.Hour},
		{From: Base.AddDate(0, 0, -8), To: Base, Bucket: 24 * time.Hour},
		{From: Base.AddDate(0, 0, -8), To: Base, Bucket: 7 * 24 * time.Hour, Project: p.Project},
		{From: Base.AddDate(0, 0, -8), To: Base, Bucket: 24 * time.Hour, Project: p.Project, Name: p.Name},
		{From: Base.Add(-24 * time.Hour), To: Base, Bucket: time.Hour, Project: p.Project, Name: p.Name},
		{From: Base.Add(-24 * time.Hour), To: Base, Bucket: time.Hour, Machine: "ci-1"},
		{From: Base.AddDate(0, 0, -8), To: Base, Bucket: 24 * time.Hour, Machine: "ci-1"},
		{From: Base.AddDate(0, 0, -8), To: Base, Bucket: 24 * time.Hour, Runner: "s_ci-1"},
		{From: Base.Add(-24 * time.Hour), To: Base, Bucket: time.Hour, Runner: "s_ci-1"},
	} {
		got, err := s.Buckets(t.Context(), q)
		if err != nil || len(got) == 0 {
			t.Fatalf("%+v: %d buckets, %v", q, len(got), err)
		}
		if got[0].Start.After(q.From) || got[len(got)-1].Start.Add(q.Bucket).Before(q.To) || !got[len(got)-1].Start.Before(q.To) {
			t.Errorf("%+v: buckets from %s to %s", q, got[0].Start, got[len(got)-1].Start)
		}
		for _, b := range got {
			var want store.Totals
			for _, p := range m.find(filter.Filter{{Field: filter.Since, At: b.Start}, {Field: filter.Before, At: b.Start.Add(q.Bucket)}}, store.SortEnded, false) {
				r := p.Record
				if (q.Project == "" || q.Project == r.Project) && (q.Name == "" || q.Name == r.Name) && (q.Machine == "" || q.Machine == r.Machine) && (q.Runner == "" || q.Runner == r.Runner.ID) {
					addTo(&want, p)
				}
			}
			if !near(b.Totals, want) {
				t.Errorf("%+v: bucket %s is %+v, want %+v", q, b.Start, b.Totals, want)
			}
		}
	}
}

// testGroupsAgain asks the same while builds come, of all times: no answer is of
// before them.
func testGroupsAgain(t *testing.T, s Store) {
	puts := NewMaker(33, 24*24*time.Hour).Puts(0, 400)
	for n := 0; n < len(puts); n += 80 {
		put(t, s, puts[n:n+80])
		m := &model{puts: puts[:n+80]}
		for _, by := range []store.By{store.ByProject, store.ByJob, store.ByMachine, store.ByRunner} {
			for _, span := range []time.Duration{30 * time.Minute, 30 * time.Hour, 5 * 24 * time.Hour, 23*24*time.Hour + time.Hour} {
				to := Base.Add(-100 * time.Minute)
				checkGroups(t, s, m, store.GroupQuery{By: by, From: to.Add(-span), To: to, Limit: 1000})
			}
		}
		for machine := range 3 {
			for _, days := range []int{1, 20} {
				checkGroups(t, s, m, store.GroupQuery{By: store.ByMachineJob, Machine: fmt.Sprintf("ci-%d", machine), From: Base.AddDate(0, 0, -days), To: Base, Limit: 1000})
			}
		}
	}
}
