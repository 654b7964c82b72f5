package push

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstDelay = 500 * time.Millisecond
	lastDelay  = 30 * time.Second // so that all is sent within a minute of the server's return
)

// backoff is the delay between tries: doubled each time up to lastDelay, less a
// random part of up to a half, so that many agents spread.
type backoff struct{ delay time.Duration }

func (b *backoff) next() time.Duration {
	b.delay = min(max(2*b.delay, firstDelay), lastDelay)
	return b.delay/2 + rand.N(b.delay/2)
}

func (b *backoff) sleep(ctx context.Context) bool { return sleep(ctx, b.next()) }

// spread is d and up to a half of it more: never less than a server asked for.
func spread(d time.Duration) time.Duration { return d + rand.N(d/2+1) }

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
