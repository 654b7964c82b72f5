package notes

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
)

const (
	lookEvery = 15 * time.Second
	perNote   = time.Minute      // between two writes to one merge request
	window    = 30 * time.Minute // how long after its end a build may arrive
	quiet     = 3 * time.Minute  // after which a pipeline of which no end is told has ended
	leadPause = 15 * time.Second
	maxRetry  = 10 // writes of one state that fail before it is given up

	maxLookups   = 3    // for the merge request of one pipeline
	lookupsALook = 10   // of one server: 40 a minute at most
	maxPipelines = 2000 // that are kept of one server
	maxJobs      = 500  // of one pipeline
	maxTold      = 1000 // pipelines that were told and not looked at
)

// Writer writes to one forge: one try each. See gitlabapi.Client.
type Writer interface {
	PutNote(ctx context.Context, project string, mergeRequest int64, marker, body string, id int64) (int64, error)
	// PutStatus wraps cimeter.ErrConflict when the commit has the status already.
	PutStatus(ctx context.Context, project, sha, description, url string, pipeline int64) error
}

// Finder finds out what nothing told of a pipeline: one try each. See
// gitlabapi.Client.
type Finder interface {
	// FindMergeRequest returns the open merge request whose branch is at a commit, 0
	// for none, and its target branch.
	FindMergeRequest(ctx context.Context, project, sha string) (number int64, target string, err error)
	// MergeRequestTarget returns a merge request's target branch.
	MergeRequestTarget(ctx context.Context, project string, number int64) (string, error)
}

// Store is what is known of builds.
type Store interface {
	List(ctx context.Context, q store.Query) (store.Page, error)
	History(ctx context.Context, q store.HistoryQuery) ([]*cimeter.Record, error)
}

// Leader waits until this server is the one that writes; held is closed when it is
// not any more.
type Leader interface {
	Lead(ctx context.Context, name string) (held <-chan struct{}, release func(), err error)
}

// Rule says what is written for a project.
type Rule struct {
	Note   bool
	Always bool // the tables also when nothing changed
	Status bool
}

// Server is one CI server whose merge requests are written to.
type Server struct {
	Name         string // as the settings call it
	CI           string
	Host         string // as keys have it
	Writer       Writer
	Finder       Finder // nil: nobody is asked
	Rule         func(project string) Rule
	Pages        string // address of the own pages; "" is none
	MergeRequest func(ref string) int64
	PipelineURL  func(project, id string) string
}

// Pipeline is what a webhook told of one.
type Pipeline struct {
	ID, Project, SHA string
	MergeRequest     int64 // 0: not told
	Target           string
	Ended            bool
}

// Options are what New needs.
type Options struct {
	Servers []Server
	Store   Store
	Leader  Leader           // nil: there is one server alone
	Now     func() time.Time // nil: time.Now
}

// Notes writes. Make it with New, run it once.
type Notes struct {
	o       Options
	log     *slog.Logger
	servers []*server

	mu   sync.Mutex
	told map[string][]Pipeline // by the server's name
}

// New returns a role that writes nothing yet.
func New(o Options, log *slog.Logger) *Notes {
	if o.Now == nil {
		o.Now = time.Now
	}
	n := &Notes{o: o, log: log, told: map[string][]Pipeline{}}
	for _, s := range o.Servers {
		n.servers = append(n.servers, &server{Server: s, pipelines: map[string]*pipeline{}, requests: map[request]*written{}})
	}
	return n
}

// Tell takes what a webhook told. It waits for nothing; more than 1,000 between two
// looks are dropped: the store tells of their builds.
func (n *Notes) Tell(server string, p Pipeline) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.told[server]) < maxTold {
		n.told[server] = append(n.told[server], p)
	}
}

// Run looks and writes until ctx ends.
func (n *Notes) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if n.o.Leader == nil {
			n.lookUntil(ctx)
			continue
		}
		held, release, err := n.o.Leader.Lead(ctx, "notes")
		if err != nil {
			if ctx.Err() == nil {
				n.log.Warn("cannot tell whether another server writes notes", "err", err)
				wait(ctx, leadPause)
			}
			continue
		}
		leading, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			select {
			case <-held:
				stop()
			case <-leading.Done():
			}
		}()
		n.lookUntil(leading)
		stop()
		<-done
		release()
	}
	return nil
}

func (n *Notes) lookUntil(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		for _, s := range n.servers {
			if err := n.look(ctx, s); err != nil && ctx.Err() == nil {
				n.log.Warn("merge requests are not told what their builds cost", "server", s.Name, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
