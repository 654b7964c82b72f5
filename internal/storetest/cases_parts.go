package storetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/store"
)

// checkSum holds that a sum counts each build once whatever of it meets the filter, adds
// up what all parts that do cost, and takes a build's time from its first start to its
// last end.
func checkSum(t testing.TB, s Store, puts []store.Put) {
	t.Helper()
	for _, text := range []string{"", "machine:node-1", "machine:node-2 since:5d", "verdict:oom"} {
		m := &model{puts: puts}
		f := Parse(t, text)
		type span struct{ from, to time.Time }
		builds := map[string]*span{}
		killed := map[string]bool{}
		var cpu float64
		for _, p := range m.find(f, store.SortEnded, false) {
			r := p.Record
			cpu += float64(max(0, cost(p, store.SortCPU))) / 1e6
			killed[r.Key] = killed[r.Key] || oom(r)
			from := r.EndedAt.Add(-time.Duration(cost(p, store.SortWall)) * time.Microsecond)
			if b := builds[r.Key]; b == nil {
				builds[r.Key] = &span{from, r.EndedAt}
			} else {
				if from.Before(b.from) {
					b.from = from
				}
				if r.EndedAt.After(b.to) {
					b.to = r.EndedAt
				}
			}
		}
		var walls []float64
		for _, b := range builds {
			walls = append(walls, b.to.Sub(b.from).Seconds())
		}
		slices.Sort(walls)
		ooms := 0
		for _, k := range killed {
			if k {
				ooms++
			}
		}
		got, err := s.Sum(t.Context(), f)
		if err != nil || int(got.Builds) != len(builds) || math.Abs(got.CPUSeconds-cpu) > 1e-3 || int(got.OOM) != ooms {
			t.Errorf("Sum(%q) = %+v, %v; want %d builds, %g s of CPU time, %d with something killed", text, got.Totals, err, len(builds), cpu, ooms)
			continue
		}
		if len(walls) > 0 && math.Abs(got.WallP50.Value-walls[(len(walls)-1)/2]) > 1e-3 {
			t.Errorf("Sum(%q): median %v, want %g of %d builds", text, got.WallP50, walls[(len(walls)-1)/2], len(walls))
		}
	}
}

// part is a record of one build of a machine, from and to some seconds before Base.
func part(machine, runner string, from, to int) store.Put {
	r := NewMaker(80, time.Hour).Record(1)
	r.Key, r.CI, r.Server, r.Project, r.Number, r.Name = "jenkins/ci.example.com/app/17", "jenkins", "ci.example.com", "app", "17", "app"
	r.Machine, r.Runner = machine, cimeter.Runner{Name: runner}
	r.StartedAt, r.EndedAt, r.QueuedAt = Base.Add(-time.Duration(from)*time.Second), Base.Add(-time.Duration(to)*time.Second), time.Time{}
	return store.Put{Record: r, ReceivedAt: Base, Agent: machine}
}

// testParts holds that what one machine tells of a build a second time is kept beside the
// first where it is of other work, and told again where it is not; alone and in a batch.
func testParts(t *testing.T, s Store) {
	first := part("node-1", "a", 900, 600)
	cases := []struct {
		name string
		put  store.Put
		kept bool
	}{
		{"sent again", first, false},
		{"told again, closed later", part("node-1", "a", 900, 500), false},
		{"told by a second agent of the machine", part("node-1", "a", 899, 601), false},
		{"told by an agent that does not know its runner", part("node-1", "", 880, 610), false},
		{"after it", part("node-1", "a", 600, 400), true},
		{"after it, sent again", part("node-1", "a", 600, 400), false},
		{"before it", part("node-1", "a", 1200, 900), true},
		{"within what came second", part("node-1", "a", 550, 450), false},
		{"another pod at the same time", part("node-1", "b", 890, 650), true},
		{"another pod, sent again", part("node-1", "b", 890, 650), false},
		{"another machine at the same time", part("node-2", "a", 900, 600), true},
		{"another machine, told again", part("node-2", "a", 890, 610), false},
		{"that machine later", part("node-2", "a", 300, 200), true},
	}
	put(t, s, []store.Put{first})
	kept := 1
	for _, c := range cases {
		got, err := s.Put(t.Context(), []store.Put{c.put})
		if err != nil || got.Stored+got.Duplicates != 1 || got.Fresh[0] != c.kept || got.IsPart(0) != c.kept || got.Stored != got.Parts {
			t.Errorf("%s: %+v, %v; want it kept %t", c.name, got, err, c.kept)
		}
		if c.kept {
			kept++
		}
	}
	// All of it again, in one batch, twice.
	var all []store.Put
	for range 2 {
		for _, c := range cases {
			all = append(all, c.put)
		}
	}
	if got, err := s.Put(t.Context(), all); err != nil || got.Stored != 0 || got.Duplicates != len(all) {
		t.Errorf("all again: %+v, %v", got, err)
	}
	if parts, err := s.Machines(t.Context(), first.Record.Key); err != nil || len(parts) != kept {
		t.Errorf("Machines = %d, %v; want %d", len(parts), err, kept)
	}
	if a, b, c := counted(t, s); a != 1 || b != 1 || c != kept {
		t.Errorf("%d builds, %d of jobs, %d records; want one build, %d records", a, b, c, kept)
	}
	// The same in one batch, of another build: no part is lost that came with its first.
	for i := range all {
		r := *all[i].Record
		r.Key, r.Number = "jenkins/ci.example.com/app/18", "18"
		all[i].Record = &r
	}
	got, err := s.Put(t.Context(), all)
	if err != nil || got.Stored != kept || got.Parts != kept-1 {
		t.Errorf("in one batch: %+v, %v; want %d stored", got, err, kept)
	}
	for by, want := range map[store.By]string{
		store.ByProject: "app 2", store.ByMachine: "node-1 2, node-2 2", store.ByRunner: "a@node-1 2, a@node-2 2, b@node-1 2", store.ByMachineJob: "node-1 2, node-2 2",
	} {
		for _, days := range []int{1, 30} { // from builds, from days
			g, err := s.Groups(t.Context(), store.GroupQuery{By: by, From: Base.AddDate(0, 0, -days), To: Base})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, x := range g.Groups {
				name := map[store.By]string{store.ByProject: x.Project, store.ByMachine: x.Machine, store.ByRunner: x.RunnerName + "@" + x.Machine, store.ByMachineJob: x.Machine}[by]
				names = append(names, fmt.Sprint(name, " ", x.Builds))
			}
			slices.Sort(names)
			if got := strings.Join(names, ", "); got != want {
				t.Errorf("builds by %s over %d days: %s, want %s", by, days, got, want)
			}
		}
	}
	if h, err := s.Buckets(t.Context(), store.BucketQuery{From: Base.Add(-24 * time.Hour), To: Base, Bucket: 24 * time.Hour}); err != nil || len(h) != 1 || h[0].Builds != 2 {
		t.Errorf("buckets %+v, %v; want two builds", h, err)
	}
	sum, err := s.Sum(t.Context(), filter.Filter{filter.Is(filter.Project, "app")})
	if err != nil || sum.Builds != 2 || math.Abs(sum.CPUSeconds-float64(2*kept)*first.Record.Usage.CPUSeconds.Total.Value) > 1e-3 {
		t.Errorf("Sum = %+v, %v; want two builds and the CPU time of %d parts", sum, err, 2*kept)
	}
}

// testHistoryParts holds that the last builds of a job are each once, however many
// machines worked on one: where its last part ended, with what all parts spent.
func testHistoryParts(t *testing.T, s Store) {
	puts := Again(81, 40)
	for i := range puts {
		puts[i].Record.Project, puts[i].Record.Name = "group/spread", "all"
	}
	other := NewMaker(82, time.Hour).Puts(500, 20) // of other jobs
	shuffled := append(slices.Clone(puts), other...)
	rand.New(rand.NewPCG(81, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	for part := range slices.Chunk(shuffled, 9) {
		put(t, s, part)
	}
	parts := map[string][]store.Put{}
	for _, p := range puts {
		parts[p.Record.Key] = append(parts[p.Record.Key], p)
	}
	// tell is what the answer says of a build, and what its parts add up to.
	tell := func(number string, from, to time.Time, wall float64, stages int, costs [4]int64) string {
		return fmt.Sprint(number, " ", from.UnixMicro(), " ", to.UnixMicro(), " ", math.Round(wall*1e3), " ", stages, " ", costs)
	}
	sorts := [4]store.Sort{store.SortCPU, store.SortIO, store.SortNet, store.SortMemory}
	type build struct {
		ref  string
		last int64
		text string
	}
	var all []build
	for _, of := range parts {
		first := of[0].Record
		from, to, stages, costs := first.StartedAt, first.EndedAt, 0, [4]int64{-1, -1, -1, -1}
		for _, p := range of {
			if p.Record.StartedAt.Before(from) {
				from = p.Record.StartedAt
			}
			if p.Record.EndedAt.After(to) {
				to = p.Record.EndedAt
			}
			stages += len(p.Record.Stages)
			for i, by := range sorts {
				switch v := cost(p, by); {
				case v < 0:
				case by == store.SortMemory:
					costs[i] = max(costs[i], v)
				default:
					costs[i] = max(0, costs[i]) + v
				}
			}
		}
		wall := to.Sub(from).Seconds()
		if len(of) == 1 {
			wall = first.Usage.WallSeconds
		}
		costs[0] = (costs[0] + 500) / 1000 // sums of seconds are not exact to the microsecond
		all = append(all, build{first.Ref, to.UnixMicro(), tell(first.Number, from, to, wall, stages, costs)})
	}
	slices.SortFunc(all, func(x, y build) int { return int(y.last - x.last) })
	ask := func(h store.HistoryQuery) []*cimeter.Record {
		t.Helper()
		h.Project, h.Name = "group/spread", "all"
		got, err := s.History(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	told := func(records []*cimeter.Record) (lines []string) {
		for _, r := range records {
			var costs [4]int64
			for i, by := range sorts {
				costs[i] = cost(store.Put{Record: r}, by)
			}
			costs[0] = (costs[0] + 500) / 1000
			lines = append(lines, tell(r.Number, r.StartedAt, r.EndedAt, r.Usage.WallSeconds, len(r.Stages), costs))
		}
		return lines
	}
	check := func(h store.HistoryQuery) {
		t.Helper()
		var want []string
		for _, b := range all {
			if (h.Before.IsZero() || b.last < h.Before.UnixMicro()) && (h.Ref == "" || b.ref == h.Ref) && len(want) < h.Limit {
				want = append(want, b.text)
			}
		}
		if got := told(ask(h)); !slices.Equal(got, want) {
			t.Errorf("%+v: got\n%s\nwant\n%s", h, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	for _, limit := range []int{1, 3, 20, 300} {
		check(store.HistoryQuery{Limit: limit})
		check(store.HistoryQuery{Limit: limit, Ref: "main", Trace: true})
	}
	for _, p := range puts[:15] { // the end of any part may be asked for
		check(store.HistoryQuery{Limit: 3, Before: p.Record.EndedAt})
		check(store.HistoryQuery{Limit: 4, Before: p.Record.EndedAt.Add(time.Microsecond)})
	}
	// Page by page, as from the end of the last.
	var pages []string
	h := store.HistoryQuery{Limit: 6}
	for {
		got := ask(h)
		if len(got) == 0 {
			break
		}
		pages = append(pages, told(got)...)
		h.Before = got[len(got)-1].EndedAt
	}
	var want []string
	for _, b := range all {
		want = append(want, b.text)
	}
	if !slices.Equal(pages, want) {
		t.Errorf("page by page: %d builds, want each of %d once", len(pages), len(want))
	}
}
