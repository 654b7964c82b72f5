// Package counter turns cumulative readings into what was spent between them.
//
// It owns the difference of two samples and the rules for a kernel counter that
// steps back. It does no input or output and reads no clock; its types are not
// safe for concurrent use. Start with [Baseline].
package counter

import "github.com/cimeter/cimeter"

// Delta is what the counters of a segment rose by between two samples, in the
// units of cimeter.Counter. The zero value has no reading. Fields are exported
// only so that a running build can be checkpointed.
type Delta struct {
	Values [cimeter.NumCounters]uint64
	Has    uint32 // bit c: Values[c] is known
}

// Get returns the rise of counter c and whether it is known.
func (d *Delta) Get(c cimeter.Counter) (uint64, bool) {
	return d.Values[c], d.Has&(1<<c) != 0
}

// Set stores the rise of counter c.
func (d *Delta) Set(c cimeter.Counter, v uint64) {
	d.Values[c] = v
	d.Has |= 1 << c
}

// Add adds o to d; what either knows, the sum knows.
func (d *Delta) Add(o *Delta) {
	if o.Has == 0 {
		return
	}
	for c := range d.Values {
		d.Values[c] += o.Values[c]
	}
	d.Has |= o.Has
}

// Baseline remembers the last reading of every counter of one segment.
//
// A counter seen falling is one of two things. A small step back (to more than
// half) is a correction inside the kernel: the difference is 0 until the old
// value is passed again. A deep fall is a counter that somebody reset
// (blkio.reset_stats): what it shows now was spent since.
type Baseline struct {
	Last [cimeter.NumCounters]uint64
	Has  uint32 // bit c: Last[c] is known
	// FromBirth says that the segment was seen from its beginning, when all its
	// counters were 0: a counter that shows up later counts from 0 (block IO on
	// cgroup v2 has no line before the first request).
	FromBirth bool
}

// Advance sets d to what rose since the last call and moves the baseline to s.
// A counter that s lacks is absent in d, and its next reading covers the time
// between. Not from birth, a counter's first reading only sets its base.
func (b *Baseline) Advance(s *cimeter.Sample, d *Delta) {
	*d = Delta{}
	for c := range cimeter.NumCounters {
		v, ok := s.Counter(c)
		if !ok {
			continue
		}
		last, known := b.Last[c], b.Has&(1<<c) != 0 || b.FromBirth
		var rise uint64
		switch {
		case !known:
		case v >= last:
			rise = v - last
		case v > last/2:
			d.Set(c, 0)
			continue // held: the base stays where it was
		default:
			rise = v
		}
		b.Last[c] = v
		b.Has |= 1 << c
		d.Set(c, rise)
	}
}

// Seconds returns the rise of a counter kept in nanoseconds, in seconds.
func (d *Delta) Seconds(c cimeter.Counter) cimeter.Opt[float64] {
	if v, ok := d.Get(c); ok {
		return cimeter.Some(float64(v) / 1e9)
	}
	return cimeter.Opt[float64]{}
}

// Count returns the rise of a counter that counts things.
func (d *Delta) Count(c cimeter.Counter) cimeter.Opt[uint64] {
	if v, ok := d.Get(c); ok {
		return cimeter.Some(v)
	}
	return cimeter.Opt[uint64]{}
}
