package refine

import (
	"context"
	"log/slog"
	"time"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/section"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/tally"
)

const (
	lookEvery = 15 * time.Second
	readTime  = 30 * time.Second // of one log
	settle    = 30 * time.Second // after a build's end, its log may still be written
	narrow    = 30 * time.Minute // how long after its end a build is looked for each time
	wide      = 24 * time.Hour   // and at every wideEvery
	wideEvery = 10 * time.Minute
	leadPause = 15 * time.Second

	firstPause = time.Minute
	wrongPause = 15 * time.Minute // of a server that does not know the token
	maxTries   = 5

	maxPages = 20    // of builds in one look
	maxDue   = 5_000 // logs that wait to be read, of one server; those of later looks come again

	// DefaultRequests is how many logs are read in a minute where nothing is said.
	DefaultRequests = 10
)

// Reader reads a log: one try. See gitlabapi.Client. The error wraps
// cimeter.ErrNotFound for a log that is gone.
type Reader interface {
	Sections(ctx context.Context, project, key string) (section.Log, error)
}

// Store is what is known of builds, and where sections are kept beside them.
type Store interface {
	List(ctx context.Context, q store.Query) (store.Page, error)
	SectionsOf(ctx context.Context, keys []string) (map[string][]byte, error)
	PutSections(ctx context.Context, all []store.Sections) error
}

// Leader waits until this server is the one that reads; held is closed when it is not
// any more.
type Leader interface {
	Lead(ctx context.Context, name string) (held <-chan struct{}, release func(), err error)
}

// Server is one CI server whose logs are read.
type Server struct {
	Name     string // as the settings call it
	CI       string
	Host     string // as keys have it
	Reader   Reader
	Wanted   func(project string) bool
	Requests int // in a minute, on the average; 0 is DefaultRequests
}

// Options are what New needs.
type Options struct {
	Servers []Server
	Store   Store
	Tally   *tally.Table
	Leader  Leader           // nil: there is one server alone
	Now     func() time.Time // nil: time.Now
}

// Refiner reads. Make it with New, run it once.
type Refiner struct {
	o       Options
	log     *slog.Logger
	servers []*server
}

// New returns a role that reads nothing yet.
func New(o Options, log *slog.Logger) *Refiner {
	if o.Now == nil {
		o.Now = time.Now
	}
	f := &Refiner{o: o, log: log}
	for _, s := range o.Servers {
		if s.Requests <= 0 {
			s.Requests = DefaultRequests
		}
		f.servers = append(f.servers, &server{Server: s, due: map[string]*build{}, done: map[string]time.Time{}, left: float64(s.Requests)})
		for _, result := range []string{"kept", "gone", "failed"} {
			o.Tally.Value(catalog.ServerLogsRead, s.Name, result).Add(0)
		}
	}
	return f
}

// Run reads until ctx ends.
func (f *Refiner) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if f.o.Leader == nil {
			f.lookUntil(ctx)
			continue
		}
		held, release, err := f.o.Leader.Lead(ctx, "sections")
		if err != nil {
			if ctx.Err() == nil {
				f.log.Warn("cannot tell whether another server reads logs", "err", err)
				wait(ctx, leadPause)
			}
			continue
		}
		leading, stop := context.WithCancel(ctx)
		go func() {
			select {
			case <-held:
				stop()
			case <-leading.Done():
			}
		}()
		f.lookUntil(leading)
		stop()
		release()
	}
	return nil
}

func (f *Refiner) lookUntil(ctx context.Context) {
	for {
		for _, s := range f.servers {
			if err := f.look(ctx, s); err != nil && ctx.Err() == nil {
				f.log.Warn("logs are not read for their sections", "server", s.Name, "err", err)
			}
		}
		if !wait(ctx, lookEvery) {
			return
		}
	}
}

// wait waits for d; false: ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}
