package sqlite_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/storetest"
)

// What is old goes, and nothing that is younger by as little as a microsecond (F41).
func TestRetain_exact(t *testing.T) {
	s := open(t)
	m := &storetest.Maker{Random: rand.New(rand.NewPCG(1, 1)), Span: time.Hour, Small: true}
	puts := m.Puts(0, 5)
	limit := storetest.Base.Add(-24 * time.Hour)
	for i, off := range []time.Duration{-time.Hour, -time.Microsecond, 0, time.Microsecond, time.Second} {
		r := puts[i].Record
		r.StartedAt, r.EndedAt = limit.Add(off-time.Minute), limit.Add(off)
	}
	if _, err := s.Put(t.Context(), puts); err != nil {
		t.Fatal(err)
	}
	if kept, err := s.Retain(t.Context(), store.Retention{KeepFrom: limit}); err != nil || kept.Builds != 2 {
		t.Errorf("%+v, %v: want two builds deleted", kept, err)
	}
	page, err := s.List(t.Context(), store.Query{Filter: filter.Filter{}, Asc: true})
	if err != nil || len(page.Records) != 3 || !page.Records[0].EndedAt.Equal(limit) {
		t.Errorf("%d builds are left, %v: want three, the oldest of %s", len(page.Records), err, limit)
	}
}
