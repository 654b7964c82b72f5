package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
)

// List answers a Query. A page costs at most the look at a bounded number of
// builds: those of the narrowest way into the table when they are few, which
// are then sorted, else the next ones in the order of the list.
func List(ctx context.Context, q Queryer, query Query) (Page, error) {
	if query.Sort == "" {
		query.Sort = SortEnded
	}
	if query.Limit == 0 {
		query.Limit = 50
	}
	if query.Limit < 1 || query.Limit > MaxLimit {
		return Page{}, fmt.Errorf("limit %d: want 1 to %d: %w", query.Limit, MaxLimit, cimeter.ErrInvalid)
	}
	if query.Examine == 0 {
		query.Examine = MaxExamine
	}
	if query.Examine < 1 || query.Examine > MaxExamine {
		return Page{}, fmt.Errorf("examine %d builds: want 1 to %d: %w", query.Examine, MaxExamine, cimeter.ErrInvalid)
	}
	sc := scan{sort: query.Sort, asc: query.Asc, cursor: query.Cursor, columns: "b.id, b.at, 0", limit: query.Limit, examine: query.Examine}
	if q.Dialect() == Postgres {
		sc.columns = "b.id, b.at, b.shard"
	}
	var refs []Ref
	next, err := sc.run(ctx, q, query.Filter, func(scan func(dest ...any) error) error {
		var r Ref
		err := scan(&r.ID, &r.At, &r.Shard)
		refs = append(refs, r)
		return err
	})
	if err != nil {
		return Page{}, err
	}
	records, err := load(ctx, q, refs, query.Trace)
	return Page{Records: records, Next: next}, err
}

// load returns the records of refs in their order, without those that were
// deleted meanwhile.
func load(ctx context.Context, q Queryer, refs []Ref, traces bool) ([]*cimeter.Record, error) {
	records := make([]*cimeter.Record, len(refs))
	if len(refs) == 0 {
		return records, nil
	}
	err := q.Load(ctx, refs, traces, func(i int, key string, record, trace []byte) error {
		r, err := Decode(key, record, trace)
		records[i] = r
		return err
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(records, func(r *cimeter.Record) bool { return r == nil }), nil
}

// Each calls fn with every build that meets the filter, the earliest end first,
// until fn or the store fails. What is stored meanwhile may or may not be in it.
func Each(ctx context.Context, q Queryer, f filter.Filter, traces bool, fn func(*cimeter.Record) error) error {
	query := Query{Filter: f, Asc: true, Limit: 100, Trace: traces}
	for {
		page, err := List(ctx, q, query)
		if err != nil {
			return err
		}
		for _, r := range page.Records {
			if err := fn(r); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		query.Cursor = page.Next
	}
}

// scan goes through the builds that meet a filter in an order.
type scan struct {
	sort    Sort
	asc     bool
	cursor  string
	columns string // of b, behind the sort's; the first is b.id
	limit   int    // rows wanted
	examine int    // rows looked at by a walk
}

// run calls row for each build and returns the cursor behind them, "" when
// there are no more.
func (sc *scan) run(ctx context.Context, q Queryer, f filter.Filter, row func(scan func(dest ...any) error) error) (next string, err error) {
	column, ok := sortColumns[sc.sort]
	if !ok {
		return "", fmt.Errorf("sort %.20q: want one of %v: %w", sc.sort, sorts(), cimeter.ErrInvalid)
	}
	var after *position
	if sc.cursor != "" {
		p, err := decodeCursor(sc.sort, sc.asc, sc.cursor)
		if err != nil {
			return "", err
		}
		after = &p
	}
	c, err := compile(ctx, q, f)
	if err != nil || c.never {
		return "", err
	}
	// A walk in the order of time begins at its cursor anyway; so do the counts.
	if sc.sort == SortEnded && after != nil {
		if sc.asc {
			c.from = max(c.from, after.value)
		} else {
			c.to = min(c.to, after.value+1)
		}
	}
	way, err := sc.choose(ctx, q, c)
	if err != nil {
		return "", err
	}
	if !way.gather && sc.sort != SortEnded && !way.covered(column, sc.read(c)) {
		sc.examine = max(1, sc.examine/3) // what has a like cost ended at any time: each is a read of its own
	}
	s := statement{dialect: q.Dialect()}
	sc.write(&s, c, way, column, after)
	var last position
	got, more := 0, false
	err = s.run(ctx, q, func(scan func(dest ...any) error) error {
		if got == sc.limit {
			more = true
			return nil
		}
		got++
		return positioned(scan, &last, row)
	})
	switch {
	case err != nil:
		return "", err
	case more:
		return encodeCursor(sc.sort, sc.asc, last), nil
	case way.gather:
		return "", nil
	}
	// The walk looked at all it may, or at all there is.
	s = statement{dialect: q.Dialect()}
	sc.walk(&s, "b."+column+", b.id", c, way, column, after, 1, sc.examine-1)
	end := false
	err = s.run(ctx, q, func(scan func(dest ...any) error) error {
		end = true
		return scan(&last.value, &last.id)
	})
	if err != nil || !end {
		return "", err
	}
	return encodeCursor(sc.sort, sc.asc, last), nil
}

// positioned lets the caller read its columns, the first of which is the id, and
// keeps where the row stands.
func positioned(scan func(dest ...any) error, at *position, row func(scan func(dest ...any) error) error) error {
	return row(func(dest ...any) error {
		err := scan(append([]any{&at.value}, dest...)...)
		if id, ok := dest[0].(*int64); ok {
			at.id = *id
		}
		return err
	})
}

func sorts() []Sort {
	out := make([]Sort, 0, len(sortColumns))
	for s := range sortColumns {
		out = append(out, s)
	}
	slices.SortFunc(out, cmp.Compare)
	return out
}
