package export

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

// The reasons of the counter of drops that are the role's own; outputs add
// theirs.
const (
	failed   = "failed"   // the try failed
	heldOff  = "held_off" // the receiver is left alone for a while
	noRoom   = "queue"    // records wait already that fill the queue
	refused  = "refused"  // the receiver will never take the record
	shutdown = "shutdown" // records that waited when the process ended
)

const (
	firstHold = time.Second
	lastHold  = 2 * time.Minute // so that a receiver that is back is found soon
	// endDelay is how long after a build's end its counters are sent: builds that
	// end together are sent together.
	endDelay = 500 * time.Millisecond
	// maxAsked bounds what a receiver may ask for.
	maxAsked = 10 * time.Minute
)

// loop feeds one output.
type loop struct {
	target   Target
	keeper   Keeper // Metrics, when it keeps
	tally    *tally.Table
	log      *slog.Logger
	families func() []series.Family
	queue    chan *cimeter.Record // nil: it takes no records
	ended    chan struct{}        // a build has ended; holds one

	points, records, success *tally.Value
}

// hold is how long a receiver that fails is left alone.
type hold struct {
	delay time.Duration
	until time.Time
	told  bool // that it fails
}

// failed leaves the receiver alone from now on: twice as long as the last time,
// less a random part of up to a half so that many senders spread; and as long
// as it asked for, with up to a half more.
func (h *hold) failed(now time.Time, err error) {
	h.delay = min(max(2*h.delay, firstHold), lastHold)
	wait := h.delay/2 + rand.N(h.delay/2)
	var asks interface{ RetryAfter() time.Duration }
	if errors.As(err, &asks) {
		if asked := min(asks.RetryAfter(), maxAsked); asked > 0 {
			wait = max(wait, asked+rand.N(asked/2+1))
		}
	}
	h.until = now.Add(wait)
}

// run sends metrics at the interval until ctx ends, and once more after that,
// until last ends. A try that runs when ctx ends may go on until then too.
func (l *loop) run(ctx, last context.Context) {
	var (
		h    hold
		busy chan result // a keeper's try that runs
		lost int         // points of the last interval, for those that are skipped
	)
	next := time.Now().Add(rand.N(l.target.Interval)) // agents that start together do not send together
	for l.sleep(ctx, &next) {
		now := time.Now()
		next = next.Add(l.target.Interval)
		if next.Before(now) { // held up, or the machine slept: no burst
			next = now.Add(l.target.Interval)
		}
		if l.keeper != nil {
			l.keep(now)
			if busy != nil {
				select {
				case r := <-busy:
					busy = nil
					l.settle(&h, r, 0)
				default: // it still runs, and is within its deadline
				}
			}
			if busy == nil && !now.Before(h.until) {
				busy = make(chan result, 1)
				go func() { busy <- l.try(last, now, nil) }()
			}
			continue
		}
		if now.Before(h.until) {
			l.drop(heldOff, lost)
			continue
		}
		families := l.families()
		lost = count(families)
		l.settle(&h, l.try(last, now, families), lost)
	}
	if busy != nil {
		l.settle(&h, <-busy, 0)
	}
	now := time.Now()
	families := l.families()
	if l.keeper != nil {
		l.count(l.keeper.Keep(now, families))
		l.settle(&h, l.try(last, now, nil), 0)
	} else {
		l.settle(&h, l.try(last, now, families), count(families))
	}
	if e, ok := l.target.Metrics.(Ender); ok && last.Err() == nil {
		sent, err := e.End(last, time.Now())
		l.settle(&h, result{sent, err}, 0)
	}
}

// sleep waits until next, and reports whether ctx still runs. The end of a build
// moves next nearer for an output that is sent to at a build's end.
func (l *loop) sleep(ctx context.Context, next *time.Time) bool {
	if !l.target.AtEnd {
		return sleepUntil(ctx, *next)
	}
	timer := time.NewTimer(time.Until(*next))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return ctx.Err() == nil
		case <-l.ended:
			if soon := time.Now().Add(endDelay); soon.Before(*next) {
				*next = soon
				timer.Reset(endDelay)
			}
		}
	}
}

func (l *loop) keep(now time.Time) { l.count(l.keeper.Keep(now, l.families())) }

// result is what became of one try.
type result struct {
	sent series.Sent
	err  error
}

func (l *loop) try(ctx context.Context, at time.Time, families []series.Family) result {
	ctx, cancel := context.WithTimeout(ctx, min(l.target.Timeout, l.target.Interval))
	defer cancel()
	sent, err := l.target.Metrics.Send(ctx, at, families)
	return result{sent, err}
}

// settle counts a try that was given that many points, and says so once when the
// receiver begins to fail, and once when it takes again.
func (l *loop) settle(h *hold, r result, given int) {
	l.count(r.sent)
	if r.err == nil {
		l.success.Set(float64(time.Now().UnixNano()) / 1e9)
		l.works(h)
		return
	}
	left := given - r.sent.Points
	for _, d := range r.sent.Dropped {
		left -= d.Points
	}
	l.drop(failed, left)
	l.fails(h, r.err)
}

func (l *loop) works(h *hold) {
	if h.told {
		l.log.Info("output works again")
	}
	*h = hold{}
}

func (l *loop) fails(h *hold, err error) {
	h.failed(time.Now(), err)
	l.tally.Value(catalog.OutputFailures, l.target.Name, reason(err)).Add(1)
	if !h.told {
		h.told = true
		l.log.Warn("output fails", "err", err)
		return
	}
	l.log.Debug("output fails still", "err", err)
}

func (l *loop) count(s series.Sent) {
	l.points.Add(float64(s.Points))
	for _, d := range s.Dropped {
		l.drop(d.Reason, d.Points)
	}
}

func (l *loop) drop(reason string, n int) {
	if n > 0 {
		l.tally.Value(catalog.OutputDropped, l.target.Name, reason).Add(float64(n))
	}
}

// reason is the kind of a failure, for a label.
func reason(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "shutdown"
	case errors.Is(err, cimeter.ErrUnauthorized):
		return "unauthorized"
	case errors.Is(err, cimeter.ErrInvalid), errors.Is(err, cimeter.ErrUnsupported):
		return "refused"
	case errors.Is(err, cimeter.ErrUnavailable):
		return "unavailable"
	}
	return "error"
}

func count(families []series.Family) (n int) {
	for i := range families {
		n += len(families[i].Points)
	}
	return n
}

// sleepUntil waits until t, and reports whether ctx still runs.
func sleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
