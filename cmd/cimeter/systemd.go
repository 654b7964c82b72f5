package main

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/cimeter/cimeter/internal/sdnotify"
)

// lifeline tells systemd that this process is ready when each of its parts has told
// that it works, and that it is alive as long as each goes on to tell so. It has no
// goroutine: the last part that tells tells systemd, so that one which is stuck is
// enough for it to be killed and started again.
type lifeline struct {
	to    *sdnotify.Conn // nil: nobody asks
	every time.Duration  // between two messages; 0: systemd does not look
	log   *slog.Logger

	mu    sync.Mutex
	parts int
	told  map[int]bool // parts that told so since the last message
	ready bool
	sent  time.Time // of the last message
}

// openLifeline opens the way to the systemd that started this process, if one did.
func openLifeline(e *env, log *slog.Logger) (*lifeline, error) {
	to, err := sdnotify.Open(e.getenv, os.Getpid())
	if err != nil {
		return nil, err
	}
	l := &lifeline{to: to, log: log, told: make(map[int]bool)}
	if to != nil {
		l.every = to.Watchdog / 3
	}
	return l, nil
}

// part returns what a part is to call, at least every l.every. All parts are to be
// made before the first one calls. nil: nobody asks.
func (l *lifeline) part() func(now time.Time) {
	if l.to == nil {
		return nil
	}
	id := l.parts
	l.parts++
	return func(now time.Time) { l.alive(id, now) }
}

// alive notes that a part works, and tells systemd when all do and it is time to.
func (l *lifeline) alive(id int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told[id] = true
	if len(l.told) < l.parts || l.ready && (l.every == 0 || now.Sub(l.sent) < l.every) {
		return
	}
	tell := l.to.Alive
	if !l.ready {
		tell = l.to.Ready
	}
	if err := tell(); err != nil { // the next part that tells tries again
		l.log.Warn("systemd does not learn that this process is alive", "err", err)
		return
	}
	l.ready, l.sent = true, now
	clear(l.told)
}

// stopping tells systemd when ctx ends that the process does so by its own will. Call
// what it returns when there is nothing more to tell.
func (l *lifeline) stopping(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		if err := l.to.Stopping(); err != nil {
			l.log.Debug("systemd does not learn that this process stops", "err", err)
		}
	})
}
