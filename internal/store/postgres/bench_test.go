package postgres_test

import (
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/storetest"
)

func BenchmarkIngest(b *testing.B) {
	s, bare := openURL(b, database(b)), openURL(b, database(b))
	storetest.BenchIngest(b, s, func(rows []*store.Row, rollups []store.Rollup) error {
		return bare.Bare(b.Context(), rows, rollups)
	})
}

func TestLarge(t *testing.T) {
	n := storetest.Large(t)
	url := os.Getenv("STORE_URL") // of a database that keeps them for the next run
	if url == "" {
		url = database(t)
	}
	s := openURL(t, url)
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
	// As autovacuum does in the background, without the bound of a writer's time.
	plain, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plain.Exec(t.Context(), "VACUUM ANALYZE"); err != nil {
		t.Fatal(err)
	}
	plain.Close(t.Context())
	start := time.Now()
	s = openURL(t, url)
	st, err = s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("opened in %s: %d builds, %d bytes each", time.Since(start), st.Builds, st.Bytes/st.Builds)
	storetest.Measure(t, s)
}
