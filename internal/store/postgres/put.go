package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter/internal/store"
)

// Put keeps a batch, all of it or nothing, durably. What was told before is
// counted and changes nothing; a further part of a build is kept beside what is there of
// it: see [store.Further]. After an error the batch may have been kept; putting it again is
// safe.
func (s *Store) Put(ctx context.Context, batch []store.Put) (store.PutResult, error) {
	all, err := store.NewRows(batch)
	if err != nil {
		return store.PutResult{}, err
	}
	p := newPutting(all)
	var names []store.Name
	err = s.partitions(ctx, all)
	if err == nil {
		err = s.transaction(ctx, func(tx pgx.Tx) (err error) {
			names, err = s.put(ctx, tx, p)
			return err
		})
	}
	if err != nil {
		return store.PutResult{}, fmt.Errorf("put %d records: %w", len(batch), coded(err))
	}
	s.remember(names, p.keptFrom)
	s.unjoined.Add(p.unjoined)
	return p.result(len(batch)), nil
}

var buildColumns = []string{"shard", "id", "key", "at", "received_at", "agent", "ci", "server", "project", "number", "name", "ref", "event", "pipeline", "machine",
	"runner", "runner_name", "result", "verdicts", "stages", "metered", "tags", "wall_us", "cpu_us", "queue_us", "throttled_us", "mem_peak", "mem_limit", "io_bytes", "net_bytes", "flags", "record", "trace"}

// upsertRollups takes one array for each column.
const upsertRollups = `INSERT INTO rollups AS r SELECT * FROM unnest($1::smallint[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[],
$8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::bigint[])
ON CONFLICT (dim, a, b, at, c, shard) DO UPDATE SET builds = r.builds + excluded.builds, failed = r.failed + excluded.failed,
canceled = r.canceled + excluded.canceled, oom = r.oom + excluded.oom, wall_us = r.wall_us + excluded.wall_us, cpu_us = r.cpu_us + excluded.cpu_us,
queue_us = r.queue_us + excluded.queue_us, queued = r.queued + excluded.queued, throttled_us = r.throttled_us + excluded.throttled_us,
io_bytes = r.io_bytes + excluded.io_bytes, net_bytes = r.net_bytes + excluded.net_bytes, mem_peak = greatest(r.mem_peak, excluded.mem_peak),
last_at = greatest(r.last_at, excluded.last_at)`

// put writes a batch. The keys come first: which of them are new decides what is
// copied into the tables.
func (s *Store) put(ctx context.Context, tx pgx.Tx, p *putting) ([]store.Name, error) {
	// The lock keeps retention from moving the bound under this transaction.
	if err := tx.QueryRow(ctx, "SELECT value FROM meta WHERE name = 'kept_from' FOR SHARE").Scan(&p.keptFrom); err != nil {
		return nil, err
	}
	if err := p.narrow(ctx, tx); err != nil || len(p.rows) == 0 {
		return nil, err
	}
	if err := places(ctx, tx, p.rows); err != nil {
		return nil, err
	}
	var err error
	if p.fresh, err = newKeys(ctx, tx, p.rows); err != nil {
		return nil, err
	}
	joined, err := join(ctx, tx, p.rows, p.fresh, &p.unjoined)
	if err != nil {
		return nil, err
	}
	rows, replaced, err := meter(ctx, tx, p.rows, p.fresh)
	if err != nil {
		return nil, err
	}
	replaced = append(replaced, joined...)
	others, err := p.further(ctx, tx, rows)
	if err != nil {
		return nil, err
	}
	if rows = append(rows, others...); len(rows) == 0 {
		return nil, nil
	}
	p.written = rows
	if err := copyRows(ctx, tx, rows, p.fresh); err != nil {
		return nil, err
	}
	return s.sums(ctx, tx, rows, replaced, p.keptFrom)
}

// sums adds what rows, some of which replace others, change in the totals, and
// returns the names that came with them.
func (s *Store) sums(ctx context.Context, tx pgx.Tx, rows, replaced []*store.Row, from int64) ([]store.Name, error) {
	names := s.missing(store.NewNames(rows), from)
	if len(names) > 0 {
		shards, kinds, values, targets := make([]int16, len(names)), make([]string, len(names)), make([]string, len(names)), make([]string, len(names))
		for i, n := range names {
			shards[i], kinds[i], values[i], targets[i] = store.Shard(n.Value), n.Kind, n.Value, n.Target
		}
		if _, err := tx.Exec(ctx, "INSERT INTO names SELECT * FROM unnest($1::smallint[], $2::text[], $3::text[], $4::text[]) ON CONFLICT DO NOTHING", shards, kinds, values, targets); err != nil {
			return nil, err
		}
	}
	// The rows that all servers write to come last: they are locked for the
	// shortest time.
	if err := putStages(ctx, tx, store.NewStageTotals(rows, replaced...)); err != nil {
		return nil, err
	}
	return names, putRollups(ctx, tx, store.NewRollups(rows, replaced...))
}

// copyRows copies rows, whose ids are told by key, into builds.
func copyRows(ctx context.Context, tx pgx.Tx, rows []*store.Row, ids map[string]int64) error {
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"builds"}, buildColumns, pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
		r := rows[i]
		return []any{store.Shard(r.Key), ids[r.Key], r.Key, r.At, r.ReceivedAt, r.Agent, r.CI, r.Server, r.Project, r.Number, r.Name, r.Ref, r.Event, r.Pipeline, r.Machine,
			r.Runner, r.RunnerName, r.Result, r.Verdicts, r.StageSet, int16(r.Metered), r.Tags, r.WallUS, r.CPUUS, r.QueueUS, r.ThrottledUS, r.MemPeak, r.MemLimit, r.IOBytes, r.NetBytes, r.Flags(), r.Record, r.Trace}, nil
	}))
	return err
}

// newKeys keeps the keys that are not there and returns the ids of their builds.
func newKeys(ctx context.Context, tx pgx.Tx, rows []*store.Row) (map[string]int64, error) {
	shards, keys, ats, metered := make([]int16, len(rows)), make([]string, len(rows)), make([]int64, len(rows)), make([]int16, len(rows))
	for i, r := range rows {
		shards[i], keys[i], ats[i], metered[i] = store.Shard(r.Key), r.Key, r.At, int16(r.Metered)
	}
	found, err := tx.Query(ctx, `INSERT INTO build_keys (shard, key, at, metered) SELECT * FROM unnest($1::smallint[], $2::text[], $3::bigint[], $4::smallint[])
ON CONFLICT DO NOTHING RETURNING key, id`, shards, keys, ats, metered)
	if err != nil {
		return nil, err
	}
	fresh := make(map[string]int64, len(rows))
	var key string
	var id int64
	_, err = pgx.ForEachRow(found, []any{&key, &id}, func() error { fresh[key] = id; return nil })
	return fresh, err
}

func putRollups(ctx context.Context, tx pgx.Tx, rollups []store.Rollup) error {
	n := len(rollups)
	shards, dims := make([]int16, n), make([]int16, n)
	var texts [3][]string
	for i := range texts {
		texts[i] = make([]string, n)
	}
	var numbers [14][]int64
	for i := range numbers {
		numbers[i] = make([]int64, n)
	}
	for i, r := range rollups {
		shards[i], dims[i] = store.Shard(r.A), int16(r.Dim)
		texts[0][i], texts[1][i], texts[2][i] = r.A, r.B, r.C
		for j, v := range []int64{r.At, r.Builds, r.Failed, r.Canceled, r.OOM, r.WallUS, r.CPUUS, r.QueueUS, r.Queued, r.ThrottledUS, r.IO, r.Net, r.MemPeak, r.LastAt} {
			numbers[j][i] = v
		}
	}
	args := []any{shards, dims, texts[0], texts[1], texts[2]}
	for _, v := range numbers {
		args = append(args, v)
	}
	_, err := tx.Exec(ctx, upsertRollups, args...)
	return err
}

// missing returns the names that this server has not seen in the database since
// retention, which takes names that no build has, last moved its bound.
func (s *Store) missing(names []store.Name, keptFrom int64) []store.Name {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.knownAt != keptFrom {
		s.knownAt = keptFrom
		s.known.Clear()
	}
	return s.known.Missing(names)
}

func (s *Store) remember(names []store.Name, keptFrom int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.knownAt == keptFrom {
		s.known.Add(names)
	}
}

const (
	weekUS = int64(7 * 24 * time.Hour / time.Microsecond)
	monday = int64(4 * 24 * time.Hour / time.Microsecond) // 5 January 1970
	// keptWeeks bounds how far back a build has a partition of its week: forged
	// ends do not make thousands of tables. Older ones go into the rest.
	keptWeeks = 120
)

// week is the start of the week (Monday, UTC) of at; ok is false when it has no
// partition of its own.
func week(at, receivedAt int64) (start int64, ok bool) {
	start = at - (at-monday)%weekUS
	return start, at >= monday && receivedAt-at < keptWeeks*weekUS
}

func weekName(start int64) string { return store.Time(start).Format("20060102") }

// partitions makes the partitions that rows want.
func (s *Store) partitions(ctx context.Context, rows []*store.Row) error {
	want := map[int64]bool{}
	s.mu.Lock()
	for _, r := range rows {
		if start, ok := week(r.At, r.ReceivedAt); ok && !s.weeks[start] {
			want[start] = true
		}
	}
	s.mu.Unlock()
	for start := range want {
		err := s.transaction(ctx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
				return err
			}
			var from int64
			if err := tx.QueryRow(ctx, "SELECT value FROM meta WHERE name = 'kept_from'").Scan(&from); err != nil {
				return err
			}
			if start+weekUS <= from {
				return nil // deleted: Put counts its builds as expired
			}
			name := pgx.Identifier{"builds_" + weekName(start)}.Sanitize()
			var there bool
			if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", name).Scan(&there); err != nil || there {
				return err
			}
			if _, err := tx.Exec(ctx, fmt.Sprintf("CREATE TABLE %s PARTITION OF builds FOR VALUES FROM (%d) TO (%d)", name, start, start+weekUS)); err != nil {
				return fmt.Errorf("make partition %s: %w", strings.Trim(name, `"`), err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.weeks[start] = true
		s.mu.Unlock()
	}
	return nil
}
