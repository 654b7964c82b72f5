package storetest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/store"
)

// What a build may take in a store at most, indexes and totals included, in bytes.
const (
	maxStageBytes = 2 << 10
	maxTraceBytes = 10 << 10
)

// Size holds what a store takes on the disk for builds of many stages, without a
// trace and with one.
func Size(t *testing.T, open func(t testing.TB) Store) {
	const n, stages = 500, 10
	taken := func(steps int) int64 {
		s := open(t)
		empty, err := s.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m := &Maker{Random: rand.New(rand.NewPCG(7, 7)), Span: time.Hour, Stages: stages, Steps: max(steps, 1)}
		puts := m.Puts(0, n)
		for i := range puts {
			if steps == 0 {
				puts[i].Record.Trace = nil
			}
		}
		for len(puts) > 0 {
			part := puts[:min(len(puts), store.MaxBatch)]
			puts = puts[len(part):]
			if _, err := s.Put(t.Context(), part); err != nil {
				t.Fatal(err)
			}
		}
		st, err := s.Stats(t.Context())
		if err != nil || st.Builds != n {
			t.Fatalf("%+v, %v: want %d builds", st, err, n)
		}
		return (st.Bytes - empty.Bytes) / n
	}
	bare, traced := taken(0), taken(128)
	t.Logf("%d bytes a build of %d stages, %d more with a trace", bare, stages, traced-bare)
	if bare > stages*maxStageBytes {
		t.Errorf("a build of %d stages takes %d bytes: want at most %d", stages, bare, stages*maxStageBytes)
	}
	if traced-bare > maxTraceBytes || traced <= bare {
		t.Errorf("a trace takes %d bytes: want at most %d", traced-bare, maxTraceBytes)
	}
}
