package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/store"
)

// PutSections keeps what stands beside builds, durably; what stood there before is
// replaced.
func (s *Store) PutSections(ctx context.Context, all []store.Sections) error {
	packed := make([][]byte, len(all))
	for i := range all {
		var err error
		if packed[i], err = all[i].Pack(); err != nil {
			return err
		}
	}
	err := s.alone(ctx, func(tx *sql.Tx) error {
		for i, one := range all {
			if err := s.exec(ctx, tx, "INSERT INTO sections VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET at = excluded.at, data = excluded.data",
				one.Key, store.Micros(one.EndedAt), packed[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("put sections of %d builds: %w", len(all), s.damaged(err))
	}
	return nil
}

// PutQueuePoints keeps points of the history of queues, and deletes those that ended
// before what each step is kept for. Putting one again replaces it.
func (s *Store) PutQueuePoints(ctx context.Context, points []queue.KeptPoint, keep map[time.Duration]time.Time) error {
	err := s.alone(ctx, func(tx *sql.Tx) error {
		for _, p := range points {
			if err := s.exec(ctx, tx, "INSERT OR REPLACE INTO queue_points (server, step, at, waiting, blocked, running, slots, p50, p95) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
				p.Server, int64(p.Step/time.Second), p.At, p.Waiting, p.Blocked, p.Running, store.OrNull(p.Slots), store.OrNull(p.P50), store.OrNull(p.P95)); err != nil {
				return err
			}
		}
		for step, from := range keep {
			if err := s.exec(ctx, tx, "DELETE FROM queue_points WHERE step = ? AND at <= ?", int64(step/time.Second), from.Unix()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("put %d points of queues: %w", len(points), s.damaged(err))
	}
	return nil
}

// alone runs fn in a transaction when the other writes let it.
func (s *Store) alone(ctx context.Context, fn func(tx *sql.Tx) error) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer func() { <-s.turn }()
	return s.transaction(ctx, fn)
}

// PutMachinePoints keeps points of what machines did, and deletes those up to a time.
// Putting one again replaces it.
func (s *Store) PutMachinePoints(ctx context.Context, points []store.MachinePoint, upTo time.Time) error {
	if err := store.CheckMachinePoints(points); err != nil {
		return err
	}
	err := s.alone(ctx, func(tx *sql.Tx) error {
		for _, p := range points {
			if err := s.exec(ctx, tx, "INSERT OR REPLACE INTO machine_points (machine, at, builds, other, cimeter, coverage, memory, io, network, pressure) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
				p.Machine, p.At.Unix(), store.OrNull(p.Builds), store.OrNull(p.Other), store.OrNull(p.Cimeter), store.OrNull(p.Coverage),
				store.OrNull(p.Memory), store.OrNull(p.IO), store.OrNull(p.Network), store.OrNull(p.Pressure)); err != nil {
				return err
			}
		}
		return s.exec(ctx, tx, "DELETE FROM machine_points WHERE at <= ?", upTo.Unix())
	})
	if err != nil {
		return fmt.Errorf("put %d points of machines: %w", len(points), s.damaged(err))
	}
	return nil
}
