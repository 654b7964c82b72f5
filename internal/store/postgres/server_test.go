package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/postgres"
	"github.com/cimeter/cimeter/internal/storetest"
)

// TestCrash ends the whole database at once: what it acknowledged is there, and
// the store works again without being opened again.
func TestCrash(t *testing.T) {
	p, err := storetest.StartPostgres()
	storetest.NeedPostgres(t, err)
	defer p.Stop()
	s := openURL(t, p.Database(t))
	acknowledged, failed := 0, false
	crash := make(chan struct{})
	for n := 0; n < 100000; n += 10 {
		got, err := s.Put(t.Context(), batch(n))
		if err != nil {
			failed = true
			if !errors.Is(err, cimeter.ErrUnavailable) {
				t.Errorf("Put during a crash: %v; want it unavailable", err)
			}
			break
		}
		if acknowledged += got.Stored; acknowledged == 200 {
			go func() { defer close(crash); p.Kill() }()
		}
	}
	if acknowledged >= 200 {
		<-crash
	}
	if !failed || acknowledged == 0 {
		t.Fatalf("%d builds acknowledged, failed %t", acknowledged, failed)
	}
	if _, err := s.Put(t.Context(), batch(0)); !errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("Put without a database: %v; want it unavailable", err)
	}
	if _, err := s.List(t.Context(), store.Query{}); !errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("List without a database: %v; want it unavailable", err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := s.Each(t.Context(), nil, true, func(*cimeter.Record) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	if n < acknowledged || n > acknowledged+10 {
		t.Errorf("%d builds, want the %d acknowledged and at most a batch more", n, acknowledged)
	}
	got, err := s.Put(t.Context(), batch(0))
	if err != nil || got.Duplicates != 10 {
		t.Errorf("Put again = %+v, %v", got, err)
	}
}

func TestOpen_refuses(t *testing.T) {
	url := database(t)
	openURL(t, url)
	for option, value := range map[string]string{"synchronous_commit": "off"} {
		_, err := postgres.Open(t.Context(), postgres.Options{URL: url + "&" + option + "=" + value})
		if !errors.Is(err, cimeter.ErrInvalid) || !strings.Contains(err.Error(), option) {
			t.Errorf("%s=%s: %v; want it refused", option, value, err)
		}
	}
	_, err := postgres.Open(t.Context(), postgres.Options{URL: "postgres://u:geheim@[bad"})
	if !errors.Is(err, cimeter.ErrInvalid) || strings.Contains(err.Error(), "geheim") {
		t.Errorf("a bad URL: %v", err)
	}
	_, err = postgres.Open(t.Context(), postgres.Options{URL: "postgres://u:geheim@127.0.0.1:1/x?sslmode=disable"})
	if !errors.Is(err, cimeter.ErrUnavailable) || strings.Contains(err.Error(), "geheim") {
		t.Errorf("no database: %v", err)
	}
}

func TestReadsEnd(t *testing.T) {
	s, err := postgres.Open(t.Context(), postgres.Options{URL: database(t), ReadTime: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.Queryer().Query(t.Context(), "SELECT pg_sleep(20)", nil, func(func(...any) error) error { return nil })
	if !errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("a long read: %v; want it ended", err)
	}
	err = s.Queryer().Query(t.Context(), "DELETE FROM names", nil, func(func(...any) error) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a reader writes: %v", err)
	}
}

func TestPartitions(t *testing.T) {
	s := openURL(t, database(t))
	puts := batch(0)
	for i := range puts {
		puts[i].Record.EndedAt = storetest.Base.AddDate(0, 0, -7*i)
		puts[i].ReceivedAt = storetest.Base
	}
	puts[9].Record.EndedAt = time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := s.Put(t.Context(), puts); err != nil {
		t.Fatal(err)
	}
	count := func() string {
		v, err := s.Value(t.Context(), "SELECT count(*)::text FROM pg_inherits WHERE inhparent = 'builds'::regclass")
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if got := count(); got != "10" {
		t.Errorf("%s partitions, want one for each of nine weeks and the rest", got)
	}
	for _, table := range []string{"build_keys", "builds", "rollups", "stage_totals", "names"} {
		v, err := s.Value(t.Context(), `SELECT bool_or(a.attname = 'shard')::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indrelid = $1::regclass AND i.indisprimary`, table)
		if err != nil || v != "true" {
			t.Errorf("the key of %s holds no distribution column: %s, %v", table, v, err)
		}
	}
	retain := func(r store.Retention) {
		t.Helper()
		for range 20 {
			got, err := s.Retain(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if !got.More {
				return
			}
		}
		t.Error("more is left to delete after each run")
	}
	retain(store.Retention{KeepFrom: storetest.Base.AddDate(0, 0, -20)})
	if got := count(); got != "5" {
		t.Errorf("%s partitions are left, want one for each of four weeks and the rest", got)
	}
	retain(store.Retention{MaxBytes: 1})
	if got := count(); got != "2" {
		t.Errorf("%s partitions are left, want that of the newest week and the rest", got)
	}
}

// TestPlans holds that no question goes through a whole table of builds.
func TestPlans(t *testing.T) {
	s := openURL(t, database(t))
	m := storetest.NewMaker(1, 20*24*time.Hour)
	for n := 0; n < 1000; n += 200 {
		if _, err := s.Put(t.Context(), m.Puts(n, 200)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Exec(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	q := &explained{Queryer: s.Queryer(), t: t}
	for i, text := range storetest.Filters {
		f := storetest.Parse(t, text)
		for j, sort := range storetest.Sorts {
			if (i+j)%2 == 1 {
				continue
			}
			query := store.Query{Filter: f, Sort: sort, Limit: 5, Examine: []int{0, 20}[i%2]}
			page, err := store.List(t.Context(), q, query)
			if err != nil {
				t.Fatal(err)
			}
			if query.Cursor = page.Next; page.Next != "" {
				if _, err := store.List(t.Context(), q, query); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := store.SumUp(t.Context(), q, f); err != nil {
			t.Fatal(err)
		}
		if _, _, err := store.Course(t.Context(), q, f, 3000); err != nil {
			t.Fatal(err)
		}
	}
	now := storetest.Base
	for _, by := range []store.By{store.ByProject, store.ByJob, store.ByStage, store.ByMachine, store.ByMachineJob, store.ByRunner} {
		for _, days := range []int{1, 90} {
			if _, err := store.GroupTotals(t.Context(), q, store.GroupQuery{By: by, Project: "p", From: now.AddDate(0, 0, -days), To: now}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := store.ListNames(t.Context(), q, "project", "app", 10); err != nil {
		t.Fatal(err)
	}
	if _, err := store.History(t.Context(), q, store.HistoryQuery{Project: "group-0/app-0", Name: "build"}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.NewReader(q).Machines(t.Context(), m.Record(5).Key); err != nil {
		t.Fatal(err)
	}
	if _, err := store.NewReader(q).Neighbours(t.Context(), m.Record(5)); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d plans", q.statements)
}

type explained struct {
	store.Queryer
	t          *testing.T
	statements int
}

func (q *explained) Query(ctx context.Context, text string, args []any, row func(scan func(dest ...any) error) error) error {
	q.statements++
	var plan []string
	err := q.Queryer.Query(ctx, "EXPLAIN "+text, args, func(scan func(dest ...any) error) error {
		var step string
		err := scan(&step)
		plan = append(plan, step)
		return err
	})
	if err != nil {
		return err
	}
	for _, step := range plan {
		if strings.Contains(step, "Seq Scan") {
			q.t.Errorf("%s\nfull scan:\n%s", text, strings.Join(plan, "\n"))
			break
		}
	}
	return q.Queryer.Query(ctx, text, args, row)
}

func TestMigrate(t *testing.T) {
	url := database(t)
	if found, want, err := postgres.Version(t.Context(), url); err != nil || found != 0 || want < 1 {
		t.Errorf("Version of an empty database = %d, %d, %v", found, want, err)
	}
	if err := postgres.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if found, want, err := postgres.Version(t.Context(), url); err != nil || found != want {
		t.Errorf("Version = %d, %d, %v; want the one of this program", found, want, err)
	}
	if err := openURL(t, url).Backup(t.Context(), t.TempDir()); !errors.Is(err, cimeter.ErrUnsupported) || !strings.Contains(err.Error(), "pg_dump") {
		t.Errorf("Backup = %v; want to hear what to use", err)
	}
}
