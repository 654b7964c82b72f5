package daybook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/wire"
)

// memory keeps what is written, as text.
type memory struct {
	fail   error
	points []string
	most   int
	upTo   time.Time
}

func (m *memory) PutMachinePoints(_ context.Context, points []store.MachinePoint, upTo time.Time) error {
	if m.fail != nil {
		return m.fail
	}
	for _, p := range points {
		m.points = append(m.points, fmt.Sprintf("%s %s %g %g %g %.3g %g %g %g %g", p.Machine, p.At.UTC().Format("15:04"), p.Builds, p.Other, p.Cimeter, p.Coverage, p.Memory, p.IO, p.Network, p.Pressure))
	}
	m.most, m.upTo = max(m.most, len(points)), upTo
	return nil
}

// A point is the mean of its ten minutes, of those that were heard of in them; what
// cannot be written does not come again.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2000, 1, 1, 12, 5, 0, 0, time.UTC)))
		kept, nan := &memory{}, float32(math.NaN())
		point := func(minute int, builds float32) httpapi.HostPoint {
			return httpapi.HostPoint{At: time.Date(2000, 1, 1, 12, minute, 0, 0, time.UTC).Unix(), Builds: builds, Other: 1, Cimeter: nan, MemoryUsed: 10 * builds, IO: 100 * builds, Network: nan, Pressure: builds / 4}
		}
		agents := []httpapi.Agent{
			{Heartbeat: wire.Heartbeat{Machine: "ci-1", Host: &wire.Host{Coverage: cimeter.Some(0.975)}}, History: []httpapi.HostPoint{point(0, 100), point(1, 1), point(2, nan), point(10, 3), point(11, 100)}},
			{Heartbeat: wire.Heartbeat{Machine: "ci-0"}, History: []httpapi.HostPoint{point(18, 4)}},
			{Heartbeat: wire.Heartbeat{Machine: "ci-silent"}},
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- New(Options{Store: kept, Agents: func() []httpapi.Agent { return agents }}, slog.New(slog.DiscardHandler)).Run(ctx)
		}()
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if got := fmt.Sprint(kept.points); got != "[ci-1 12:10 2 1 NaN 0.975 20 200 NaN 0.5]" {
			t.Errorf("kept %s", got)
		}
		if want := time.Date(1999, 12, 31, 11, 10, 0, 0, time.UTC); !kept.upTo.Equal(want) {
			t.Errorf("kept from %v: want %v", kept.upTo, want)
		}
		kept.fail = errors.New("away")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		kept.fail = nil
		agents = nil
		for i := range 2500 {
			agents = append(agents, httpapi.Agent{Heartbeat: wire.Heartbeat{Machine: fmt.Sprint("m", i)}, History: []httpapi.HostPoint{point(25, 1)}})
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(kept.points) != 1+2000 || kept.most != maxMachines {
			t.Errorf("%d points, %d at once", len(kept.points), kept.most)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
