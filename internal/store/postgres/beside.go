package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/store"
)

// PutSections keeps what stands beside builds, durably; what stood there before is
// replaced.
func (s *Store) PutSections(ctx context.Context, all []store.Sections) error {
	all = slices.Clone(all)
	slices.SortFunc(all, func(x, y store.Sections) int { return strings.Compare(x.Key, y.Key) }) // no two wait for each other
	var b pgx.Batch
	for _, one := range all {
		packed, err := one.Pack()
		if err != nil {
			return err
		}
		b.Queue("INSERT INTO sections VALUES ($1, $2, $3) ON CONFLICT (key) DO UPDATE SET at = excluded.at, data = excluded.data", one.Key, store.Micros(one.EndedAt), packed)
	}
	if err := s.batch(ctx, &b); err != nil {
		return fmt.Errorf("put sections of %d builds: %w", len(all), coded(err))
	}
	return nil
}

// PutQueuePoints keeps points of the history of queues, and deletes those that ended
// before what each step is kept for. Putting one again replaces it.
func (s *Store) PutQueuePoints(ctx context.Context, points []queue.KeptPoint, keep map[time.Duration]time.Time) error {
	var b pgx.Batch
	for _, p := range points {
		b.Queue(`INSERT INTO queue_points (server, step, at, waiting, blocked, running, slots, p50, p95) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (step, at, server) DO UPDATE SET waiting = excluded.waiting, blocked = excluded.blocked, running = excluded.running, slots = excluded.slots, p50 = excluded.p50, p95 = excluded.p95`,
			p.Server, int64(p.Step/time.Second), p.At, p.Waiting, p.Blocked, p.Running, store.OrNull(p.Slots), store.OrNull(p.P50), store.OrNull(p.P95))
	}
	for step, from := range keep {
		b.Queue("DELETE FROM queue_points WHERE step = $1 AND at <= $2", int64(step/time.Second), from.Unix())
	}
	if err := s.batch(ctx, &b); err != nil {
		return fmt.Errorf("put %d points of queues: %w", len(points), coded(err))
	}
	return nil
}

// batch runs statements in one transaction and one journey.
func (s *Store) batch(ctx context.Context, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	return s.transaction(ctx, func(tx pgx.Tx) error { return tx.SendBatch(ctx, b).Close() })
}

// PutMachinePoints keeps points of what machines did, and deletes those up to a time.
// Putting one again replaces it.
func (s *Store) PutMachinePoints(ctx context.Context, points []store.MachinePoint, upTo time.Time) error {
	if err := store.CheckMachinePoints(points); err != nil {
		return err
	}
	points = slices.Clone(points)
	slices.SortFunc(points, func(x, y store.MachinePoint) int { return strings.Compare(x.Machine, y.Machine) }) // no two wait for each other
	var b pgx.Batch
	for _, p := range points {
		b.Queue(`INSERT INTO machine_points (machine, at, builds, other, cimeter, coverage, memory, io, network, pressure) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (machine, at) DO UPDATE SET builds = excluded.builds, other = excluded.other, cimeter = excluded.cimeter, coverage = excluded.coverage,
memory = excluded.memory, io = excluded.io, network = excluded.network, pressure = excluded.pressure`,
			p.Machine, p.At.Unix(), store.OrNull(p.Builds), store.OrNull(p.Other), store.OrNull(p.Cimeter), store.OrNull(p.Coverage),
			store.OrNull(p.Memory), store.OrNull(p.IO), store.OrNull(p.Network), store.OrNull(p.Pressure))
	}
	b.Queue("DELETE FROM machine_points WHERE at <= $1", upTo.Unix())
	if err := s.batch(ctx, &b); err != nil {
		return fmt.Errorf("put %d points of machines: %w", len(points), coded(err))
	}
	return nil
}
