package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/tally"
)

// Server takes records and heartbeats. Make it with New, run it once.
type Server struct {
	o       Options
	log     *slog.Logger
	ingests chan *ingest
	stopped chan struct{}
	waiting atomic.Int64
	// committed counts the builds that this server stored.
	committed atomic.Int64

	commits, commitSeconds, storeFailures, queued, busy *tally.Value
	stored, duplicates, refused, expired                *tally.Value
	heartbeats, cpu, memory, storeBytes, storeBuilds    *tally.Value
	unjoined                                            *tally.Value

	fleet fleet
	store answers

	mu      sync.Mutex
	failing error // why the store takes nothing
}

// New returns a server that does nothing yet.
func New(o Options, log *slog.Logger) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	t := o.Tally
	return &Server{
		o: o, log: log, ingests: make(chan *ingest), stopped: make(chan struct{}),
		commits:       t.Value(catalog.ServerCommits),
		commitSeconds: t.Value(catalog.ServerCommitSeconds),
		storeFailures: t.Value(catalog.ServerStoreFailures),
		queued:        t.Value(catalog.ServerQueue),
		busy:          t.Value(catalog.ServerRejected, "busy"),
		stored:        t.Value(catalog.ServerRecords, "stored"),
		duplicates:    t.Value(catalog.ServerRecords, "duplicate"),
		refused:       t.Value(catalog.ServerRecords, "refused"),
		expired:       t.Value(catalog.ServerRecords, "expired"),
		heartbeats:    t.Value(catalog.ServerHeartbeats),
		cpu:           t.Value(catalog.ServerCPU),
		memory:        t.Value(catalog.ServerMemory),
		storeBytes:    t.Value(catalog.ServerStoreBytes),
		storeBuilds:   t.Value(catalog.ServerStoreBuilds),
		unjoined:      t.Value(catalog.ServerUnjoined),
		fleet: fleet{
			agents:  map[string]*agent{},
			known:   t.Value(catalog.ServerAgents),
			running: t.Value(catalog.ServerRunning),
			dropped: t.Value(catalog.ServerAgentsDropped),
		},
	}
}

// Run commits until ctx ends. Requests that wait then are told to come again.
func (s *Server) Run(ctx context.Context) error {
	defer close(s.stopped)
	var parts sync.WaitGroup
	parts.Go(func() { s.watch(ctx) })
	parts.Go(func() { s.weigh(ctx) })
	if s.o.Keeper != nil {
		parts.Go(func() { s.retain(ctx) })
	}
	if w, ok := s.o.Store.(Warmer); ok {
		parts.Go(func() { s.warm(ctx, w) })
	}
	for range max(1, s.o.Committers) {
		parts.Go(func() { s.commit(ctx) })
	}
	parts.Wait()
	return nil
}

// Ready returns nil, or why records are not taken.
func (s *Server) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing
}

func (s *Server) state(err error) {
	s.mu.Lock()
	was := s.failing
	s.failing = err
	if err != nil {
		s.failing = fmt.Errorf("store: %w", err)
	}
	s.mu.Unlock()
	if was != nil && err == nil {
		s.log.Info("records are stored again")
	}
}

func (s *Server) fault(step string) {
	if s.o.Fault != nil {
		s.o.Fault(step)
	}
}
