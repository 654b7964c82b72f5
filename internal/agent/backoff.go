package agent

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstDelay = 100 * time.Millisecond
	lastDelay  = 10 * time.Second
)

// backoff is the delay between tries: doubled each time up to lastDelay, less a
// random part of up to a half, so that many agents spread.
type backoff struct{ delay time.Duration }

func (b *backoff) next() time.Duration {
	b.delay = min(max(2*b.delay, firstDelay), lastDelay)
	return b.delay/2 + rand.N(b.delay/2)
}

// sleep waits for the next delay; false: ctx ended.
func (b *backoff) sleep(ctx context.Context) bool {
	t := time.NewTimer(b.next())
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
