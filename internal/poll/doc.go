// Package poll is the role that asks CI servers what waits, what runs and who
// works, and keeps a [queue.Board] of it.
//
// It owns one goroutine for each source, which asks at its interval, with jitter,
// less often after failures and as the server wishes; one for each stream of events;
// one that looks at the board every few seconds, for the metrics and the history; and
// one that stores what changed. Of several servers on one store one asks: the others
// take over when it is gone. A source that fails leaves what it told last, marked as
// stale.
//
// Start with [New], then [Poller.Run]. All other methods may be called by many
// goroutines at once.
package poll

import (
	"context"

	"github.com/cimeter/cimeter/internal/queue"
)

// Source asks one CI server: one try, of which the context bounds the time. It has
// one caller at a time. It keeps etags and cursors in itself. The error is, or wraps,
// a [queue.SourceError] where the server answered; the report is nothing then.
type Source interface {
	Poll(ctx context.Context) (queue.Report, error)
}

// Beginner is a Source that is told when its polls begin anew after five minutes or
// more in which this server did not lead: what came and ended meanwhile another one saw.
// It is not called beside Poll.
type Beginner interface {
	Begin()
}

// Canceller ends a build of one CI server by its key: one try. The error wraps
// cimeter.ErrNotFound, ErrUnauthorized or ErrConflict (it ended already). It may be
// called beside Poll.
type Canceller interface {
	Cancel(ctx context.Context, key string) error
}
