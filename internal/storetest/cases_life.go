package storetest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/store"
)

func testStats(t *testing.T, s Store) {
	st, err := s.Stats(t.Context())
	if err != nil || st.Version < 1 || st.Builds != 0 || !st.Oldest.IsZero() || !st.Newest.IsZero() {
		t.Errorf("Stats of an empty store = %+v, %v", st, err)
	}
	m := filled(t, s, 40, 120, 24*time.Hour)
	ends := m.find(nil, store.SortEnded, true)
	st, err = s.Stats(t.Context())
	if err != nil || st.Builds != 120 || !st.Oldest.Equal(ends[0].Record.EndedAt) || !st.Newest.Equal(ends[119].Record.EndedAt) || st.Bytes < 1000 {
		t.Errorf("Stats = %+v, %v", st, err)
	}
}

func retainAll(t testing.TB, s Store, r store.Retention) (out store.Retained) {
	t.Helper()
	for range 100 {
		got, err := s.Retain(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		out.Builds += got.Builds
		out.Bytes = got.Bytes
		if !got.More {
			return out
		}
	}
	t.Fatal("retention does not end")
	return out
}

// testRetainAge uses a cut that is a Monday's midnight, as a back end may
// delete by the week.
func testRetainAge(t *testing.T, s Store) {
	m := filled(t, s, 41, 600, 28*24*time.Hour)
	cut := Base.AddDate(0, 0, -14)
	gone := NewMaker(44, time.Hour).Put(5000)
	gone.Record.Ref = "gone-with-its-build"
	gone.Record.EndedAt = Base.AddDate(0, 0, -20)
	put(t, s, []store.Put{gone})
	m.puts = append(m.puts, gone)
	if cut.Weekday() != time.Monday {
		t.Fatalf("%s is a %s", cut, cut.Weekday())
	}
	var young, old []store.Put
	for _, p := range m.puts {
		if p.Record.EndedAt.Before(cut) {
			old = append(old, p)
		} else {
			young = append(young, p)
		}
	}
	if got := retainAll(t, s, store.Retention{}); got.Builds != 0 {
		t.Errorf("retention without bounds deleted %d builds", got.Builds)
	}
	if got := retainAll(t, s, store.Retention{KeepFrom: cut}); got.Builds != int64(len(old)) {
		t.Errorf("deleted %d builds, want %d", got.Builds, len(old))
	}
	for _, p := range young {
		if _, err := s.Get(t.Context(), p.Record.Key); err != nil {
			t.Fatalf("a young build is gone: %v", err)
		}
	}
	for _, p := range old {
		if _, err := s.Get(t.Context(), p.Record.Key); !errors.Is(err, cimeter.ErrNotFound) {
			t.Fatalf("an old build is there: %v", err)
		}
	}
	st, err := s.Stats(t.Context())
	if err != nil || st.Builds != int64(len(young)) || st.Oldest.Before(cut) {
		t.Errorf("Stats = %+v, %v; want %d builds", st, err, len(young))
	}
	for _, name := range stageNames {
		f := filter.Filter{filter.Is(filter.Stage, name)}
		want := (&model{puts: young}).find(f, store.SortEnded, false)
		if got := pages(t, s, store.Query{Filter: f, Limit: 500}); len(got) != len(want) {
			t.Errorf("%s: %d builds, want %d", f, len(got), len(want))
		}
	}
	if got, err := s.Names(t.Context(), "ref", "", 1000); err != nil || slices.Contains(got, gone.Record.Ref) || !slices.Contains(got, "main") {
		t.Errorf("Names of refs = %q, %v; want those that builds have", got, err)
	}
	again := NewMaker(45, time.Hour).Put(5001)
	again.Record.Ref = gone.Record.Ref
	put(t, s, []store.Put{again})
	m.puts, young = append(m.puts, again), append(young, again)
	if got, err := s.Names(t.Context(), "ref", "gone", 1000); err != nil || len(got) != 1 {
		t.Errorf("Names of a ref that is back = %q, %v", got, err)
	}
	// The totals of deleted builds stay, and are not counted again.
	got, err := s.Put(t.Context(), old[:10])
	if want := (store.PutResult{Expired: 10, Fresh: make([]bool, 10)}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Put of deleted builds = %+v, %v; want %+v", got, err, want)
	}
	checkGroups(t, s, m, store.GroupQuery{By: store.ByProject, From: Base.AddDate(0, 0, -40), To: Base, Limit: 1000})
	retainAll(t, s, store.Retention{TotalsFrom: cut})
	checkGroups(t, s, &model{puts: young}, store.GroupQuery{By: store.ByStage, From: Base.AddDate(0, 0, -40), To: Base, Limit: 1000})
	// The bound moves with time.
	later := cut.AddDate(0, 0, 7)
	retainAll(t, s, store.Retention{KeepFrom: later})
	i := slices.IndexFunc(young, func(p store.Put) bool { return p.Record.EndedAt.Before(later) })
	if got, err := s.Put(t.Context(), young[i:i+1]); err != nil || got.Expired != 1 {
		t.Errorf("Put of a build that was deleted later = %+v, %v; want it expired", got, err)
	}
}

func testRetainSize(t *testing.T, s Store) {
	m := &Maker{Random: NewMaker(42, 0).Random, Span: 28 * 24 * time.Hour, Stages: 10, Steps: 100}
	puts := m.Puts(0, 600)
	put(t, s, puts)
	before, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := retainAll(t, s, store.Retention{MaxBytes: before.Bytes}); got.Builds != 0 {
		t.Errorf("deleted %d builds of a store that is not too large", got.Builds)
	}
	bound := before.Bytes * 7 / 10
	got := retainAll(t, s, store.Retention{MaxBytes: bound})
	after, err := s.Stats(t.Context())
	if err != nil || got.Builds == 0 || after.Bytes > bound || after.Builds+got.Builds != 600 || after.Builds < 100 {
		t.Errorf("deleted %d builds, %+v, %v; want at most %d bytes", got.Builds, after, err, bound)
	}
	want := (&model{puts: puts}).find(nil, store.SortEnded, false)[:after.Builds]
	for _, p := range want {
		if _, err := s.Get(t.Context(), p.Record.Key); err != nil {
			t.Fatalf("a build younger than others is gone: %v", err)
		}
	}
}

func testLead(t *testing.T, s Store) {
	held, release, err := s.Lead(t.Context(), "poller")
	if err != nil {
		t.Fatal(err)
	}
	if _, r, err := s.Lead(t.Context(), "retention"); err != nil {
		t.Errorf("another name: %v", err)
	} else {
		r()
	}
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() {
		_, r, err := s.Lead(ctx, "poller")
		if err == nil {
			r()
		}
		second <- err
	}()
	select {
	case err := <-second:
		t.Fatalf("two lead at once, or none can wait: %v", err)
	case <-held:
		t.Fatal("lost the lead")
	default:
	}
	release()
	<-held
	if err := <-second; err != nil {
		t.Errorf("the second does not follow: %v", err)
	}
	_, release, err = s.Lead(t.Context(), "poller")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	cancel()
	if _, _, err := s.Lead(ctx, "poller"); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting ends with its context: %v", err)
	}
}

func testReadWhileWriting(t *testing.T, s Store) {
	puts := NewMaker(43, 24*time.Hour).Puts(0, 400)
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < len(puts) && err == nil; i += 5 {
			_, err = s.Put(t.Context(), puts[i:i+5])
		}
		done <- err
	}()
	for last := 0; ; {
		n := 0
		if err := s.Each(t.Context(), nil, false, func(*cimeter.Record) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		if n < last {
			t.Fatalf("%d builds after %d", n, last)
		}
		last = n
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			checkAll(t, s, &model{puts: puts})
			return
		default:
		}
	}
}
