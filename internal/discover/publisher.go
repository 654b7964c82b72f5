package discover

import (
	"context"
	"log/slog"
	"time"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/discover/targets"
	"github.com/cimeter/cimeter/internal/tally"
)

// DefaultLook is how often a Publisher looks at its list: as often as agents
// are heard of.
const DefaultLook = 5 * time.Second

// PublisherOptions are what NewPublisher needs; File, List and Tally must be set.
type PublisherOptions struct {
	File  File
	List  func() []targets.Group // the whole list, as it is now
	Ready func() bool            // nothing is written before; nil: ready
	Look  time.Duration          // between two looks; 0 is DefaultLook
	Leave bool                   // take the file away at the end: of a machine's own file, not of a fleet's
	Tally *tally.Table
}

// Publisher keeps a file of targets. Make it with NewPublisher, run it once.
type Publisher struct {
	o               PublisherOptions
	log             *slog.Logger
	told            string // error that was logged; Run's alone
	count, failures *tally.Value
}

// NewPublisher returns a publisher that does nothing yet.
func NewPublisher(o PublisherOptions, log *slog.Logger) *Publisher {
	if o.Look == 0 {
		o.Look = DefaultLook
	}
	return &Publisher{o: o, log: log, count: o.Tally.Value(catalog.DiscoveryTargets, "file"), failures: o.Tally.Value(catalog.DiscoveryFailures, "file")}
}

// Run publishes until ctx ends. A fleet's file stays as it is then: Prometheus
// goes on with it until the server is back.
func (p *Publisher) Run(ctx context.Context) error {
	tick := time.NewTicker(p.o.Look)
	defer tick.Stop()
	for {
		if p.o.Ready == nil || p.o.Ready() {
			p.write()
		}
		select {
		case <-ctx.Done():
			if !p.o.Leave {
				return nil
			}
			if err := p.o.File.Remove(); err != nil {
				p.log.Warn("targets are not taken away", "err", err)
			}
			return nil
		case <-tick.C:
		}
	}
}

func (p *Publisher) write() {
	groups := p.o.List()
	if err := p.o.File.Write(groups); err != nil {
		p.failures.Add(1)
		if p.told != err.Error() {
			p.told = err.Error()
			p.log.Warn("targets are not written, it is tried again", "err", err)
		}
		return
	}
	p.count.Set(float64(len(groups)))
	if p.told != "" {
		p.told = ""
		p.log.Info("targets are written again", "file", p.o.File.Path())
	}
}
