package poll

import (
	"context"
	"log/slog"
	"time"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/tally"
)

// History keeps the history of queues, which a restart would lose.
type History interface {
	// PutQueuePoints keeps points, and deletes those that ended before what each step
	// is kept for.
	PutQueuePoints(ctx context.Context, points []queue.KeptPoint, keep map[time.Duration]time.Time) error
	// QueuePoints returns those of one step since a time, the oldest first.
	QueuePoints(ctx context.Context, step time.Duration, since time.Time) ([]queue.KeptPoint, error)
}

const (
	historyEvery = time.Minute
	// maxKept bounds the points that wait to be stored: three hours of forty servers.
	maxKept = 8_000
)

// historian keeps the board's history in the store while this server leads, and takes
// from there what others kept.
type historian struct {
	store History
	board *queue.Board
	log   *slog.Logger
	tally *tally.Table
	leads func() bool
	now   func() time.Time

	restored time.Time // up to when the board has what is kept; zero: nothing yet
	pending  []queue.KeptPoint
}

// run keeps until ctx ends, and then once more.
func (h *historian) run(ctx context.Context) {
	if h.store == nil {
		return
	}
	for {
		h.round(ctx)
		if !sleep(ctx, historyEvery) {
			break
		}
	}
	h.save(context.WithoutCancel(ctx))
}

// round takes what others kept, as long as they may, and keeps what is new here.
func (h *historian) round(ctx context.Context) {
	if h.restored.IsZero() || !h.leads() {
		h.restore(ctx)
	}
	h.save(ctx)
}

// restore gives the board what is kept: all of it at first, then what came since.
func (h *historian) restore(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, storeTime)
	defer stop()
	now := h.now()
	for step, kept := range map[time.Duration]time.Duration{queue.FineStep: queue.KeepFine, queue.CoarseStep: queue.KeepCoarse} {
		since := now.Add(-kept)
		if !h.restored.IsZero() {
			since = h.restored.Add(-2 * queue.CoarseStep) // what was kept late, too
		}
		points, err := h.store.QueuePoints(ctx, step, since)
		if err != nil {
			if ctx.Err() == nil {
				h.log.Warn("history of queues is not read", "err", err)
			}
			return
		}
		h.board.Restore(points)
	}
	h.restored = now
}

// save keeps the points that are whole since the last time. What cannot be kept waits.
func (h *historian) save(ctx context.Context) {
	h.pending = append(h.pending, h.board.Fresh()...)
	if over := len(h.pending) - maxKept; over > 0 {
		h.pending = h.pending[over:]
		h.tally.Value(catalog.ServerSourceDropped, "history").Add(float64(over))
	}
	if len(h.pending) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(ctx, storeTime)
	defer stop()
	now := h.now()
	err := h.store.PutQueuePoints(ctx, h.pending, map[time.Duration]time.Time{
		queue.FineStep: now.Add(-queue.KeepFine), queue.CoarseStep: now.Add(-queue.KeepCoarse),
	})
	if err != nil {
		if ctx.Err() == nil {
			h.log.Warn("history of queues is not kept yet", "points", len(h.pending), "err", err)
		}
		return
	}
	h.pending = nil
}
