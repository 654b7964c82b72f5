// Package daybook is the role that keeps what machines did, in tens of minutes, for a day:
// their agents' heartbeats tell what they do now, and a server remembers ten minutes of
// it.
//
// At the end of each ten minutes it writes the mean of each machine that was heard of
// in them, at most 2,000 of them, the names first in order. A machine that two servers
// of one store hear of in one time has the point of whichever writes last. What cannot
// be written is lost: the next point is ten minutes away, and no queue grows.
//
// One goroutine. Start with [New], then [Keeper.Run].
package daybook

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/store"
)

const (
	// Step is the time that a point is the mean of.
	Step = 10 * time.Minute
	// Keep is how long points are kept.
	Keep = 25 * time.Hour // a chart of a day begins between two of them

	maxMachines = 2000
	writeTime   = 30 * time.Second
)

// Store keeps points.
type Store interface {
	PutMachinePoints(ctx context.Context, points []store.MachinePoint, upTo time.Time) error
}

// Options are what New needs.
type Options struct {
	Store  Store
	Agents func() []httpapi.Agent
	Now    func() time.Time // nil: time.Now
}

// Keeper keeps. Make it with New, run it once.
type Keeper struct {
	o   Options
	log *slog.Logger
}

// New returns a role that keeps nothing yet.
func New(o Options, log *slog.Logger) *Keeper {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Keeper{o: o, log: log}
}

// Run keeps until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		now := k.o.Now()
		end := now.Truncate(Step).Add(Step)
		t := time.NewTimer(end.Sub(now))
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		if err := k.keep(ctx, end); err != nil && ctx.Err() == nil {
			k.log.Warn("what machines did is not kept", "err", err)
		}
	}
}

// keep writes the points of the time that ends at end.
func (k *Keeper) keep(ctx context.Context, end time.Time) error {
	byName := map[string]store.MachinePoint{}
	for _, a := range k.o.Agents() {
		if p, ok := pointOf(&a, end); ok {
			byName[p.Machine] = p
		}
	}
	points := make([]store.MachinePoint, 0, len(byName))
	for _, p := range byName {
		points = append(points, p)
	}
	slices.SortFunc(points, func(x, y store.MachinePoint) int { return strings.Compare(x.Machine, y.Machine) })
	if over := len(points) - maxMachines; over > 0 {
		k.log.Warn("what some machines did is not kept: there are too many", "machines", over, "most", maxMachines)
		points = points[:maxMachines]
	}
	ctx, stop := context.WithTimeout(ctx, writeTime)
	defer stop()
	return k.o.Store.PutMachinePoints(ctx, points, end.Add(-Keep))
}

// pointOf is the mean of a machine's history within the step that ends at end; false:
// nothing was heard of it.
func pointOf(a *httpapi.Agent, end time.Time) (p store.MachinePoint, ok bool) {
	var builds, other, own, memory, io, network, pressure mean
	for i := range a.History {
		h := &a.History[i]
		if at := time.Unix(h.At, 0); at.After(end.Add(-Step)) && !at.After(end) {
			builds.add(h.Builds)
			other.add(h.Other)
			own.add(h.Cimeter)
			memory.add(h.MemoryUsed)
			io.add(h.IO)
			network.add(h.Network)
			pressure.add(h.Pressure)
			ok = true
		}
	}
	p = store.MachinePoint{Machine: a.Machine, At: end, Builds: builds.value(), Other: other.value(), Cimeter: own.value(), Coverage: float32(math.NaN()),
		Memory: memory.value(), IO: io.value(), Network: network.value(), Pressure: pressure.value()}
	if a.Host != nil && a.Host.Coverage.Known {
		p.Coverage = float32(a.Host.Coverage.Value)
	}
	return p, ok && store.ValidKey(p.Machine)
}

// mean is that of what is known.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v float32) {
	if !math.IsNaN(float64(v)) {
		m.sum += float64(v)
		m.n++
	}
}

func (m *mean) value() float32 { return float32(m.sum / float64(m.n)) } // 0/0 is NaN: not known
