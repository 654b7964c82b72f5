package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/store"
)

// Sorts are all sorts.
var Sorts = []store.Sort{store.SortEnded, store.SortCPU, store.SortMemory, store.SortWall, store.SortIO, store.SortNet, store.SortQueue}

// Filters are filters of every kind that pages ask with, over the records of a
// small Maker.
var Filters = []string{
	"", "project:group-0/app-1", "project:group-0/app-1 job:build", "project:group-0/app-1 job:build ref:main", "job:test", "ref:main", "machine:ci-1",
	"runner:s_ci-1", "runner:docker-ci-2", "runner:Zx8ci-0", "runner:none", "ci:drone", "ci:drone machine:ci-1", "result:failed", "result:", "-result:success",
	"-project:group-0/app-0 -job:build", "stage:step_script", "stage:none", "-stage:prepare", "verdict:oom", "verdict:oom result:failed", "-verdict:oom", "event:push",
	"pipeline:7", "key:gitlab/gitlab.example.com/100003", "key:gitlab/*", "since:2026-11-29T12:00", "before:2026-11-29", "since:2026-11-29 before:2026-11-29T18:00 job:test",
	"-since:2026-11-29", "cpu>60s", "cpu<1s", "-cpu>60s", "mem>1GiB", "mem>90%", "mem<=50% result:failed", "wall>=5m", "io>1GiB", "net>1GiB net<1.5GiB", "queue>50s",
	"feature", "GROUP-0", "100007", "gitlab/gitlab.example.com/10001", "nothing-of-this", "-feature", "app test", "project:group-0/*", "ref:fix-*", "job:*", "ref:fix-* cpu>1s -machine:ci-0",
	"project:group-0/app-1 -job:build", "job:build machine:ci-0 result:success", "stage:test job:test", `project:"group-0/app-0" cpu>10s since:2026-11-29`,
}

// Covered are filters that a store answers from its indexes, but for the records
// of the page: whatever builds they find, and whatever they sort by.
var Covered = []string{
	"", "since:2026-11-29T12:00", "cpu>60s", "cpu>60s mem>90%", "mem<=50% result:failed", "-result:success since:2026-11-29", "net>1GiB net<1.5GiB", "queue>50s wall>=5m",
	"result:canceled io>1GiB",
}

// Parse reads a filter as of Base.
func Parse(t testing.TB, text string) filter.Filter {
	t.Helper()
	f, err := filter.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return f.Resolve(Base)
}

// pages reads a list to its end.
func pages(t testing.TB, s Store, q store.Query) []*cimeter.Record {
	t.Helper()
	var all []*cimeter.Record
	for n := 0; ; n++ {
		page, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatalf("List(%s by %s): %v", q.Filter, q.Sort, err)
		}
		if len(page.Records) > q.Limit {
			t.Fatalf("List(%s by %s): %d records, want at most %d", q.Filter, q.Sort, len(page.Records), q.Limit)
		}
		all = append(all, page.Records...)
		if page.Next == "" {
			return all
		}
		if n > 2000 || page.Next == q.Cursor {
			t.Fatalf("List(%s by %s): pages do not end", q.Filter, q.Sort)
		}
		q.Cursor = page.Next
	}
}

func testList(t *testing.T, s Store) {
	m := filled(t, s, 20, 220, 72*time.Hour)
	of := map[string]store.Put{}
	for _, p := range m.puts {
		of[p.Record.Key] = p
	}
	for i, text := range Filters {
		f := Parse(t, text)
		for j, sort := range Sorts {
			if (i+j)%3 != 0 { // each filter with some sorts, each sort with many filters
				continue
			}
			// Few builds looked at make the pages go the ways that they go in a large
			// store: short pages, walks instead of sorting.
			asc, examine := j%2 == 0, []int{0, 30, 100}[(i/3+j)%3]
			want := m.find(f, sort, asc)
			got := pages(t, s, store.Query{Filter: f, Sort: sort, Asc: asc, Limit: 50, Examine: examine})
			if len(got) != len(want) {
				t.Errorf("%q by %s: %d builds, want %d", text, sort, len(got), len(want))
				continue
			}
			seen := map[string]bool{}
			for k, r := range got {
				p := of[r.Key]
				if seen[r.Key] || cost(p, sort) != cost(want[k], sort) || slices.ContainsFunc(f, func(t filter.Term) bool { return !meets(p, t) }) {
					t.Errorf("%q by %s, asc %t: place %d of %d examined holds %s (%d), want one of %d", text, sort, asc, k, examine, r.Key, cost(p, sort), cost(want[k], sort))
					break
				}
				seen[r.Key] = true
			}
		}
	}
}

func testPages(t *testing.T, s Store) {
	// Many ends at one instant: the place within them must be kept.
	m := NewMaker(21, 40*time.Millisecond)
	puts := m.Puts(0, 200)
	put(t, s, puts)
	for _, sort := range Sorts {
		for _, limit := range []int{1, 7, 200, 201} {
			if limit == 1 && sort != store.SortEnded && sort != store.SortNet {
				continue
			}
			got := pages(t, s, store.Query{Sort: sort, Limit: limit})
			keys := map[string]bool{}
			for _, r := range got {
				keys[r.Key] = true
			}
			if len(got) != 200 || len(keys) != 200 {
				t.Errorf("by %s in pages of %d: %d builds, %d different; want 200", sort, limit, len(got), len(keys))
			}
		}
	}
	page, err := s.List(t.Context(), store.Query{Limit: 3, Trace: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Records {
		whole, err := s.Get(t.Context(), r.Key)
		if err != nil || (r.Trace == nil) != (whole.Trace == nil) {
			t.Errorf("a list with traces has not that of %s: %v", r.Key, err)
		}
	}
	page, err = s.List(t.Context(), store.Query{Limit: 50})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Records {
		if r.Trace != nil {
			t.Fatal("a list without traces has one")
		}
	}
}

func testBadQuestions(t *testing.T, s Store) {
	filled(t, s, 22, 10, time.Hour)
	page, err := s.List(t.Context(), store.Query{Limit: 2})
	if err != nil || page.Next == "" {
		t.Fatalf("List = %+v, %v", page, err)
	}
	for name, q := range map[string]store.Query{
		"limit below":           {Limit: -1},
		"limit above":           {Limit: store.MaxLimit + 1},
		"examine":               {Examine: store.MaxExamine + 1},
		"sort":                  {Sort: "cpu_us; DROP TABLE builds"},
		"cursor":                {Cursor: "x"},
		"long cursor":           {Cursor: page.Next + page.Next + page.Next + page.Next + page.Next},
		"cursor of other order": {Cursor: page.Next, Asc: true},
		"cursor of other sort":  {Cursor: page.Next, Sort: store.SortCPU},
		"time not resolved":     {Filter: filter.Filter{{Field: filter.Since, Op: filter.Eq, Ago: time.Hour}}},
		"number without sign":   {Filter: filter.Filter{{Field: filter.CPU, Op: "; --", Number: 1}}},
		"too many terms":        {Filter: make(filter.Filter, filter.MaxTerms+1)},
	} {
		if got, err := s.List(t.Context(), q); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%s: List = %d builds, %v; want it refused", name, len(got.Records), err)
		}
	}
	if _, err := s.List(t.Context(), store.Query{Filter: filter.Filter{{Field: "colour"}}}); !errors.Is(err, cimeter.ErrUnsupported) {
		t.Errorf("a field that is not known: %v", err)
	}
	day := Base.AddDate(0, 0, -1)
	for name, q := range map[string]store.GroupQuery{
		"by": {By: "x", From: day, To: Base}, "range": {By: store.ByProject, From: Base, To: day}, "sort": {By: store.ByProject, Sort: "x", From: day, To: Base},
		"limit": {By: store.ByProject, Limit: 5000, From: day, To: Base}, "name alone": {By: store.ByStage, Name: "x", From: day, To: Base},
	} {
		if _, err := s.Groups(t.Context(), q); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("groups, %s: %v; want it refused", name, err)
		}
	}
	for name, q := range map[string]store.BucketQuery{
		"bucket": {From: day, To: Base, Bucket: time.Minute}, "range": {From: Base, To: day, Bucket: time.Hour}, "many": {From: Base.AddDate(-1, 0, 0), To: Base, Bucket: time.Hour},
		"two": {Project: "a", Machine: "b", From: day, To: Base, Bucket: time.Hour}, "hours of a project over days": {Project: "a", From: Base.AddDate(0, 0, -5), To: Base, Bucket: time.Hour},
	} {
		if _, err := s.Buckets(t.Context(), q); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("buckets, %s: %v; want it refused", name, err)
		}
	}
	if _, err := s.History(t.Context(), store.HistoryQuery{Limit: 1000}); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("history: %v; want it refused", err)
	}
	if _, err := s.Names(t.Context(), "secret", "", 10); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("names: %v; want it refused", err)
	}
}

func testHistory(t *testing.T, s Store) {
	m := filled(t, s, 23, 300, 72*time.Hour)
	p := m.puts[0].Record
	for _, h := range []store.HistoryQuery{
		{Project: p.Project, Name: p.Name}, {Project: p.Project, Name: p.Name, Ref: "main", Limit: 5},
		{Project: p.Project, Name: p.Name, Before: Base.AddDate(0, 0, -1), Trace: true, Limit: 300}, {Project: "none", Name: "none"},
	} {
		f := filter.Filter{filter.Is(filter.Project, h.Project), filter.Is(filter.Job, h.Name)}
		if h.Ref != "" {
			f = append(f, filter.Is(filter.Ref, h.Ref))
		}
		if !h.Before.IsZero() {
			f = append(f, filter.Term{Field: filter.Before, At: h.Before})
		}
		want := m.find(f, store.SortEnded, false)
		want = want[:min(len(want), max(h.Limit, 20))]
		if h.Limit > 0 {
			want = want[:min(len(want), h.Limit)]
		}
		got, err := s.History(t.Context(), h)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%+v: %d builds, %v; want %d", h, len(got), err, len(want))
		}
		for i := range got {
			if !got[i].EndedAt.Equal(want[i].Record.EndedAt) || got[i].Name != h.Name {
				t.Errorf("%+v: place %d holds %s", h, i, got[i].Key)
			}
		}
	}
}

func testNames(t *testing.T, s Store) {
	filled(t, s, 24, 100, time.Hour)
	for _, c := range []struct {
		kind, part string
		limit      int
		want       []string
	}{
		{"job", "", 10, []string{"build", "lint", "test"}},
		{"job", "I", 10, []string{"build", "lint"}},
		{"job", "", 1, []string{"build"}},
		{"runner", "ci-1", 10, []string{"Zx8ci-1", "docker-ci-1", "s_ci-1"}},
		{"machine", "%", 10, []string{}},
		{"stage", "script", 10, []string{"step_script"}},
	} {
		got, err := s.Names(t.Context(), c.kind, c.part, c.limit)
		if c.kind == "stage" {
			got = slices.DeleteFunc(got, func(s string) bool { return s == "after_script" })
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("Names(%s, %q) = %q, %v; want %q", c.kind, c.part, got, err, c.want)
		}
	}
}

func testEach(t *testing.T, s Store) {
	m := filled(t, s, 25, 250, 24*time.Hour)
	f := Parse(t, "job:build")
	want := m.find(f, store.SortEnded, true)
	n := 0
	err := s.Each(t.Context(), f, true, func(r *cimeter.Record) error {
		if n >= len(want) || !r.EndedAt.Equal(want[n].Record.EndedAt) {
			return fmt.Errorf("place %d holds %s", n, r.Key)
		}
		n++
		return nil
	})
	if err != nil || n != len(want) {
		t.Errorf("%d builds, %v; want %d", n, err, len(want))
	}
	stop := errors.New("enough")
	n = 0
	if err := s.Each(t.Context(), nil, false, func(*cimeter.Record) error { n++; return stop }); !errors.Is(err, stop) || n != 1 {
		t.Errorf("Each goes on after an error: %d builds, %v", n, err)
	}
}
