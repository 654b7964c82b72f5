package poll

import (
	"context"
	"fmt"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
)

// Events follows what a CI server tells of itself until the stream or ctx ends: one
// try. The error says why it ended, and wraps a [queue.SourceError] where the server
// answered. It may be called beside Poll.
type Events interface {
	Events(ctx context.Context, each func(queue.Report)) error
}

// settled is how long a stream has to last to be one that works: servers and proxies
// end them now and then.
const settled = time.Minute

// listen follows the stream of one server until ctx ends. What it missed meanwhile
// comes with the next poll, so a stream that fails is no failure of the server: it is
// said once, and tried again ever more seldom.
func (p *Poller) listen(ctx context.Context, s *Server) {
	fails := 0
	for wait := time.Duration(0); sleep(ctx, wait); {
		began := p.o.Now()
		err := s.events(ctx, func(r queue.Report) {
			r.At = p.o.Now()
			p.take(s.Name, false, r)
		})
		if ctx.Err() != nil {
			return
		}
		if p.o.Now().Sub(began) > settled {
			fails = 0
		}
		if fails++; fails == 2 {
			p.log.Warn("CI server's events cannot be followed", "server", s.Name, "err", err)
		}
		wait = hold(s.Interval, fails, err)
	}
}

// events follows once. An event that an adapter is not ready for ends the stream, not
// the server.
func (s *Server) events(ctx context.Context, each func(queue.Report)) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("events of %s: panic: %v: %w", s.Name, v, cimeter.ErrInvalid)
		}
	}()
	return s.Events.Events(ctx, each)
}
