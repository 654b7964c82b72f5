package poll

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/tally"
)

// Store keeps what CI servers tell of builds. It has one caller at a time; what it
// was given before may come again.
type Store interface {
	PutJobs(ctx context.Context, jobs []cimeter.Job) error
}

// Leader waits until this server is the one that asks. held is closed when it is not
// any more.
type Leader interface {
	Lead(ctx context.Context, name string) (held <-chan struct{}, release func(), err error)
}

// Server is one CI server. Without a Source its webhooks alone tell of it.
type Server struct {
	Name     string
	CI       string
	Source   Source
	Events   Events        // nil: it has no stream; followed where Source is asked
	Cancel   Canceller     // nil: nothing is cancelled there
	Interval time.Duration // between two polls
	Timeout  time.Duration // of one poll
	// Requests is the most requests in a minute, on the average; 0 is 60. One poll
	// may make more: the next then waits.
	Requests int

	left time.Time // when this server stopped asking it; zero: it did not
}

// The defaults of a Server.
const (
	DefaultInterval = 10 * time.Second // a build that waits is seen within 15 s
	DefaultTimeout  = 30 * time.Second
	DefaultRequests = 60
)

// Options are what New needs. Tally must be set.
type Options struct {
	Servers []Server
	Tally   *tally.Table
	Store   Store                     // nil: nothing is stored
	History History                   // nil: a restart loses the history of the queues
	Leader  Leader                    // nil: there is one server alone
	Agents  func() []queue.AgentBuild // what the agents run now; nil: there are none
	Now     func() time.Time          // nil: time.Now
}

// Poller asks. Make it with New, run it once.
type Poller struct {
	o     Options
	log   *slog.Logger
	board *queue.Board
	keep  keeper
	past  historian
	shown shown

	mu      sync.Mutex
	leading bool
}

// New returns a poller that does nothing yet.
func New(o Options, log *slog.Logger) *Poller {
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Poller{o: o, log: log}
	var sources []queue.Source
	for i := range o.Servers {
		s := &p.o.Servers[i]
		if s.Interval <= 0 {
			s.Interval = DefaultInterval
		}
		if s.Timeout <= 0 {
			s.Timeout = DefaultTimeout
		}
		if s.Requests <= 0 {
			s.Requests = DefaultRequests
		}
		one := queue.Source{Name: s.Name, CI: s.CI}
		if s.Source != nil {
			one.Interval = s.Interval
		}
		sources = append(sources, one)
	}
	p.board = queue.NewBoard(queue.Options{Servers: sources, Start: o.Now()})
	p.keep = keeper{store: o.Store, log: log, tally: o.Tally, wake: make(chan struct{}, 1), pending: map[string]cimeter.Job{}}
	p.past = historian{store: o.History, board: p.board, log: log, tally: o.Tally, leads: p.leads, now: o.Now}
	p.shown = shown{tally: o.Tally, workers: map[string][6]string{}}
	p.lead(o.Leader == nil)
	return p
}

// Run asks until ctx ends.
func (p *Poller) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	parts.Go(func() { p.look(ctx) })
	parts.Go(func() { p.keep.run(ctx) })
	parts.Go(func() { p.past.run(ctx) })
	if p.o.Leader == nil {
		p.ask(ctx)
	} else {
		p.askWhileLeading(ctx)
	}
	parts.Wait()
	return nil
}

const leadPause = 15 * time.Second

func (p *Poller) askWhileLeading(ctx context.Context) {
	for ctx.Err() == nil {
		held, release, err := p.o.Leader.Lead(ctx, "ci servers")
		if err != nil {
			if ctx.Err() == nil {
				p.log.Error("who asks the CI servers cannot be settled", "err", err)
				sleep(ctx, leadPause)
			}
			continue
		}
		asking, stop := context.WithCancel(ctx)
		go func() {
			select {
			case <-held:
				stop()
			case <-asking.Done():
			}
		}()
		p.lead(true)
		p.ask(asking)
		p.lead(false)
		stop()
		release()
	}
}

func (p *Poller) lead(yes bool) {
	p.mu.Lock()
	p.leading = yes
	p.mu.Unlock()
	for _, s := range p.o.Servers {
		p.board.Elsewhere(s.Name, !yes)
	}
}

func (p *Poller) leads() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leading
}

// ask asks all servers until ctx ends.
func (p *Poller) ask(ctx context.Context) {
	var parts sync.WaitGroup
	for i := range p.o.Servers {
		if s := &p.o.Servers[i]; s.Source != nil {
			parts.Go(func() { p.follow(ctx, s) })
			if s.Events != nil {
				parts.Go(func() { p.listen(ctx, s) })
			}
		}
	}
	<-ctx.Done()
	parts.Wait()
}

// State returns what is known now.
func (p *Poller) State() queue.State { return p.board.State(p.o.Now()) }

// Take takes what a webhook of the server of that name told.
func (p *Poller) Take(name string, r queue.Report) { p.take(name, false, r) }

func (p *Poller) take(name string, polled bool, r queue.Report) {
	p.keep.add(p.board.Add(name, polled, r))
}

// CancelTime bounds how long a CI server may take to cancel a build.
const CancelTime = 20 * time.Second

// Cancel asks a build's CI server to end it: once. by says who wants it, for the log.
// The error wraps [cimeter.ErrNotFound] for a build of none of the servers, and
// [cimeter.ErrUnsupported] where there is no token that may.
func (p *Poller) Cancel(ctx context.Context, key, by string) error {
	s := p.serverOf(key)
	if s == nil {
		return fmt.Errorf("cancel %q: it neither waits nor runs on any CI server that is known: %w", key, cimeter.ErrNotFound)
	}
	if s.Cancel == nil {
		return fmt.Errorf("cancel %s: %s has no token that may: want ci_servers.cancel_token_file: %w", key, s.Name, cimeter.ErrUnsupported)
	}
	ctx, stop := context.WithTimeout(ctx, CancelTime)
	defer stop()
	err := s.Cancel.Cancel(ctx, key)
	log := p.log.With("build", key, "server", s.Name, "by", by) // a kind of its own: not a repeat of another one
	if err != nil {
		log.Warn("build was not canceled", "err", err)
		return fmt.Errorf("cancel %s: %w", key, err)
	}
	log.Info("build was canceled")
	return nil
}

// serverOf finds the server of a build that waits or runs, nil when none has it. What
// another server of the fleet knows is told by the key.
func (p *Poller) serverOf(key string) *Server {
	var on string
	for _, b := range p.State().Builds {
		if b.Key == key {
			on = b.On
		}
	}
	for i := range p.o.Servers {
		s := &p.o.Servers[i]
		if on == s.Name || on == "" && !p.leads() && strings.HasPrefix(key, cimeter.BuildKey(s.CI, s.Name)+"/") {
			return s
		}
	}
	return nil
}
