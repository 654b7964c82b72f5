package postgres_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/postgres"
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
	if err := postgres.Migrate(t.Context(), url); err != nil { // it may have been kept for long
		t.Fatal(err)
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
	storetest.Measure(t, s, func() time.Duration { return backends(t, s) })
}

// backends is the CPU time of the backends of a store's connections.
func backends(t *testing.T, s *postgres.Store) (sum time.Duration) {
	t.Helper()
	pids, err := s.Value(t.Context(), "SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE application_name = 'cimeter'")
	if err != nil {
		t.Fatal(err)
	}
	for pid := range strings.FieldsSeq(pids) {
		b, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			t.Fatalf("%v: want a database on this machine", err)
		}
		_, after, _ := strings.Cut(string(b), ") ")
		fields := strings.Fields(after)
		for _, f := range fields[11:13] { // utime and stime, in ticks of 10 ms
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}
