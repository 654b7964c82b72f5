package export

import (
	"context"
	"errors"
	"time"

	"github.com/cimeter/cimeter"
)

// enqueue hands a record over, or drops it when too many wait.
func (l *loop) enqueue(r *cimeter.Record) {
	if l.queue == nil {
		return
	}
	select {
	case l.queue <- r:
	default:
		l.drop(noRoom, 1)
	}
}

// runRecords sends records as they come until ctx ends, and what waits then
// until last ends.
func (l *loop) runRecords(ctx, last context.Context) {
	var h hold
	for {
		select {
		case <-ctx.Done():
			l.drain(&h, last)
			return
		case r := <-l.queue:
			for !l.sendRecord(last, &h, r) {
				if !sleepUntil(ctx, h.until) {
					l.lastTry(&h, last, r)
					l.drain(&h, last)
					return
				}
			}
		}
	}
}

// sendRecord makes one try and reports whether the record is done with: taken,
// or never to be.
func (l *loop) sendRecord(ctx context.Context, h *hold, r *cimeter.Record) bool {
	ctx, cancel := context.WithTimeout(ctx, l.target.Timeout)
	defer cancel()
	err := l.target.Records.SendRecord(ctx, r)
	switch {
	case err == nil:
		l.records.Add(1)
		l.success.Set(float64(time.Now().UnixNano()) / 1e9)
		l.works(h)
		return true
	case errors.Is(err, cimeter.ErrInvalid):
		l.drop(refused, 1)
		l.log.Warn("output refuses a record", "build", r.Key, "err", err)
		return true
	}
	l.fails(h, err)
	return false
}

// drain sends what waits, each once.
func (l *loop) drain(h *hold, last context.Context) {
	for {
		select {
		case r := <-l.queue:
			l.lastTry(h, last, r)
		default:
			return
		}
	}
}

func (l *loop) lastTry(h *hold, last context.Context, r *cimeter.Record) {
	if last.Err() != nil || !l.sendRecord(last, h, r) {
		l.drop(shutdown, 1)
	}
}
