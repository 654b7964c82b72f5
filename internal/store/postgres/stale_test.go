package postgres_test

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/postgres"
	"github.com/cimeter/cimeter/internal/storetest"
)

// Connections that died with a database are not used once it is back: the first
// questions and batches afterwards find no error (F39).
func TestStore_databaseIsBack(t *testing.T) {
	p, err := storetest.StartPostgres()
	storetest.NeedPostgres(t, err)
	defer p.Stop()
	s := openURL(t, p.Database(t))
	for round := range 3 {
		for _, when := range []string{"before", "after"} {
			var all sync.WaitGroup
			for i := range 8 { // as many as there are connections
				all.Go(func() {
					if _, err := s.List(t.Context(), store.Query{}); err != nil {
						t.Errorf("List %s the crash: %v", when, err)
					}
					if _, err := s.Put(t.Context(), batch(100*(8*round+i))); err != nil {
						t.Errorf("Put %s the crash: %v", when, err)
					}
				})
			}
			all.Wait()
			if when == "before" {
				p.Kill()
				if err := p.Start(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// A connection that the database has ended is asked at once, and one that lives is not.
func TestStore_asksTheEnded(t *testing.T) {
	url := database(t)
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	other, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(t.Context())
	if postgres.Asks(c) {
		t.Error("a connection that lives is asked")
	}
	if _, err := other.Exec(t.Context(), "SELECT pg_terminate_backend($1, 60000)", c.PgConn().PID()); err != nil {
		t.Fatal(err)
	}
	if !postgres.Asks(c) { // the database ends after its farewell
		t.Error("a connection that the database has ended is not asked")
	}
}
