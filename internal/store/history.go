package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/summary"
)

// maxRest bounds the parts that are read of the builds of one page of a history.
const maxRest = 2000

// History returns the last builds of one job, the latest end first, each once: of one
// that several machines worked on what [summary.Whole] makes of their records, at the
// time of its last end. Before is the end of the last of its parts, too.
func History(ctx context.Context, q Queryer, h HistoryQuery) ([]*cimeter.Record, error) {
	if h.Limit == 0 {
		h.Limit = 20
	}
	if h.Limit < 1 || h.Limit > MaxHistory {
		return nil, fmt.Errorf("history of %d builds: want 1 to %d: %w", h.Limit, MaxHistory, cimeter.ErrInvalid)
	}
	f := filter.Filter{filter.Is(filter.Project, h.Project), filter.Is(filter.Job, h.Name)}
	if h.Ref != "" {
		f = append(f, filter.Is(filter.Ref, h.Ref))
	}
	query := Query{Filter: withTime(f, time.Time{}, h.Before), Limit: h.Limit, Trace: h.Trace}
	seen := map[string]bool{} // keys of records
	var out []*cimeter.Record
	for range MaxMachines { // pages: more than one where builds have several rows
		page, err := List(ctx, q, query)
		if err != nil {
			return nil, err
		}
		builds, err := wholes(ctx, q, page.Records, h.Before, seen)
		if err != nil {
			return nil, err
		}
		out = append(out, builds...)
		// A page that is short has looked at as many builds as it may.
		if len(out) >= h.Limit || len(page.Records) < h.Limit || page.Next == "" {
			break
		}
		query.Cursor = page.Next
	}
	return out[:min(len(out), h.Limit)], nil
}

// wholes returns the builds that records are, or are parts of, in the order in which
// the first record of each comes, without those that were seen or of which a part ended
// later than before.
func wholes(ctx context.Context, q Queryer, records []*cimeter.Record, before time.Time, seen map[string]bool) ([]*cimeter.Record, error) {
	rest, err := restOf(ctx, q, records)
	if err != nil {
		return nil, err
	}
	var out []*cimeter.Record
	for i, r := range records {
		if seen[r.Key] {
			continue
		}
		seen[r.Key] = true
		parts, over := []*cimeter.Record{r}, true
		for _, other := range rest[i] {
			if other.Key == r.Key || len(parts) == MaxMachines || !partOf(other.Record, buildKey(r)) || !sameBuild(other.Record, r) {
				continue
			}
			seen[other.Key] = true
			parts = append(parts, other.Record)
			over = over && (before.IsZero() || other.at < Micros(before))
		}
		if over {
			out = append(out, summary.Whole(parts))
		}
	}
	return out, nil
}

// buildKey is the key of the build that a record is, or by its own key is a part of.
func buildKey(r *cimeter.Record) string {
	if build, ok := BuildOf(r.Key); ok {
		return build
	}
	if podOf(r) != 0 {
		return r.Key[:strings.LastIndexByte(r.Key, '/')]
	}
	return r.Key
}

// kept is a record and when it is by the lists.
type kept struct {
	*cimeter.Record
	at int64
}

// restOf returns what is kept below the keys of the builds of records, without traces;
// of a record that is a part by its key, what has the build's own too.
func restOf(ctx context.Context, q Queryer, records []*cimeter.Record) (rest [][]kept, err error) {
	rest = make([][]kept, len(records))
	if len(records) == 0 {
		return rest, nil
	}
	s := statement{dialect: q.Dialect()}
	s.add("WITH w (n, from_key, to_key) AS (VALUES ")
	separator := ""
	add := func(i int, from, to string) {
		s.add(separator+s.dialect.wanted(), i, from, to)
		separator = ","
	}
	for i, r := range records {
		build := buildKey(r)
		add(i, build+"/", build+"0") // 0 follows the slash
		if build != r.Key {
			add(i, build, build+"!") // it comes first of what begins with it
		}
	}
	// A bounded number of keys of each: a forged one may be what all others begin with.
	if s.dialect == Postgres {
		s.add(`) SELECT w.n, b.key, b.at, b.record FROM w CROSS JOIN LATERAL
(SELECT id, shard, at FROM build_keys WHERE key >= w.from_key COLLATE "C" AND key < w.to_key COLLATE "C" ORDER BY key LIMIT ?) k
JOIN builds b ON b.id = k.id AND b.shard = k.shard AND b.at = k.at LIMIT ?`, MaxParts, maxRest)
	} else {
		s.add(`) SELECT w.n, b.key, b.at, bodies.record FROM w CROSS JOIN builds b ON b.id IN
(SELECT id FROM builds WHERE key >= w.from_key AND key < w.to_key ORDER BY key LIMIT ?) JOIN bodies ON bodies.id = b.id LIMIT ?`, MaxParts, maxRest)
	}
	err = s.run(ctx, q, func(scan func(dest ...any) error) error {
		var i int
		var key string
		var stored []byte
		var k kept
		if err := scan(&i, &key, &k.at, &stored); err != nil {
			return err
		}
		if k.Record, err = Decode(key, stored, nil); err != nil {
			return err
		}
		rest[i] = append(rest[i], k)
		return nil
	})
	return rest, err
}

// wanted is a row of a number and two texts as parameters.
func (d Dialect) wanted() string {
	if d == Postgres {
		return "(?::int, ?::text, ?::text)" // nothing else tells their types
	}
	return "(?, ?, ?)"
}
