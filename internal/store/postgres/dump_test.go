package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/postgres"
	"github.com/cimeter/cimeter/internal/storetest"
)

// A backup by pg_dump, made while batches come, holds each batch whole or not at all, and
// those that were acknowledged before it began; restored, it is a store that goes on.
func TestDump(t *testing.T) {
	url, other := database(t), database(t)
	openURL(t, url)
	cmd, out := startChild(t, url, "STORE_CHILD_DOES=put")
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	const before = 5
	for n := range before {
		if !out.Scan() || out.Text() != fmt.Sprint("ack ", 10*n) {
			t.Fatalf("child: %s", out.Text())
		}
	}
	file := filepath.Join(t.TempDir(), "copy")
	for _, tool := range [][]string{{"pg_dump", "--format=custom", "--file=" + file, url}, {"pg_restore", "--exit-on-error", "--dbname=" + other, file}} {
		if said, err := exec.CommandContext(t.Context(), tool[0], tool[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", tool[0], err, said)
		}
	}
	s := openURL(t, other)
	there := map[part]bool{}
	if err := s.Each(t.Context(), nil, true, func(r *cimeter.Record) error { there[partOf(r)] = true; return nil }); err != nil {
		t.Fatal(err)
	}
	batches := len(there) / 10
	if batches < before || len(there)%10 != 0 {
		t.Errorf("%d records, want those of at least %d batches, each whole", len(there), before)
	}
	for n := range batches + 1 { // and another one
		got, err := s.Put(t.Context(), batch(10*n))
		if want := n == batches; err != nil || (got.Stored == 10) != want || (got.Duplicates == 10) == want {
			t.Errorf("batch %d of %d: %+v, %v", n, batches, got, err)
		}
	}
	if st, err := s.Stats(t.Context()); err != nil || int(st.Builds) != 7*(batches+1)+1 { // of the first batch one record less is a part
		t.Errorf("%+v, %v: want the builds of %d batches", st, err, batches+1)
	}
}

// Retention does not make pages and batches wait for the end of a backup, which holds
// what it would drop.
func TestRetain_whileDumped(t *testing.T) {
	url := database(t)
	s, err := postgres.Open(t.Context(), postgres.Options{URL: url, ReadTime: 8 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Put(t.Context(), weekLater(0, 0)); err != nil {
		t.Fatal(err)
	}
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	dump, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dump.Exec(t.Context(), "LOCK TABLE builds IN ACCESS SHARE MODE"); err != nil { // as pg_dump does
		t.Fatal(err)
	}
	r := store.Retention{KeepFrom: storetest.Base.AddDate(0, 0, -7)}
	retained := make(chan error, 1)
	go func() {
		_, err := s.Retain(t.Context(), r)
		retained <- err
	}()
	read := func() {
		t.Helper()
		if page, err := s.List(t.Context(), store.Query{}); err != nil || len(page.Records) != 10 {
			t.Errorf("List: %d records, %v; want all 10", len(page.Records), err)
		}
	}
	for waiting := true; waiting; {
		read()
		select {
		case err := <-retained:
			waiting = false
			if !errors.Is(err, cimeter.ErrUnavailable) {
				t.Errorf("Retain during a backup = %v; want it unavailable", err)
			}
		default:
		}
	}
	read()
	if err := dump.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Retain(t.Context(), r); err != nil || got.Builds == 0 {
		t.Errorf("Retain after it = %+v, %v", got, err)
	}
}
