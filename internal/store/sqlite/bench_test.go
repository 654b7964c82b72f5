package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/sqlite"
	"github.com/cimeter/cimeter/internal/storetest"
)

func BenchmarkIngest(b *testing.B) {
	dir := b.TempDir()
	s := openAt(b, filepath.Join(dir, "builds.sqlite"))
	defer s.Close()
	bare := openAt(b, filepath.Join(dir, "bare.sqlite"))
	defer bare.Close()
	storetest.BenchIngest(b, s, func(rows []*store.Row, rollups []store.Rollup) error {
		return bare.Bare(b.Context(), rows, rollups)
	})
}

func TestLarge(t *testing.T) {
	n := storetest.Large(t)
	dir := os.Getenv("STORE_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	path := filepath.Join(dir, "builds.sqlite")
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Migrate: true}) // it may have been kept for long
	if err != nil {
		t.Fatal(err)
	}
	st, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if have := int(st.Builds); have < n {
		err := s.Bulk(t.Context(), func(write func(rows []*store.Row) error) { storetest.Fill(t, have, n, write) })
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	s, err = sqlite.Open(t.Context(), sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	st, err = s.Stats(t.Context())
	t.Logf("opened in %s: %d builds, %d bytes each, %v", time.Since(start), st.Builds, st.Bytes/st.Builds, err)
	storetest.Measure(t, s, nil)
}
