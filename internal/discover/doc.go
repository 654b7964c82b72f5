// Package discover is the role that makes agents found by Prometheus.
//
// It owns the schedule and the retry of what an agent or a server tells: an
// [Announcer] registers a machine's exporters with a registry such as Consul,
// keeps them alive, looks for neighbours on the machine, and takes everything
// back at the end; a [Publisher] keeps a file of targets as its list is. Each
// has one goroutine of its own, Run's. Neither ever holds up metering, and what
// fails is tried again, counted, and logged once.
//
// It never listens: the list over HTTP is package httpapi's. Start with
// [NewAnnouncer] or [NewPublisher].
package discover

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cimeter/cimeter/internal/discover/consul"
	"github.com/cimeter/cimeter/internal/discover/targets"
)

// Registry holds services. One try a call; the errors are those of
// [consul.Client]: Pass's wraps cimeter.ErrNotFound when the service is not
// known any more.
type Registry interface {
	Register(ctx context.Context, s consul.Service) error
	Pass(ctx context.Context, id string) error
	Deregister(ctx context.Context, id string) error
	// Outward is the address of this machine as the registry sees it; "" when it
	// knows by itself.
	Outward(ctx context.Context) (string, error)
	Address() string
}

// File is a file of targets.
type File interface {
	Write(groups []targets.Group) error
	Remove() error
	Path() string
}

const (
	firstDelay = time.Second // of a try after a failed one; it doubles
	farewell   = 3 * time.Second
)

// backoff is the delay between tries: doubled up to most, less a random part of
// up to a half, so that a fleet spreads when its registry returns.
type backoff struct{ delay time.Duration }

func (b *backoff) next(most time.Duration) time.Duration {
	b.delay = min(max(2*b.delay, firstDelay), most)
	return b.delay/2 + rand.N(b.delay/2+1)
}
