package hooks

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/tally"
)

const (
	// maxWaiting bounds what waits for the board: a burst of 16 seconds at 500 a second.
	maxWaiting = 8192
	// maxIDs bounds the deliveries that are remembered: four hours at 15 a second. What
	// comes again later changes nothing, since a board takes anything twice.
	maxIDs  = 200_000
	keepIDs = 24 * time.Hour
)

// Server is one CI server whose webhooks are taken.
type Server struct {
	Name string // as the settings call it
	CI   string // kind: the last part of the path
	Hook Hook
}

// Options are what New needs. Take and Tally must be set.
type Options struct {
	Servers []Server
	Take    func(server string, r queue.Report) // has one caller at a time
	Tally   *tally.Table
	Now     func() time.Time // nil: time.Now
}

// Receiver takes webhooks. Make it with New, run it once.
type Receiver struct {
	o       Options
	log     *slog.Logger
	waiting chan item

	mu           sync.Mutex
	older, newer map[[16]byte]struct{} // deliveries: of the last period, and of this one
	since        time.Time             // when newer began
}

type item struct {
	server string
	report queue.Report
}

// New returns a receiver that hands nothing on yet.
func New(o Options, log *slog.Logger) *Receiver {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Receiver{o: o, log: log, waiting: make(chan item, maxWaiting), newer: map[[16]byte]struct{}{}, since: o.Now()}
}

// Kinds are the kinds of CI servers whose webhooks are taken.
func (r *Receiver) Kinds() (kinds []string) {
	for _, s := range r.o.Servers {
		kinds = append(kinds, s.CI)
	}
	return kinds
}

// Run hands webhooks on until ctx ends, and then those that wait.
func (r *Receiver) Run(ctx context.Context) error {
	for {
		select {
		case i := <-r.waiting:
			r.o.Take(i.server, i.report)
		case <-ctx.Done():
			for {
				select {
				case i := <-r.waiting:
					r.o.Take(i.server, i.report)
				default:
					return nil
				}
			}
		}
	}
}

// Receive takes one webhook for that kind of CI server. It waits for nothing. The
// error wraps [cimeter.ErrNotFound] for a kind that is not set up,
// [cimeter.ErrUnauthorized] for what none of the secrets verifies,
// [cimeter.ErrInvalid] for what cannot be read, or
// [httpapi.ErrBusy].
func (r *Receiver) Receive(ci string, header http.Header, body []byte) error {
	now := r.o.Now()
	of, err := r.whose(ci, header, body, now)
	if err != nil {
		if !errors.Is(err, cimeter.ErrNotFound) {
			r.count(ci, "unverified")
			r.log.Warn("webhook is not of a server that is known", "ci", ci, "err", err)
		}
		return err
	}
	report, id, err := parse(of.Hook, header, body)
	switch {
	case errors.Is(err, cimeter.ErrUnsupported):
		r.count(ci, "ignored")
		return nil
	case err != nil:
		r.count(ci, "unreadable")
		r.log.Warn("webhook cannot be read", "server", of.Name, "err", err)
		return fmt.Errorf("read webhook: %w", err)
	}
	report.At = now
	report.WholeJobs, report.WholeWorkers, report.EveryWorker = false, false, false // a webhook tells of one thing
	key := idOf(of.Name, id)
	if id != "" && !r.first(key, now) {
		r.count(ci, "duplicate")
		return nil
	}
	select {
	case r.waiting <- item{of.Name, report}:
		r.count(ci, "taken")
		return nil
	default:
		if id != "" {
			r.forget(key) // it will come again
		}
		r.count(ci, "busy")
		return httpapi.ErrBusy
	}
}

// whose finds the server whose secret verifies the webhook. All of the kind are tried.
func (r *Receiver) whose(ci string, header http.Header, body []byte, now time.Time) (of *Server, err error) {
	known := false
	for i := range r.o.Servers {
		s := &r.o.Servers[i]
		if s.CI != ci {
			continue
		}
		known = true
		verr := s.Hook.Verify(header, body, now)
		if verr == nil && of == nil {
			of = s
		}
		err = verr
	}
	switch {
	case of != nil:
		return of, nil
	case !known:
		return nil, fmt.Errorf("webhooks of %q: %w", ci, cimeter.ErrNotFound)
	case errors.Is(err, cimeter.ErrUnauthorized):
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", err, cimeter.ErrUnauthorized) // a secret that cannot be read, too
}

// parse reads a webhook. What a parser is not ready for is an error of that one.
func parse(h Hook, header http.Header, body []byte) (report queue.Report, id string, err error) {
	defer func() {
		if v := recover(); v != nil {
			report, id, err = queue.Report{}, "", fmt.Errorf("panic: %v: %w", v, cimeter.ErrInvalid)
		}
	}()
	return h.Parse(header, body)
}

func idOf(server, id string) (key [16]byte) {
	sum := sha256.Sum256([]byte(server + "\n" + id))
	return [16]byte(sum[:16])
}

// first reports whether a delivery is new, and remembers it: for at least a day, or
// until there are many newer ones.
func (r *Receiver) first(key [16]byte, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.newer) >= maxIDs/2 || now.Sub(r.since) > keepIDs {
		r.older, r.newer, r.since = r.newer, map[[16]byte]struct{}{}, now
	}
	if _, known := r.newer[key]; known {
		return false
	}
	if _, known := r.older[key]; known {
		return false
	}
	r.newer[key] = struct{}{}
	return true
}

func (r *Receiver) forget(key [16]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.newer, key)
}

func (r *Receiver) count(ci, result string) { r.o.Tally.Value(catalog.ServerHooks, ci, result).Add(1) }
