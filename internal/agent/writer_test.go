package agent

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/tally"
)

// picky refuses one record for good, as one that is too large.
type picky struct{ *shelf }

func (p picky) Put(r *cimeter.Record) error {
	if r.Key == "poison" {
		return fmt.Errorf("put record %s: %w", r.Key, cimeter.ErrInvalid)
	}
	return p.shelf.Put(r)
}

// A record that cannot be kept is counted, and those behind it are not held up.
func TestWriter_refusedRecord(t *testing.T) {
	s := newShelf()
	table := tally.New(tally.Options{})
	w := newWriter(picky{s}, table, slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { w.run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	for _, key := range []string{"before", "poison", "after"} {
		w.put(&cimeter.Record{Build: cimeter.Build{Key: key}})
	}
	s.await(t, "before")
	s.await(t, "after")
	within(t, "nothing waits", func() bool { return w.waiting() == 0 })
	if v, _ := table.Value(catalog.AgentDropped, "invalid").Get(); v != 1 || w.err() != nil {
		t.Errorf("%v records refused, %v; want 1, and the disk is trusted", v, w.err())
	}
}
