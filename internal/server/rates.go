package server

import (
	"math"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/wire"
)

const (
	// pointEvery and maxPoints make the ten minutes of a machine that its pages
	// show: some 1.2 KB a machine.
	pointEvery = 20 * time.Second
	maxPoints  = 30
	// maxMinute is how many heartbeats make a build's last minute at the usual
	// interval.
	maxMinute = 12
	// maxSpan is the longest time between two heartbeats over which a rate still
	// says what a machine does now.
	maxSpan = 2 * time.Minute
)

// span is the time between two heartbeats in seconds, by the agent's clock
// where it tells it: the way to here is longer at times. 0: no rate can be told.
func span(old, beat *wire.Heartbeat, seen, now time.Time) float64 {
	d := now.Sub(seen)
	if old.Host != nil && beat.Host != nil && !old.Host.ReadAt.IsZero() && !beat.Host.ReadAt.IsZero() {
		d = beat.Host.ReadAt.Sub(old.Host.ReadAt)
	}
	if d < 100*time.Millisecond || d > maxSpan {
		return 0
	}
	return d.Seconds()
}

// rise is how fast a counter rose; absent when it began anew.
func rise(from, to, seconds float64) cimeter.Opt[float64] {
	if !(to >= from) || !(seconds > 0) {
		return cimeter.Opt[float64]{}
	}
	return cimeter.Some((to - from) / seconds)
}

func riseOf(from, to cimeter.Opt[float64], seconds float64) cimeter.Opt[float64] {
	if !from.Known || !to.Known {
		return cimeter.Opt[float64]{}
	}
	return rise(from.Value, to.Value, seconds)
}

func riseIO(from, to *cimeter.ReadWrite[uint64], seconds float64) cimeter.Opt[float64] {
	if from == nil || to == nil {
		return cimeter.Opt[float64]{}
	}
	return sum(rise(float64(from.Read), float64(to.Read), seconds), rise(float64(from.Write), float64(to.Write), seconds))
}

func riseNetwork(from, to *cimeter.ReceiveTransmit[uint64], seconds float64) cimeter.Opt[float64] {
	if from == nil || to == nil {
		return cimeter.Opt[float64]{}
	}
	return sum(rise(float64(from.Receive), float64(to.Receive), seconds), rise(float64(from.Transmit), float64(to.Transmit), seconds))
}

func sum(a, b cimeter.Opt[float64]) cimeter.Opt[float64] {
	if !a.Known || !b.Known {
		return cimeter.Opt[float64]{}
	}
	return cimeter.Some(a.Value + b.Value)
}

// hostRates is what a machine did between two of its heartbeats; nil when it
// tells nothing.
func hostRates(old, h *wire.Host, seconds float64) *httpapi.HostRates {
	if h == nil {
		return nil
	}
	var r httpapi.HostRates
	if m := h.MemoryBytes; m != nil && m.Available.Known {
		r.MemoryUsedBytes = cimeter.Some(m.Total - m.Available.Value)
	}
	if old == nil || seconds == 0 || !old.StartedAt.Equal(h.StartedAt) || !old.BootedAt.Equal(h.BootedAt) {
		return &r
	}
	if a, b := old.CPUSeconds, h.CPUSeconds; a != nil && b != nil {
		builds, other, own := rise(a.Builds, b.Builds, seconds), rise(a.Other, b.Other, seconds), rise(a.Cimeter, b.Cimeter, seconds)
		if builds.Known && other.Known && own.Known {
			r.CPUCores = &httpapi.CoresByOwner{Builds: builds.Value, Other: other.Value, Cimeter: own.Value}
		}
	}
	r.IOBytesPerSecond = riseIO(old.IOBytes, h.IOBytes, seconds)
	r.NetworkBytesPerSecond = riseNetwork(old.NetworkBytes, h.NetworkBytes, seconds)
	if a, b := old.Agent, h.Agent; a != nil && b != nil {
		r.AgentCPUCores = riseOf(a.CPUSeconds, b.CPUSeconds, seconds)
	}
	if a, b := old.PressureSeconds, h.PressureSeconds; a != nil && b != nil {
		p := httpapi.Pressure{
			CPU: share(riseOf(a.CPUSome, b.CPUSome, seconds)), Memory: share(riseOf(a.MemorySome, b.MemorySome, seconds)), IO: share(riseOf(a.IOSome, b.IOSome, seconds)),
		}
		if p != (httpapi.Pressure{}) {
			r.Pressure = &p
		}
	}
	return &r
}

// share is at most 1: two clocks make a little more.
func share(v cimeter.Opt[float64]) cimeter.Opt[float64] {
	v.Value = min(1, v.Value)
	return v
}

// buildRates are what the builds of a heartbeat did since the one before, in
// the order of beat.
func buildRates(old []wire.Running, was []httpapi.BuildRates, beat []wire.Running, seconds float64) []httpapi.BuildRates {
	if len(beat) == 0 {
		return nil
	}
	before := make(map[string]int, len(old))
	for i := range old {
		before[old[i].Key] = i
	}
	out := make([]httpapi.BuildRates, len(beat))
	for i := range beat {
		b := &beat[i]
		at, ok := before[b.Key]
		if !ok || seconds == 0 || at >= len(was) {
			continue
		}
		a, r := &old[at], &out[i]
		r.CPUCores = riseOf(a.CPUSeconds, b.CPUSeconds, seconds)
		r.IOBytesPerSecond = riseIO(a.IOBytes, b.IOBytes, seconds)
		r.NetworkBytesPerSecond = riseNetwork(a.NetworkBytes, b.NetworkBytes, seconds)
		step := cimeter.Opt[int64]{}
		if r.CPUCores.Known {
			step = cimeter.Some(int64(min(1e9, 1000*r.CPUCores.Value)))
		}
		r.Minute = push(was[at].Minute, step, maxMinute)
	}
	return out
}

// push returns the last of old and one more, at most n: a new slice, since who
// was given the old one may still read it.
func push[T any](old []T, one T, n int) []T {
	old = old[max(0, len(old)-n+1):]
	out := make([]T, 0, len(old)+1)
	return append(append(out, old...), one)
}

// pointOf is a point of a machine's history.
func pointOf(r *httpapi.HostRates, at time.Time) httpapi.HostPoint {
	nan := float32(math.NaN())
	number := func(v cimeter.Opt[float64]) float32 {
		if !v.Known {
			return nan
		}
		return float32(v.Value)
	}
	p := httpapi.HostPoint{
		At: at.Unix(), Builds: nan, Other: nan, Cimeter: nan, MemoryUsed: nan, IO: number(r.IOBytesPerSecond), Network: number(r.NetworkBytesPerSecond), Pressure: nan,
	}
	if c := r.CPUCores; c != nil {
		p.Builds, p.Other, p.Cimeter = float32(c.Builds), float32(c.Other), float32(c.Cimeter)
	}
	if m, ok := r.MemoryUsedBytes.Get(); ok {
		p.MemoryUsed = float32(m)
	}
	if w := r.Pressure; w != nil {
		p.Pressure = float32(max(w.CPU.Value, w.Memory.Value, w.IO.Value))
	}
	return p
}
