// Package bridge is the role that brings the metrics of other programs to the
// outputs: it scrapes each source at its interval and holds what it said last.
//
// It owns one goroutine a source, so that one that hangs holds up no other, their
// schedule, deadlines, counters and log lines. A source that cannot be read has no
// metrics until it can be again: an old value is not a value. Start with [New],
// then [Bridge.Run]; [Bridge.Families] may be called by any goroutine.
package bridge

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/scrape"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

// DefaultInterval is the time between two scrapes where nothing is said:
// Prometheus' own is a minute, that of most set-ups 15 s.
const DefaultInterval = 15 * time.Second

// maxTimeout bounds one scrape, as Prometheus does by default.
const maxTimeout = 10 * time.Second

// Scraper reads a page once, within ctx.
type Scraper interface {
	Scrape(ctx context.Context) (scrape.Page, error)
}

// Source is a page that is read at an interval.
type Source struct {
	Name     string // as in labels and messages
	Page     Scraper
	Interval time.Duration // 0 is DefaultInterval; a scrape takes at most that, and 10 s
	Serve    bool          // Served returns it too
}

// Bridge holds what its sources said. Make it with New, run it once.
type Bridge struct {
	sources []Source
	tally   *tally.Table
	log     *slog.Logger

	mu   sync.Mutex
	said [][]series.Family // by source; nil: nothing now
}

// New returns a bridge that has read nothing yet.
func New(sources []Source, t *tally.Table, log *slog.Logger) *Bridge {
	return &Bridge{sources: sources, tally: t, log: log, said: make([][]series.Family, len(sources))}
}

// Run reads the sources until ctx ends, and returns nil.
func (b *Bridge) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for i := range b.sources {
		wg.Go(func() { b.follow(ctx, i) })
	}
	wg.Wait()
	<-ctx.Done()
	return nil
}

func (b *Bridge) follow(ctx context.Context, i int) {
	s := b.sources[i]
	if s.Interval == 0 {
		s.Interval = DefaultInterval
	}
	log := b.log.With("name", s.Name) // "source" is where in the program a line was logged
	// The first read comes soon, but not all sources' at once.
	wait := time.NewTimer(rand.N(min(s.Interval, time.Second)))
	defer wait.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		begun := time.Now()
		err := b.read(ctx, i, min(s.Interval, maxTimeout))
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			log.Warn("source cannot be read", "err", err)
		case err == nil && failing:
			log.Info("source is read again")
		}
		failing = err != nil
		wait.Reset(max(0, s.Interval-time.Since(begun)))
	}
}

// read reads source i once and keeps what it said.
func (b *Bridge) read(ctx context.Context, i int, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	name := b.sources[i].Name
	page, err := b.sources[i].Page.Scrape(ctx)
	result, up := "ok", 1.0
	if err != nil {
		result, up, page = "failed", 0, scrape.Page{}
	}
	b.mu.Lock()
	b.said[i] = page.Families
	b.mu.Unlock()
	n := 0
	for _, f := range page.Families {
		n += len(f.Points)
	}
	b.tally.Value(catalog.SourceScrapes, name, result).Add(1)
	b.tally.Value(catalog.SourceUp, name).Set(up)
	b.tally.Value(catalog.SourceSeries, name).Set(float64(n))
	for _, d := range page.Skipped {
		b.tally.Value(catalog.SourceSkipped, name, d.Reason).Add(float64(d.Points))
	}
	return err
}

// Families returns what the sources said last. Families of one name and kind are
// one; of one name and another kind, those of the first source are kept.
func (b *Bridge) Families() []series.Family { return b.families(func(Source) bool { return true }) }

// Served returns what those sources said last that are to be served.
func (b *Bridge) Served() []series.Family { return b.families(func(s Source) bool { return s.Serve }) }

func (b *Bridge) families(wanted func(Source) bool) []series.Family {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []series.Family
	at := map[string]int{}
	for i, families := range b.said {
		if !wanted(b.sources[i]) {
			continue
		}
		for _, f := range families {
			i, ok := at[f.Name]
			switch {
			case !ok:
				at[f.Name] = len(all)
				all = append(all, f)
			case all[i].Kind == f.Kind:
				all[i].Points = append(all[i].Points[:len(all[i].Points):len(all[i].Points)], f.Points...)
			}
		}
	}
	return all
}
