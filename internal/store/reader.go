package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
)

// Reader is the reads that every back end has alike. It may be used by many
// goroutines.
type Reader struct {
	q    Queryer
	sums *sumCache
}

// NewReader returns the reads of a back end.
func NewReader(q Queryer) Reader { return Reader{q: q, sums: &sumCache{}} }

// Get returns the record of a key, or of what a build did on a machine, by its
// [MachineKey], with its trace. What was joined by its place is found by the key that
// its CI server has for it too. The error wraps [cimeter.ErrNotFound] when there is none.
func (r Reader) Get(ctx context.Context, key string) (*cimeter.Record, error) {
	var record, trace []byte
	found := false
	s := statement{dialect: r.q.Dialect()}
	if s.dialect == Postgres {
		s.add(`SELECT b.record, b.trace FROM build_keys k JOIN builds b ON b.id = k.id AND b.shard = k.shard AND b.at = k.at
WHERE k.key = ? AND k.shard = ?`, key, Shard(key))
	} else {
		s.add("SELECT record, trace FROM builds JOIN bodies USING (id) WHERE key = ?", key)
	}
	if ValidKey(key) { // else a database may refuse to look for it
		err := s.run(ctx, r.q, func(scan func(dest ...any) error) error {
			found = true
			return scan(&record, &trace)
		})
		if err != nil {
			return nil, fmt.Errorf("build %.200q: %w", key, err)
		}
	}
	if found {
		return Decode(key, record, trace)
	}
	if build, ok := BuildOf(key); ok {
		// Whoever came first has the build's own key, or that of the machine.
		on, _, later := strings.Cut(key[len(build):], startedAt)
		for _, other := range []string{build, build + on} {
			if other == key {
				continue
			}
			if record, err := r.Get(ctx, other); err == nil {
				machine := Clean(record.Machine)
				if MachineKey(build, machine) == key || later && PartKey(build, machine, record.StartedAt) == key {
					return record, nil
				}
			}
		}
	}
	if record, err := r.placed(ctx, key); record != nil || err != nil {
		return record, err
	}
	return nil, fmt.Errorf("build %.200q: %w", key, cimeter.ErrNotFound)
}

// Trace returns the trace of a key. The error wraps [cimeter.ErrNotFound] when
// there is no such build or it has none.
func (r Reader) Trace(ctx context.Context, key string) (*cimeter.Trace, error) {
	record, err := r.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if record.Trace == nil {
		return nil, fmt.Errorf("trace of build %.200q: %w", key, cimeter.ErrNotFound)
	}
	return record.Trace, nil
}

// List returns a page of builds: see [Query].
func (r Reader) List(ctx context.Context, query Query) (Page, error) {
	page, err := List(ctx, r.q, query)
	return page, wrap("list builds", err)
}

// Each calls fn with every build that meets the filter, the earliest end first.
func (r Reader) Each(ctx context.Context, f filter.Filter, traces bool, fn func(*cimeter.Record) error) error {
	return wrap("read builds", Each(ctx, r.q, f, traces, fn))
}

// Sum adds up the builds that meet a filter: see [SumUp].
func (r Reader) Sum(ctx context.Context, f filter.Filter) (Sum, error) {
	sum, err := SumUp(ctx, r.q, f)
	return sum, wrap("sum builds", err)
}

// Course adds up the latest builds that meet a filter, and returns each: see [Course].
func (r Reader) Course(ctx context.Context, f filter.Filter, most int) (Sum, []Point, error) {
	sum, points, err := Course(ctx, r.q, f, most)
	return sum, points, wrap("course of builds", err)
}

// Groups returns totals by group: see [GroupQuery].
func (r Reader) Groups(ctx context.Context, query GroupQuery) (Groups, error) {
	if err := query.check(); err != nil {
		return Groups{}, wrap("group builds", err)
	}
	if query.cacheable() {
		groups, err := r.sums.groups(ctx, r.q, query)
		return groups, wrap("group builds", err)
	}
	groups, err := GroupTotals(ctx, r.q, query)
	return groups, wrap("group builds", err)
}

// Buckets returns totals over time: see [BucketQuery].
func (r Reader) Buckets(ctx context.Context, query BucketQuery) ([]Bucket, error) {
	buckets, err := BucketTotals(ctx, r.q, query)
	return buckets, wrap("total builds", err)
}

// History returns the last builds of one job, the latest end first.
func (r Reader) History(ctx context.Context, query HistoryQuery) ([]*cimeter.Record, error) {
	records, err := History(ctx, r.q, query)
	return records, wrap("history", err)
}

// Names returns values of a kind that hold part: see [ListNames].
func (r Reader) Names(ctx context.Context, kind, part string, limit int) ([]string, error) {
	names, err := ListNames(ctx, r.q, kind, part, limit)
	return names, wrap("list names", err)
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
