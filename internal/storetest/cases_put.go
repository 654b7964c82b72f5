package storetest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/store"
)

// put puts records in batches and fails the test when one is not stored.
func put(t testing.TB, s Store, puts []store.Put) {
	t.Helper()
	for len(puts) > 0 {
		n := min(len(puts), 100)
		got, err := s.Put(t.Context(), puts[:n])
		if want := (store.PutResult{Stored: n, Fresh: slices.Repeat([]bool{true}, n), Parts: got.Parts, Part: got.Part}); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("Put = %+v, %v; want %+v", got, err, want)
		}
		puts = puts[n:]
	}
}

func filled(t testing.TB, s Store, seed uint64, n int, span time.Duration) *model {
	t.Helper()
	m := &model{puts: NewMaker(seed, span).Puts(0, n)}
	put(t, s, m.puts)
	return m
}

func testLossless(t *testing.T, s Store) {
	m := filled(t, s, 1, 40, 24*time.Hour)
	m.puts = append(m.puts, store.Put{ReceivedAt: Base, Record: &cimeter.Record{Build: cimeter.Build{Key: "run/bare"}, EndedAt: Base.Add(-time.Second),
		StartedAt: Base.Add(-2*time.Second - 123*time.Nanosecond), Gaps: []cimeter.Gap{{To: Base, Reason: cimeter.GapBeforeAgent}}, Stages: []cimeter.Stage{}}})
	put(t, s, m.puts[40:])
	for _, p := range m.puts {
		got, err := s.Get(t.Context(), p.Record.Key)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, p.Record) {
			t.Fatalf("Get(%s) = %+v\nwant %+v", p.Record.Key, got, p.Record)
		}
		trace, err := s.Trace(t.Context(), p.Record.Key)
		if p.Record.Trace == nil {
			if !errors.Is(err, cimeter.ErrNotFound) {
				t.Errorf("Trace of a build without one = %v, %v", trace, err)
			}
		} else if err != nil || !reflect.DeepEqual(trace, p.Record.Trace) {
			t.Errorf("Trace = %+v, %v; want %+v", trace, err, p.Record.Trace)
		}
	}
	for _, key := range []string{"gitlab/none", "", "a\x00", "\xff", strings.Repeat("k", 5000)} {
		if _, err := s.Get(t.Context(), key); !errors.Is(err, cimeter.ErrNotFound) {
			t.Errorf("Get(%.20q), which is not there: %v", key, err)
		}
		if page, err := s.List(t.Context(), store.Query{Filter: filter.Filter{filter.Is(filter.Key, key)}}); err != nil || len(page.Records) > 0 {
			t.Errorf("List of key %.20q, which is not there: %v", key, err)
		}
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func testOnce(t *testing.T, s Store) {
	puts := NewMaker(2, time.Hour).Puts(0, 10)
	put(t, s, puts)
	changed := *puts[0].Record
	changed.Result, changed.EndedAt = "other", changed.EndedAt.Add(-time.Minute)
	again := append(puts[:10:10], store.Put{Record: &changed, ReceivedAt: Base})
	got, err := s.Put(t.Context(), again)
	if want := (store.PutResult{Duplicates: 11, Fresh: make([]bool, 11)}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Put again = %+v, %v; want %+v", got, err, want)
	}
	p := NewMaker(3, time.Hour).Put(50)
	got, err = s.Put(t.Context(), []store.Put{puts[3], p, p})
	if want := (store.PutResult{Stored: 1, Duplicates: 2, Fresh: []bool{false, true, false}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Put of one twice = %+v, %v; want %+v", got, err, want)
	}
	r, err := s.Get(t.Context(), changed.Key)
	if err != nil || r.Result != puts[0].Record.Result {
		t.Errorf("the first was not kept: %+v, %v", r, err)
	}
	g, err := s.Groups(t.Context(), store.GroupQuery{By: store.ByProject, From: Base.AddDate(0, 0, -7), To: Base})
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for _, x := range g.Groups {
		n += x.Builds
	}
	if n != 11 {
		t.Errorf("rollups count %d builds, want 11", n)
	}
	if got, err := s.Put(t.Context(), nil); err != nil || got.Stored+got.Duplicates+got.Expired+len(got.Fresh) != 0 {
		t.Errorf("Put of nothing = %+v, %v", got, err)
	}
}

func testWholeBatch(t *testing.T, s Store) {
	puts := NewMaker(4, time.Hour).Puts(0, 5)
	bad := *puts[4].Record
	bad.Usage.WallSeconds = math.Inf(1)
	puts[4].Record = &bad
	if _, err := s.Put(t.Context(), puts); !errors.Is(err, cimeter.ErrInvalid) || !strings.Contains(err.Error(), bad.Key) {
		t.Errorf("Put = %v; want an invalid record by its key", err)
	}
	if st, err := s.Stats(t.Context()); err != nil || st.Builds != 0 {
		t.Errorf("Stats = %+v, %v; want no builds", st, err)
	}
}

func testRefused(t *testing.T, s Store) {
	for name, change := range map[string]func(p *store.Put){
		"no record":       func(p *store.Put) { p.Record = nil },
		"no key":          func(p *store.Put) { p.Record.Key = "" },
		"key with NUL":    func(p *store.Put) { p.Record.Key = "a\x00b" },
		"key not UTF-8":   func(p *store.Put) { p.Record.Key = "a\xff" },
		"key too long":    func(p *store.Put) { p.Record.Key = strings.Repeat("k", store.MaxKeyBytes+1) },
		"no end":          func(p *store.Put) { p.Record.EndedAt = time.Time{} },
		"far end":         func(p *store.Put) { p.Record.EndedAt = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) },
		"no receipt":      func(p *store.Put) { p.ReceivedAt = time.Time{} },
		"too many stages": func(p *store.Put) { p.Record.Stages = make([]cimeter.Stage, store.MaxStages+1) },
	} {
		p := NewMaker(5, time.Hour).Put(1)
		change(&p)
		if _, err := s.Put(t.Context(), []store.Put{p}); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%s: Put = %v; want an invalid record", name, err)
		}
	}
	if _, err := s.Put(t.Context(), make([]store.Put, store.MaxBatch+1)); !errors.Is(err, cimeter.ErrInvalid) {
		t.Error("a batch over the bound was taken")
	}
	p := NewMaker(6, time.Hour).Put(1)
	p.Record.Key = strings.Repeat("k", store.MaxKeyBytes)
	p.Record.Usage.NetworkBytes = &cimeter.ReceiveTransmit[uint64]{Receive: math.MaxUint64, Transmit: math.MaxUint64}
	p.Record.Usage.WallSeconds = math.MaxFloat64
	put(t, s, []store.Put{p})
	if r, err := s.Get(t.Context(), p.Record.Key); err != nil || !reflect.DeepEqual(r, p.Record) {
		t.Errorf("Get = %+v, %v", r, err)
	}
}

// testReordered puts the same records from several senders at once, shuffled,
// some twice, as agents do that send again.
func testReordered(t *testing.T, s Store) {
	const senders = 4
	m := &model{puts: NewMaker(7, 48*time.Hour).Puts(0, 300)}
	var stored, duplicates [senders]int
	var wg sync.WaitGroup
	for i := range senders {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			mine := append([]store.Put(nil), m.puts...)
			r.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			for len(mine) > 0 {
				n := min(1+r.IntN(30), len(mine))
				got, err := s.Put(t.Context(), mine[:n])
				if err != nil {
					t.Errorf("Put: %v", err)
					return
				}
				stored[i] += got.Stored
				duplicates[i] += got.Duplicates
				mine = mine[n:]
			}
		})
	}
	wg.Wait()
	total, twice := 0, 0
	for i := range senders {
		total += stored[i]
		twice += duplicates[i]
	}
	if total != 300 || twice != 900 {
		t.Errorf("stored %d and refused %d twice; want 300 and 900", total, twice)
	}
	checkAll(t, s, m)
}

// checkAll holds every build and every rollup against the model.
func checkAll(t testing.TB, s Store, m *model) {
	t.Helper()
	want := map[string]bool{}
	for _, p := range m.puts {
		want[p.Record.Key] = true
	}
	if err := s.Each(t.Context(), nil, true, func(r *cimeter.Record) error {
		if !want[r.Key] {
			return fmt.Errorf("%s: there twice, or not put", r.Key)
		}
		delete(want, r.Key)
		return nil
	}); err != nil {
		t.Error(err)
	}
	if len(want) > 0 {
		t.Errorf("%d builds are not there", len(want))
	}
	for _, by := range []store.By{store.ByProject, store.ByJob, store.ByStage, store.ByMachine, store.ByMachineJob, store.ByRunner} {
		checkGroups(t, s, m, store.GroupQuery{By: by, From: Base.AddDate(0, 0, -40), To: Base.AddDate(0, 0, 1), Limit: store.MaxGroups})
	}
}

func testHostileNames(t *testing.T, s Store) {
	names := []string{`'; DROP TABLE builds; --`, `100%`, `a_b`, `a\b`, `"quoted"`, "<script>alert(1)</script>", "\u202etxt", "ünïcödé", "a?b$1", strings.Repeat("long", 300), "nul\x00nul", "bad\xffutf8", ""}
	var puts []store.Put
	for i, name := range names {
		p := NewMaker(8, time.Hour).Put(i)
		p.Record.Project, p.Record.Name, p.Record.Ref, p.Record.Machine, p.Record.Runner = name, name, name, name, cimeter.Runner{Name: name}
		p.Record.Stages[0].Name = name
		p.Record.Verdicts = []cimeter.Verdict{{Kind: name}}
		puts = append(puts, p)
	}
	put(t, s, puts)
	for i, name := range names {
		for _, f := range []filter.Field{filter.Project, filter.Job, filter.Ref, filter.Machine, filter.Stage} {
			page, err := s.List(t.Context(), store.Query{Filter: filter.Filter{filter.Is(f, name)}})
			if err != nil || len(page.Records) != 1 || page.Records[0].Key != puts[i].Record.Key {
				t.Errorf("%s:%.30q finds %d builds, %v; want the one", f, name, len(page.Records), err)
			}
		}
		if name == "" {
			continue
		}
		page, err := s.List(t.Context(), store.Query{Filter: filter.Filter{filter.Is(filter.Runner, name), {Field: filter.Project, Op: filter.Eq, Text: name, Prefix: true}}})
		if err != nil || len(page.Records) != 1 {
			t.Errorf("runner:%.30q with a prefix finds %d builds, %v; want the one", name, len(page.Records), err)
		}
		page, err = s.List(t.Context(), store.Query{Filter: filter.Filter{filter.Is(filter.Text, name)}})
		if err != nil || len(page.Records) != 1 {
			t.Errorf("%.30q finds %d builds, %v; want the one", name, len(page.Records), err)
		}
		if _, err := s.Names(t.Context(), "project", name, 10); err != nil {
			t.Error(err)
		}
	}
}

func testFuture(t *testing.T, s Store) {
	m := filled(t, s, 9, 20, time.Hour)
	p := NewMaker(10, time.Hour).Put(100)
	p.Record.EndedAt = Base.AddDate(10, 0, 0)
	p.ReceivedAt = Base.AddDate(0, 0, -1)
	put(t, s, []store.Put{p})
	page, err := s.List(t.Context(), store.Query{Limit: 21})
	if err != nil || len(page.Records) != 21 || page.Records[20].Key != p.Record.Key {
		t.Errorf("the build that ended in ten years is not listed by its receipt: %d builds, %v", len(page.Records), err)
	}
	if !page.Records[20].EndedAt.Equal(p.Record.EndedAt) {
		t.Error("its record was changed")
	}
	m.puts = append(m.puts, p)
	checkAll(t, s, m)
}
