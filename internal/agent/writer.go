package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/tally"
)

// maxPending bounds the finished records that wait in memory while the disk
// does not take them: at 25 KiB each, 13 MiB.
const maxPending = 512

// writer puts records and checkpoints on disk. Handing something to it never
// waits: metering must go on while the disk hangs or is full.
type writer struct {
	records Records
	log     *slog.Logger

	written, failures, dropped, refused, pending *tally.Value

	mu          sync.Mutex
	queue       []*cimeter.Record
	checkpoints map[string]*attrib.Snapshot // latest state of each build; nil: drop it
	failing     error                       // why the disk takes nothing, nil when it does
	wake        chan struct{}
}

func newWriter(r Records, t *tally.Table, log *slog.Logger) *writer {
	return &writer{
		records: r, log: log,
		written:     t.Value(catalog.AgentRecords),
		failures:    t.Value(catalog.AgentRecordWriteFailures),
		dropped:     t.Value(catalog.AgentDropped, "disk"),
		refused:     t.Value(catalog.AgentDropped, "invalid"),
		pending:     t.Value(catalog.AgentRecordsPending),
		checkpoints: make(map[string]*attrib.Snapshot),
		wake:        make(chan struct{}, 1),
	}
}

// put hands over a finished record. Over the bound the oldest waiting one goes.
func (w *writer) put(r *cimeter.Record) {
	w.mu.Lock()
	w.queue = append(w.queue, r)
	w.checkpoints[r.Key] = nil
	if len(w.queue) > maxPending {
		w.queue = append(w.queue[:0], w.queue[1:]...)
		w.dropped.Add(1)
	}
	w.pending.Set(float64(len(w.queue)))
	w.mu.Unlock()
	w.poke()
}

// checkpoint hands over the state of a running build; only the latest counts.
func (w *writer) checkpoint(key string, state *attrib.Snapshot) {
	w.mu.Lock()
	w.checkpoints[key] = state
	w.mu.Unlock()
	w.poke()
}

func (w *writer) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// err returns why the disk takes nothing, nil when it does.
func (w *writer) err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failing
}

// run writes until ctx ends, then what is left, once.
func (w *writer) run(ctx context.Context) {
	var retry backoff
	for {
		err := w.flush()
		wait := time.Duration(1<<63 - 1)
		if err != nil {
			wait = retry.next()
		} else {
			retry = backoff{}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			if err := w.flush(); err != nil {
				w.log.Error("records not written at the end", "pending", w.waiting(), "err", err)
			}
			return
		case <-w.wake:
			timer.Stop()
			if err != nil { // a full disk is not tried again for every new record
				select {
				case <-ctx.Done():
				case <-time.After(retry.delay):
				}
			}
		case <-timer.C:
		}
	}
}

func (w *writer) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue)
}

// flush writes what waits, records first. It stops at the first failure of the disk.
func (w *writer) flush() error {
	for {
		w.mu.Lock()
		var r *cimeter.Record
		if len(w.queue) > 0 {
			r = w.queue[0]
		}
		w.mu.Unlock()
		if r == nil {
			break
		}
		err := w.records.Put(r)
		if errors.Is(err, cimeter.ErrInvalid) {
			// It will not be better the next time, and those behind it wait.
			w.refused.Add(1)
			w.log.Error("record cannot be kept", "build", r.Key, "err", err)
			w.taken(r)
			continue
		}
		if err != nil && !errors.Is(err, cimeter.ErrConflict) {
			return w.failed(err)
		}
		if err != nil {
			// The record of this key is on disk already: an earlier life of the
			// agent wrote it. It is immutable.
			w.log.Warn("record kept as it was", "build", r.Key, "err", err)
		} else {
			w.written.Add(1)
		}
		w.taken(r)
	}
	for {
		key, state, ok := w.nextCheckpoint()
		if !ok {
			w.recovered()
			return nil
		}
		err := w.keep(key, state)
		if err != nil && !errors.Is(err, cimeter.ErrNotFound) {
			w.mu.Lock()
			if _, newer := w.checkpoints[key]; !newer {
				w.checkpoints[key] = state
			}
			w.mu.Unlock()
			return w.failed(err)
		}
	}
}

// keep writes a checkpoint, or drops it when there is no state.
func (w *writer) keep(key string, state *attrib.Snapshot) error {
	if state == nil {
		return w.records.DropCheckpoint(key)
	}
	b, err := state.Marshal()
	if err != nil {
		w.log.Error("build not checkpointed", "build", key, "err", err)
		return nil // it will not be better the next time
	}
	return w.records.Checkpoint(key, b)
}

// taken removes r, which is on disk, from the queue; put may have dropped it.
func (w *writer) taken(r *cimeter.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 && w.queue[0] == r {
		w.queue = append(w.queue[:0], w.queue[1:]...)
	}
	w.pending.Set(float64(len(w.queue)))
}

// nextCheckpoint takes one checkpoint out. One that is to be dropped stays until
// all records are on disk: till then it is all there is of a finished build.
func (w *writer) nextCheckpoint() (key string, state *attrib.Snapshot, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, state = range w.checkpoints {
		if state == nil && len(w.queue) > 0 {
			continue // its record may be among those put meanwhile: the next flush drops it
		}
		delete(w.checkpoints, key)
		return key, state, true
	}
	return "", nil, false
}

func (w *writer) failed(err error) error {
	w.failures.Add(1)
	w.mu.Lock()
	first := w.failing == nil
	w.failing = err
	w.mu.Unlock()
	if first {
		w.log.Error("records cannot be written, kept in memory", "err", err)
	}
	return err
}

func (w *writer) recovered() {
	w.mu.Lock()
	was := w.failing
	w.failing = nil
	w.mu.Unlock()
	if was != nil {
		w.log.Info("records are written again")
	}
}
