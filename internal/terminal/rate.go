package terminal

import (
	"time"

	"github.com/cimeter/cimeter"
)

type opt = cimeter.Opt[float64]

// Running is a build that runs. What is not known is absent.
type Running struct {
	Key, Project, Name, Number, Stage, Machine, Runner, URL string

	Elapsed     time.Duration // since it started
	ReadAt      time.Time     // when the counters below were read
	CPUSeconds  opt           // so far
	DiskBytes   opt           // read and written so far
	NetBytes    opt           // received and sent so far
	MemoryBytes opt           // now

	CoresLimit, MemoryLimit opt // cores, bytes

	Cores, DiskRate, NetRate opt // now: cores, bytes a second; filled in by Rates

	Away bool // its machine is not heard of: this is its last state
}

// window is the time over which a rate is taken: two of the default heartbeats,
// so that it neither flickers nor lags.
const window = 10 * time.Second

// Rates makes rates of the counters of successive readings. The zero value is
// ready.
type Rates struct {
	seen map[string][]reading
}

type reading struct {
	at             time.Time
	cpu, disk, net opt
}

// Fill sets the rates of rows. A build that is read for the first time has
// none; one that rows leave out is forgotten.
func (r *Rates) Fill(rows []Running) {
	kept := make(map[string][]reading, len(rows))
	for i := range rows {
		b := &rows[i]
		now := reading{b.ReadAt, b.CPUSeconds, b.DiskBytes, b.NetBytes}
		past := r.seen[b.Key]
		if n := len(past); n == 0 || now.at.After(past[n-1].at) {
			past = append(past, now)
		}
		for len(past) > 2 && past[len(past)-1].at.Sub(past[1].at) >= window {
			past = past[1:]
		}
		kept[b.Key] = past
		first, last := past[0], past[len(past)-1]
		if d := last.at.Sub(first.at).Seconds(); d > 0 && !b.Away {
			b.Cores, b.DiskRate, b.NetRate = rate(first.cpu, last.cpu, d), rate(first.disk, last.disk, d), rate(first.net, last.net, d)
		}
	}
	r.seen = kept
}

// rate is absent when a counter is, or has fallen.
func rate(a, b opt, seconds float64) opt {
	if !a.Known || !b.Known || b.Value < a.Value {
		return opt{}
	}
	return cimeter.Some((b.Value - a.Value) / seconds)
}
