package server

import (
	"context"
	"time"

	"github.com/cimeter/cimeter/internal/store"
)

const (
	retainEvery = 10 * time.Minute
	retainPause = time.Second // between two runs when there is more: ingest comes first
	leadPause   = 15 * time.Second
)

// retain deletes what is too old or too much, as long as this server is the one
// that does.
func (s *Server) retain(ctx context.Context) {
	for ctx.Err() == nil {
		held, release, err := s.o.Keeper.Lead(ctx, "retention")
		if err != nil {
			if ctx.Err() == nil {
				s.log.Error("retention has no lead", "err", err)
				pause(ctx, nil, leadPause)
			}
			continue
		}
		s.retainWhile(ctx, held)
		release()
	}
}

func (s *Server) retainWhile(ctx context.Context, held <-chan struct{}) {
	for {
		wait := retainEvery
		done, err := s.o.Keeper.Retain(ctx, s.retention())
		switch {
		case err != nil && ctx.Err() == nil:
			s.log.Error("retention failed", "err", err)
		case done.More:
			wait = retainPause
		}
		if done.Builds > 0 {
			s.log.Info("old builds deleted", "builds", done.Builds, "bytes", done.Bytes)
		}
		if !pause(ctx, held, wait) {
			return
		}
	}
}

func (s *Server) retention() store.Retention {
	now := s.o.Now()
	r := store.Retention{MaxBytes: s.o.MaxBytes}
	if s.o.KeepBuilds > 0 {
		r.KeepFrom = now.Add(-s.o.KeepBuilds)
	}
	if s.o.KeepTotals > 0 {
		r.TotalsFrom = now.Add(-s.o.KeepTotals)
	}
	return r
}

// pause waits for d; false: ctx or the lead ended.
func pause(ctx context.Context, held <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-held: // never of a nil one
		return false
	case <-t.C:
		return true
	}
}
