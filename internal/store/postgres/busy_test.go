package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
)

// A database that has no connection left, that ends the backends of a batch, or whose
// tables are locked for longer than a batch waits, is unavailable: the batch is put
// again, and is there once (F39).
func TestBusy(t *testing.T) {
	url := database(t)
	ctx := t.Context()
	admin, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.WithoutCancel(ctx))
	exec := func(statement string) {
		t.Helper()
		if _, err := admin.Exec(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	name := admin.Config().Database
	role := "few_" + name // no superuser: that one is let in beyond the bound
	exec("CREATE ROLE " + role + " LOGIN")
	exec("ALTER DATABASE " + name + " OWNER TO " + role)
	s := openURL(t, strings.Replace(url, "//postgres@", "//"+role+"@", 1))
	puts := batch(0)
	expect := func(what string, ctx context.Context) {
		t.Helper()
		if _, err := s.Put(ctx, puts); !errors.Is(err, cimeter.ErrUnavailable) {
			t.Errorf("Put when %s: %v; want it unavailable", what, err)
		}
	}
	end := fmt.Sprintf("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '%s'", role)

	exec("ALTER ROLE " + role + " CONNECTION LIMIT 0")
	exec(end)
	expect("there are too many connections", ctx)
	if _, err := s.List(ctx, store.Query{}); !errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("List when there are too many connections: %v; want it unavailable", err)
	}
	exec("ALTER ROLE " + role + " CONNECTION LIMIT -1")

	// Ended while it waits for a lock, in the middle of its batch.
	exec("BEGIN")
	exec("LOCK TABLE rollups IN ACCESS EXCLUSIVE MODE")
	ended := make(chan error, 1)
	go func() {
		_, err := s.Put(ctx, puts)
		ended <- err
	}()
	// By another connection: in a transaction pg_stat_activity stays as it was read first.
	other, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.WithoutCancel(ctx))
	waits := "SELECT count(*) FROM pg_stat_activity WHERE usename = '" + role + "' AND wait_event_type = 'Lock'"
	for n := 0; n == 0; {
		if err := other.QueryRow(ctx, waits).Scan(&n); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			t.Fatalf("Put did not wait for the lock: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if _, err := other.Exec(ctx, end); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("Put whose backend was ended: %v; want it unavailable", err)
	}
	expect("a lock lasts", ctx) // for as long as lock_timeout has it wait
	exec("ROLLBACK")

	got, err := s.Put(ctx, puts)
	if err != nil || got.Stored != len(puts) {
		t.Errorf("Put again = %+v, %v; want all stored: nothing of what failed is there", got, err)
	}
	if got, err = s.Put(ctx, puts); err != nil || got.Duplicates != len(puts) {
		t.Errorf("Put once more = %+v, %v; want all there already", got, err)
	}
	st, err := s.Stats(ctx)
	if want := len(puts) - 2; err != nil || int(st.Builds) != want { // two are parts of another
		t.Errorf("%+v, %v: want %d builds", st, err, want)
	}
}
