package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
)

const (
	// MaxSections bounds what is kept beside a build, in bytes before it is compressed.
	MaxSections = 256 << 10
	// MaxBeside is how many builds one question or write about what is beside them has.
	MaxBeside = MaxLimit
)

// Sections is what is kept of a build's log, as JSON of whoever keeps it: the store
// knows nothing of it. A record never changes; this stands beside it, is written
// again when it is known better, and goes when the build does.
type Sections struct {
	Key     string
	EndedAt time.Time // of the build
	JSON    []byte
}

// Pack is the stored form of what is beside a build. The error wraps
// [cimeter.ErrInvalid] for what no store takes.
func (s Sections) Pack() ([]byte, error) {
	if !ValidKey(s.Key) || s.EndedAt.IsZero() || len(s.JSON) > MaxSections {
		return nil, fmt.Errorf("sections of %.200q, %d bytes: want a key, an end and at most %d bytes: %w", s.Key, len(s.JSON), MaxSections, cimeter.ErrInvalid)
	}
	e, err := encoder()
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return e.EncodeAll(s.JSON, nil), nil
}

// SectionsOf returns what is kept beside builds, by key: at most MaxBeside of them.
// Of which nothing is kept, nothing is in the answer.
func (r Reader) SectionsOf(ctx context.Context, keys []string) (map[string][]byte, error) {
	found := map[string][]byte{}
	if len(keys) > MaxBeside {
		return nil, fmt.Errorf("sections of %d builds: want at most %d: %w", len(keys), MaxBeside, cimeter.ErrInvalid)
	}
	args := make([]any, 0, len(keys))
	for _, key := range keys {
		if ValidKey(key) { // else a database may refuse to look for it
			args = append(args, key)
		}
	}
	if len(args) == 0 {
		return found, nil
	}
	s := statement{dialect: r.q.Dialect()}
	s.add("SELECT key, data FROM sections WHERE key IN ("+marks(len(args))+")", args...)
	err := s.run(ctx, r.q, func(scan func(dest ...any) error) error {
		var key string
		var data []byte
		if err := scan(&key, &data); err != nil {
			return err
		}
		plain, err := expand(data)
		if err != nil {
			return fmt.Errorf("stored sections of %s: %w", key, err)
		}
		found[key] = plain
		return nil
	})
	return found, wrap("sections", err)
}

// QueuePoints returns the history of the queues of all CI servers in steps of one
// length since a time, the oldest first.
func (r Reader) QueuePoints(ctx context.Context, step time.Duration, since time.Time) (points []queue.KeptPoint, err error) {
	s := statement{dialect: r.q.Dialect()}
	s.add("SELECT server, at, waiting, blocked, running, slots, p50, p95 FROM queue_points WHERE step = ? AND at > ? ORDER BY at, server", int64(step/time.Second), since.Unix())
	err = s.run(ctx, r.q, func(scan func(dest ...any) error) error {
		p := queue.KeptPoint{Step: step}
		var waiting, blocked, running float64
		var slots, p50, p95 *float64
		if err := scan(&p.Server, &p.At, &waiting, &blocked, &running, &slots, &p50, &p95); err != nil {
			return err
		}
		p.Waiting, p.Blocked, p.Running = float32(waiting), float32(blocked), float32(running)
		p.Slots, p.P50, p.P95 = orNaN(slots), orNaN(p50), orNaN(p95)
		points = append(points, p)
		return nil
	})
	return points, wrap("history of queues", err)
}

func orNaN(v *float64) float32 {
	if v == nil {
		return float32(math.NaN())
	}
	return float32(*v)
}

// OrNull is a value for a column of what may not be known.
func OrNull(v float32) *float64 {
	if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
		return nil
	}
	wide := float64(v)
	return &wide
}
