package poll

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/queue"
)

const (
	// longestHold is how long a server that fails is left alone at most: one that is
	// back is seen soon.
	longestHold = 5 * time.Minute
	// wrongHold is the same for one that does not know the token: to ask on would
	// lock the user out.
	wrongHold = 15 * time.Minute
	// longAway is how long this server has to be no leader for another to have polled: for
	// a shorter time the store may just have been away, and nobody did.
	longAway = 5 * time.Minute
	// mostAsked bounds what a server may ask for: a mistaken year is not for good.
	mostAsked = time.Hour
)

// follow asks one server until ctx ends.
func (p *Poller) follow(ctx context.Context, s *Server) {
	if b, ok := s.Source.(Beginner); ok && !s.left.IsZero() && p.o.Now().Sub(s.left) >= longAway {
		b.Begin()
	}
	defer func() { s.left = p.o.Now() }()
	allowed := allowance{perMinute: float64(s.Requests), left: float64(s.Requests)}
	wait := rand.N(min(s.Interval, time.Second)) // servers that start together do not ask together
	fails, requests := 0, p.o.Tally.Value(catalog.ServerSourceRequests, s.Name)
	for sleep(ctx, wait) {
		began := p.o.Now()
		r, err := s.once(ctx)
		if ctx.Err() != nil {
			return
		}
		made := requestsOf(r, err)
		requests.Add(float64(made))
		if err != nil {
			fails++
			wait = hold(s.Interval, fails, err)
			p.o.Tally.Value(catalog.ServerSourceFailures, s.Name, queue.Reason(err)).Add(1)
			p.board.Failed(s.Name, began, err)
			p.log.Warn("CI server told nothing", "server", s.Name, "err", err, "again_in", wait.Round(time.Second))
		} else {
			if fails > 0 {
				p.log.Info("CI server tells again", "server", s.Name)
			}
			fails = 0
			wait = jittered(max(s.Interval, min(r.Wait, mostAsked))) - p.o.Now().Sub(began)
			r.At = began
			p.take(s.Name, true, r)
			p.o.Tally.Value(catalog.ServerSourceSuccess, s.Name).Set(float64(began.UnixMilli()) / 1000)
		}
		wait = max(wait, allowed.spend(made, p.o.Now()), 0)
	}
}

// once asks once. An answer that an adapter is not ready for is an error of that poll,
// not the end of the server.
func (s *Server) once(ctx context.Context) (r queue.Report, err error) {
	ctx, stop := context.WithTimeout(ctx, s.Timeout)
	defer stop()
	defer func() {
		if v := recover(); v != nil {
			r, err = queue.Report{}, fmt.Errorf("poll %s: panic: %v: %w", s.Name, v, cimeter.ErrInvalid)
		}
	}()
	return s.Source.Poll(ctx)
}

func requestsOf(r queue.Report, err error) int {
	var e *queue.SourceError
	if errors.As(err, &e) {
		return max(1, e.Requests)
	}
	return max(1, r.Requests)
}

// hold is how long a server that failed so often in a row is left alone: twice as long
// each time, less a random part, and as long as it asks for.
func hold(interval time.Duration, fails int, err error) time.Duration {
	most := max(longestHold, interval)
	if reason := queue.Reason(err); reason == "unauthorized" {
		most = max(wrongHold, interval)
	}
	d := interval << min(fails-1, 10)
	if d <= 0 || d > most {
		d = most
	}
	d -= rand.N(d/4 + 1)
	var e *queue.SourceError
	if errors.As(err, &e) && e.RetryAfter > 0 {
		asked := min(e.RetryAfter, mostAsked)
		d = max(d, asked+rand.N(asked/10+time.Second))
	}
	return d
}

// jittered is d, a tenth more or less.
func jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// allowance bounds the requests of a minute, on the average.
type allowance struct {
	perMinute, left float64
	at              time.Time
}

// spend takes n requests, made at now, and returns how long to wait before the next
// one is allowed.
func (a *allowance) spend(n int, now time.Time) time.Duration {
	if !a.at.IsZero() {
		a.left = min(a.perMinute, a.left+a.perMinute*max(0, now.Sub(a.at).Minutes()))
	}
	a.at = now
	if a.left -= float64(n); a.left >= 0 {
		return 0
	}
	return time.Duration(-a.left / a.perMinute * float64(time.Minute))
}

// sleep waits for d; false: ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}
