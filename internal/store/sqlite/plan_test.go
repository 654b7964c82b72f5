package sqlite_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/sqlite"
	"github.com/cimeter/cimeter/internal/storetest"
)

// explained runs each statement and asks for its plan.
type explained struct {
	store.Queryer
	t          *testing.T
	statements int
	covered    bool // indexes alone are to be read
}

func (q *explained) Query(ctx context.Context, text string, args []any, row func(scan func(dest ...any) error) error) error {
	q.statements++
	err := q.Queryer.Query(ctx, "EXPLAIN QUERY PLAN "+text, args, func(scan func(dest ...any) error) error {
		var id, parent, unused int
		var step string
		if err := scan(&id, &parent, &unused, &step); err != nil {
			return err
		}
		// SCAN walks a whole table or index. Along an index it stops at its LIMIT,
		// but only when nothing is sorted behind it.
		if strings.HasPrefix(step, "SCAN") && !strings.HasPrefix(step, "SCAN b USING") && step != "SCAN b" && step != "SCAN (subquery-2)" && step != "SCAN counted" && step != "SCAN near" && step != "SCAN CONSTANT ROW" && step != "SCAN w" && !strings.HasSuffix(step, " CONSTANT ROWS") && !strings.HasPrefix(step, "SCAN (subquery") {
			q.t.Errorf("%s\nfull scan: %s", text, step)
		}
		if step == "SCAN b" && !strings.Contains(text, "FROM (SELECT b.id, ") {
			q.t.Errorf("%s\nfull scan: %s", text, step)
		}
		if strings.HasPrefix(step, "SCAN b USING") && !strings.Contains(text, "LIMIT") {
			q.t.Errorf("%s\nfull scan without a bound: %s", text, step)
		}
		if strings.Contains(step, "TEMP B-TREE FOR") && strings.Contains(step, "ORDER BY") && strings.Contains(text, " LIMIT ? OFFSET ?") {
			q.t.Errorf("%s\na walk is sorted: %s", text, step)
		}
		if q.covered && strings.Contains(step, " b USING ") && !strings.Contains(step, "COVERING") {
			q.t.Errorf("%s\nbuilds are read one by one: %s", text, step)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return q.Queryer.Query(ctx, text, args, row)
}

func TestPlans(t *testing.T) {
	s := open(t).(*sqlite.Store)
	puts := put(t, s, 60)
	q := &explained{Queryer: s.Queryer(), t: t}
	now := storetest.Base
	for _, text := range storetest.Filters {
		f := storetest.Parse(t, text)
		for _, sort := range storetest.Sorts {
			for _, examine := range []int{0, 2} { // 2: all are walks
				query := store.Query{Filter: f, Sort: sort, Limit: 5, Examine: examine}
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
		}
		if _, err := store.SumUp(t.Context(), q, f); err != nil {
			t.Fatal(err)
		}
		if _, _, err := store.Course(t.Context(), q, f, 3000); err != nil {
			t.Fatal(err)
		}
	}
	for _, by := range []store.By{store.ByProject, store.ByJob, store.ByStage, store.ByMachine, store.ByMachineJob, store.ByRunner} {
		for _, days := range []int{1, 90} {
			if _, err := store.GroupTotals(t.Context(), q, store.GroupQuery{By: by, Project: "p", Machine: "m", From: now.AddDate(0, 0, -days), To: now}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, b := range []store.BucketQuery{{}, {Project: "p"}, {Project: "p", Name: "n"}, {Machine: "m"}, {Runner: "r"}} {
		b.From, b.To, b.Bucket = now.AddDate(0, 0, -1), now, time.Hour
		if _, err := store.BucketTotals(t.Context(), q, b); err != nil {
			t.Fatal(err)
		}
		b.From, b.Bucket = now.AddDate(0, 0, -90), 24*time.Hour
		if _, err := store.BucketTotals(t.Context(), q, b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.ListNames(t.Context(), q, "project", "app", 10); err != nil {
		t.Fatal(err)
	}
	if _, err := store.NewReader(q).Machines(t.Context(), puts[0].Record.Key); err != nil {
		t.Fatal(err)
	}
	if _, err := store.NewReader(q).Neighbours(t.Context(), puts[0].Record); err != nil {
		t.Fatal(err)
	}
	if last, err := store.History(t.Context(), q, store.HistoryQuery{Project: puts[0].Record.Project, Name: puts[0].Record.Name}); err != nil || len(last) == 0 {
		t.Fatalf("%d builds, %v", len(last), err)
	}
	q.covered = true
	for _, text := range storetest.Covered {
		f := storetest.Parse(t, text)
		for _, sort := range storetest.Sorts {
			for _, examine := range []int{0, 2} {
				if _, err := store.List(t.Context(), q, store.Query{Filter: f, Sort: sort, Limit: 5, Examine: examine}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, text := range []string{"", "since:2026-11-29T12:00", "project:group-0/app-0", "project:group-0/app-0 job:build since:2026-11-20", "result:failed"} {
		if _, err := store.SumUp(t.Context(), q, storetest.Parse(t, text)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := store.Course(t.Context(), q, storetest.Parse(t, text), store.MaxExamine); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d plans", q.statements)
	if q.statements < 500 {
		t.Errorf("%d statements were looked at", q.statements)
	}
}
