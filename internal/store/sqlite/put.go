package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
)

// commitTime bounds a commit that its callers no longer wait for.
const commitTime = time.Minute

// waiting is a batch that waits for its commit.
type waiting struct {
	rows   []*store.Row
	result store.PutResult
	err    error
	done   chan struct{} // closed: result and err are set
}

// Put keeps a batch, all of it or nothing, durably. What was told before is
// counted and changes nothing; a further part of a build is kept beside what is there of
// it: see [store.Further]. Batches that come while one is written are written together: one
// wait for the disk serves all. After an error the batch may have been kept; putting it
// again is safe.
func (s *Store) Put(ctx context.Context, batch []store.Put) (store.PutResult, error) {
	rows, err := store.NewRows(batch)
	if err != nil {
		return store.PutResult{}, err
	}
	w := &waiting{rows: rows, done: make(chan struct{})}
	s.mu.Lock()
	s.queue = append(s.queue, w)
	s.mu.Unlock()
	for waits := true; waits; {
		select {
		case s.turn <- struct{}{}:
			s.commit(ctx) // the longest waiting first: this batch may be behind them
			<-s.turn
		case <-w.done:
			waits = false
		case <-s.closed:
			if s.withdraw(w) {
				return store.PutResult{}, fmt.Errorf("put %d records: the store is closed: %w", len(batch), cimeter.ErrUnavailable)
			}
			<-w.done
			waits = false
		case <-ctx.Done():
			if s.withdraw(w) {
				return store.PutResult{}, fmt.Errorf("put %d records: %w", len(batch), ctx.Err())
			}
			<-w.done // being written
			waits = false
		}
	}
	if w.err != nil {
		return store.PutResult{}, fmt.Errorf("put %d records: %w", len(batch), w.err)
	}
	return w.result, nil
}

// withdraw takes a batch out of the queue; false: it is being written.
func (s *Store) withdraw(w *waiting) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.queue, w)
	if i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	return i >= 0
}

// commit writes what waits, with the turn held.
func (s *Store) commit(ctx context.Context) {
	s.mu.Lock()
	var group []*waiting
	n := 0
	for len(s.queue) > 0 && (n == 0 || n+len(s.queue[0].rows) <= store.MaxBatch) {
		n += len(s.queue[0].rows)
		group = append(group, s.queue[0])
		s.queue = s.queue[1:]
	}
	s.mu.Unlock()
	if len(group) == 0 {
		return
	}
	// Others wait for this commit too: it does not end with one of them.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTime)
	defer cancel()
	err := s.put(ctx, group)
	for _, w := range group {
		w.err = s.damaged(err)
		close(w.done)
	}
}

const insertBuild = `INSERT INTO builds (key, at, received_at, agent, ci, server, project, number, name, ref, event, pipeline, machine,
runner, runner_name, result, verdicts, stages, metered, tags, wall_us, cpu_us, queue_us, throttled_us, mem_peak, mem_limit, io_bytes, net_bytes, flags)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING`

const insertBody = "INSERT INTO bodies (id, record, trace) VALUES (?, ?, ?)"

const insertRollup = `INSERT INTO rollups (dim, a, b, c, at, builds, failed, canceled, oom, wall_us, cpu_us, queue_us, queued, throttled_us,
io_bytes, net_bytes, mem_peak, last_at) VALUES `

const mergeRollup = `
ON CONFLICT (dim, at, a, b, c) DO UPDATE SET builds = builds + excluded.builds, failed = failed + excluded.failed,
canceled = canceled + excluded.canceled, oom = oom + excluded.oom, wall_us = wall_us + excluded.wall_us, cpu_us = cpu_us + excluded.cpu_us,
queue_us = queue_us + excluded.queue_us, queued = queued + excluded.queued, throttled_us = throttled_us + excluded.throttled_us,
io_bytes = io_bytes + excluded.io_bytes, net_bytes = net_bytes + excluded.net_bytes, mem_peak = max(mem_peak, excluded.mem_peak),
last_at = max(last_at, excluded.last_at)`

// inserter prepares each statement of a transaction once.
type inserter struct {
	ctx   context.Context
	s     *Store
	tx    *sql.Tx
	known map[string]*sql.Stmt

	unjoined int64 // builds whose other side could not be told from others
}

func (in *inserter) prepared(statement string) (stmt *sql.Stmt, err error) {
	stmt, ok := in.known[statement]
	if !ok {
		if stmt, err = in.tx.PrepareContext(in.ctx, statement); err == nil {
			in.known[statement] = stmt
		}
	}
	return stmt, err
}

func (in *inserter) exec(statement string, args ...any) (sql.Result, error) {
	stmt, err := in.prepared(statement)
	if err != nil {
		return nil, err
	}
	in.s.step()
	return stmt.ExecContext(in.ctx, args...)
}

func (s *Store) put(ctx context.Context, group []*waiting) error {
	var names []store.Name
	var unjoined int64
	results := make([]store.PutResult, len(group))
	err := s.transaction(ctx, func(tx *sql.Tx) (err error) {
		in := &inserter{ctx: ctx, s: s, tx: tx, known: map[string]*sql.Stmt{}}
		var from int64
		if err := tx.QueryRowContext(ctx, "SELECT coalesce(max(value), 0) FROM meta WHERE name = 'kept_from'").Scan(&from); err != nil {
			return err
		}
		var stored, replaced []*store.Row
		for i, w := range group {
			results[i].Fresh = make([]bool, len(w.rows))
			for j, r := range w.rows {
				if r.At < from {
					results[i].Expired++
					continue
				}
				switch there, err := in.there(r, from); {
				case err != nil:
					return err
				case there:
					results[i].Duplicates++
					continue
				}
				ok, err := in.build(r)
				if err != nil {
					return err
				}
				other := in.joined
				if !ok {
					other = in.again
				}
				merged, old, err := other(r)
				switch {
				case err != nil:
					return err
				case merged != nil:
					if r = merged; old != nil {
						replaced = append(replaced, old)
					}
				case !ok:
					results[i].Duplicates++
					continue
				}
				results[i].Stored++
				results[i].Fresh[j] = true
				if r.Part&store.AgainOfBuild != 0 {
					results[i].MarkPart(j, len(w.rows))
				}
				stored = append(stored, r)
			}
		}
		unjoined = in.unjoined
		names, err = in.sums(stored, replaced)
		return err
	})
	if err != nil {
		return err
	}
	s.named.Add(names)
	s.unjoined.Add(unjoined)
	for i, w := range group {
		w.result = results[i]
	}
	return nil
}

// rowsAtOnce is how many rows one statement inserts.
const rowsAtOnce = 16

// values is what follows VALUES for rows of so many columns.
func values(rows, columns int) string {
	row := "(" + strings.Repeat("?, ", columns-1) + "?)"
	return strings.Repeat(row+", ", rows-1) + row
}

func (in *inserter) rollups(rollups []store.Rollup) error {
	for part := range slices.Chunk(rollups, rowsAtOnce) {
		args := make([]any, 0, 18*len(part))
		for _, r := range part {
			args = append(args, int64(r.Dim), r.A, r.B, r.C, r.At, r.Builds, r.Failed, r.Canceled, r.OOM, r.WallUS, r.CPUUS, r.QueueUS,
				r.Queued, r.ThrottledUS, r.IO, r.Net, r.MemPeak, r.LastAt)
		}
		if _, err := in.exec(insertRollup+values(len(part), 18)+mergeRollup, args...); err != nil {
			return err
		}
	}
	return nil
}

// stages merges totals of stages with those that are there.
func (in *inserter) stages(totals []store.StageTotals) error {
	read, err := in.prepared("SELECT data FROM stage_totals WHERE a = ? AND b = ? AND at = ?")
	if err != nil {
		return err
	}
	for i := range totals {
		t := &totals[i]
		var data []byte
		if err := read.QueryRowContext(in.ctx, t.Project, t.Name, t.At).Scan(&data); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if data, err = t.Merged(data); err != nil {
			return err
		}
		if _, err := in.exec("INSERT INTO stage_totals VALUES (?, ?, ?, ?) ON CONFLICT (a, b, at) DO UPDATE SET data = excluded.data", t.Project, t.Name, t.At, data); err != nil {
			return err
		}
	}
	return nil
}

// build writes one build; false: its key is there.
func (in *inserter) build(r *store.Row) (bool, error) {
	res, err := in.exec(insertBuild, r.Key, r.At, r.ReceivedAt, r.Agent, r.CI, r.Server, r.Project, r.Number, r.Name, r.Ref, r.Event, r.Pipeline, r.Machine,
		r.Runner, r.RunnerName, r.Result, r.Verdicts, r.StageSet, r.Metered, r.Tags, r.WallUS, r.CPUUS, r.QueueUS, r.ThrottledUS, r.MemPeak, r.MemLimit, r.IOBytes, r.NetBytes, r.Flags())
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	if err != nil || n == 0 {
		return false, err
	}
	id, err := res.LastInsertId()
	if err != nil {
		return false, err
	}
	_, err = in.exec(insertBody, id, r.Record, r.Trace)
	return err == nil, err
}

// sums adds what rows, some of which replace others, change in the totals, and
// returns the names that came with them.
func (in *inserter) sums(rows, replaced []*store.Row) ([]store.Name, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	if err := in.rollups(store.NewRollups(rows, replaced...)); err != nil {
		return nil, err
	}
	if err := in.stages(store.NewStageTotals(rows, replaced...)); err != nil {
		return nil, err
	}
	if _, err := in.exec("INSERT INTO meta VALUES ('builds', ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value", store.Counted(rows)-store.Counted(replaced)); err != nil {
		return nil, err
	}
	names := in.s.named.Missing(store.NewNames(rows))
	for _, n := range names {
		if _, err := in.exec("INSERT INTO names VALUES (?, ?, ?) ON CONFLICT DO NOTHING", n.Kind, n.Value, n.Target); err != nil {
			return nil, err
		}
	}
	return names, nil
}
