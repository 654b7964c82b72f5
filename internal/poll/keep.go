package poll

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/tally"
)

const (
	// maxPending bounds the builds that wait to be stored: as many as a board holds.
	// Each is stored as it is last, however often it changes meanwhile.
	maxPending = 100_000
	maxBatch   = 500 // in one transaction: agents' records wait behind it
	storeTime  = 30 * time.Second
	firstPause = time.Second
	lastPause  = time.Minute
	// gather is how long changes are gathered: a poll tells many at once, and
	// webhooks of one pipeline come together.
	gather = 200 * time.Millisecond
)

// keeper stores what changed, beside those who learn it.
type keeper struct {
	store Store
	log   *slog.Logger
	tally *tally.Table
	wake  chan struct{}

	mu      sync.Mutex
	pending map[string]cimeter.Job
}

func (k *keeper) add(jobs []cimeter.Job) {
	if k.store == nil || len(jobs) == 0 {
		return
	}
	k.mu.Lock()
	for _, j := range jobs {
		if _, known := k.pending[j.Key]; !known && len(k.pending) >= maxPending {
			k.tally.Value(catalog.ServerSourceDropped, "store").Add(1)
			continue
		}
		k.pending[j.Key] = j
	}
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// some takes builds that wait to be stored.
func (k *keeper) some() (jobs []cimeter.Job) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, j := range k.pending {
		jobs = append(jobs, j)
		delete(k.pending, key)
		if len(jobs) == maxBatch {
			break
		}
	}
	return jobs
}

// back puts builds back that could not be stored, unless they changed since.
func (k *keeper) back(jobs []cimeter.Job) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, j := range jobs {
		if _, newer := k.pending[j.Key]; !newer {
			k.pending[j.Key] = j
		}
	}
}

// run stores until ctx ends, and then once more what waits.
func (k *keeper) run(ctx context.Context) {
	if k.store == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			k.flush(context.WithoutCancel(ctx), 1)
			return
		case <-k.wake:
		}
		if sleep(ctx, gather) {
			k.flush(ctx, 0)
		}
	}
}

// flush stores all that waits. It gives up after so many failures; 0: when ctx ends.
func (k *keeper) flush(ctx context.Context, tries int) {
	pause, failed := firstPause, 0
	for {
		jobs := k.some()
		if len(jobs) == 0 {
			return
		}
		within, stop := context.WithTimeout(ctx, storeTime)
		err := k.store.PutJobs(within, jobs)
		stop()
		if err == nil {
			pause, failed = firstPause, 0
			continue
		}
		if errors.Is(err, cimeter.ErrInvalid) { // it will never be stored
			k.log.Error("builds of CI servers are not stored", "builds", len(jobs), "err", err)
			k.tally.Value(catalog.ServerSourceDropped, "store").Add(float64(len(jobs)))
			continue
		}
		if failed++; failed == tries {
			k.tally.Value(catalog.ServerSourceDropped, "store").Add(float64(len(jobs)))
			return
		}
		k.back(jobs)
		if ctx.Err() == nil {
			k.log.Error("builds of CI servers are not stored yet", "builds", len(jobs), "err", err)
		}
		if !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, lastPause)
	}
}
