package postgres_test

import (
	"os"
	"sync"
	"testing"

	"github.com/cimeter/cimeter/internal/store/postgres"
	"github.com/cimeter/cimeter/internal/storetest"
)

// server is started by the first test that needs it.
var server = sync.OnceValues(storetest.StartPostgres)

func TestMain(m *testing.M) {
	if url := os.Getenv("STORE_CHILD"); url != "" {
		child(url)
		return
	}
	code := m.Run()
	if started {
		if p, err := server(); err == nil {
			p.Stop()
		}
	}
	os.Exit(code)
}

var started bool

func database(t testing.TB) string {
	t.Helper()
	started = true
	p, err := server()
	storetest.NeedPostgres(t, err)
	return p.Database(t)
}

func openURL(t testing.TB, url string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), postgres.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func open(t testing.TB) storetest.Store { return openURL(t, database(t)) }

func TestContract(t *testing.T) { storetest.Run(t, open) }
