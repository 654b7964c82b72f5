package section

import (
	"math/bits"
	"time"

	"github.com/cimeter/cimeter"
)

// divide gives each span its share of what the stage spent. Shares are those of the
// record's trace within the span; where it has no such column, or nothing in it, those
// of time.
func divide(r *cimeter.Record, s *cimeter.Stage, spans []span) []Part {
	parts := make([]Part, len(spans))
	wall := make([]uint64, len(spans)) // nanoseconds
	for i, sp := range spans {
		wall[i] = uint64(sp.to.Sub(sp.from))
		parts[i] = Part{Stage: s.Name, Attempt: s.Attempt, Name: sp.name, Depth: sp.depth, StartedAt: sp.from, EndedAt: sp.to}
	}
	by := func(column []cimeter.Opt[int64]) []uint64 { return weights(r, column, spans, wall) }
	t := r.Trace
	if t == nil {
		t = &cimeter.Trace{}
	}
	cpu, read, write := by(t.CPUMillicores), by(t.IOReadBytesPerSecond), by(t.IOWriteBytesPerSecond)
	receive, transmit := by(t.NetworkReceivePerSec), by(t.NetworkTransmitPerSec)
	u := &s.Usage

	seconds := func(total cimeter.Opt[float64], w []uint64, set func(*cimeter.Usage, cimeter.Opt[float64])) {
		if !total.Known || total.Value < 0 || total.Value > maxSeconds {
			return
		}
		for i, ns := range shares(nanoseconds(total.Value), w) {
			set(&parts[i].Usage, cimeter.Some(float64(ns)/1e9))
		}
	}
	count := func(total uint64, w []uint64, set func(*cimeter.Usage, uint64)) {
		for i, n := range shares(total, w) {
			set(&parts[i].Usage, n)
		}
	}
	optional := func(total cimeter.Opt[uint64], w []uint64, set func(*cimeter.Usage, cimeter.Opt[uint64])) {
		if total.Known {
			count(total.Value, w, func(u *cimeter.Usage, n uint64) { set(u, cimeter.Some(n)) })
		}
	}
	for i, ns := range shares(nanoseconds(min(max(u.WallSeconds, 0), maxSeconds)), wall) {
		parts[i].Usage.WallSeconds = float64(ns) / 1e9
	}
	seconds(u.CPUSeconds.Total, cpu, func(u *cimeter.Usage, v cimeter.Opt[float64]) { u.CPUSeconds.Total = v })
	seconds(u.CPUSeconds.User, cpu, func(u *cimeter.Usage, v cimeter.Opt[float64]) { u.CPUSeconds.User = v })
	seconds(u.CPUSeconds.System, cpu, func(u *cimeter.Usage, v cimeter.Opt[float64]) { u.CPUSeconds.System = v })
	seconds(u.CPUThrottledSeconds, cpu, func(u *cimeter.Usage, v cimeter.Opt[float64]) { u.CPUThrottledSeconds = v })
	optional(u.CPUPeriods, cpu, func(u *cimeter.Usage, v cimeter.Opt[uint64]) { u.CPUPeriods = v })
	optional(u.CPUThrottledPeriods, cpu, func(u *cimeter.Usage, v cimeter.Opt[uint64]) { u.CPUThrottledPeriods = v })
	if u.IOBytes != nil {
		count(u.IOBytes.Read, read, func(u *cimeter.Usage, n uint64) { u.IOBytes = &cimeter.ReadWrite[uint64]{Read: n} })
		count(u.IOBytes.Write, write, func(u *cimeter.Usage, n uint64) { u.IOBytes.Write = n })
	}
	if u.IOOperations != nil {
		count(u.IOOperations.Read, read, func(u *cimeter.Usage, n uint64) { u.IOOperations = &cimeter.ReadWrite[uint64]{Read: n} })
		count(u.IOOperations.Write, write, func(u *cimeter.Usage, n uint64) { u.IOOperations.Write = n })
	}
	if u.NetworkBytes != nil {
		count(u.NetworkBytes.Receive, receive, func(u *cimeter.Usage, n uint64) { u.NetworkBytes = &cimeter.ReceiveTransmit[uint64]{Receive: n} })
		count(u.NetworkBytes.Transmit, transmit, func(u *cimeter.Usage, n uint64) { u.NetworkBytes.Transmit = n })
	}
	for i := range parts {
		parts[i].MemoryMaxBytes = memory(r, &parts[i])
	}
	return parts
}

// maxSeconds is far beyond any build, and within what nanoseconds can count.
const maxSeconds = 1e9

// nanoseconds of s, rounded: the record's seconds are of whole nanoseconds.
func nanoseconds(s float64) uint64 { return uint64(s*1e9 + 0.5) }

// weights is how much of a column falls into each span, in units of one column's
// value for a microsecond; where that is nothing, the spans' length.
func weights(r *cimeter.Record, column []cimeter.Opt[int64], spans []span, wall []uint64) []uint64 {
	w := make([]uint64, len(spans))
	any := false
	for i, sp := range spans {
		overlaps(r, len(column), sp.from, sp.to, func(step int, over time.Duration) {
			if v := column[step]; v.Known && v.Value > 0 {
				hi, lo := bits.Mul64(uint64(v.Value), uint64(over.Microseconds()))
				if hi == 0 && w[i]+lo >= w[i] {
					w[i] += lo
				}
			}
		})
		any = any || w[i] > 0
	}
	if !any {
		return wall
	}
	return w
}

// overlaps calls with for each step of the trace that overlaps the time.
func overlaps(r *cimeter.Record, steps int, from, to time.Time, with func(step int, over time.Duration)) {
	if steps == 0 || r.Trace.StepSeconds <= 0 || r.Trace.StepSeconds > maxSeconds {
		return
	}
	width := time.Duration(r.Trace.StepSeconds * float64(time.Second))
	if width <= 0 {
		return
	}
	first := max(0, int(min(from.Sub(r.StartedAt)/width, time.Duration(steps))))
	for i := first; i < steps; i++ {
		a := r.StartedAt.Add(time.Duration(i) * width)
		b := a.Add(width)
		if !a.Before(to) {
			return
		}
		if over := earliest(b, to).Sub(latest(a, from)); over > 0 {
			with(i, over)
		}
	}
}

// shares divides a total so that its parts add up to it exactly. It goes by the sum
// of the weights so far, so that no rounding gathers at the end.
func shares(total uint64, weight []uint64) []uint64 {
	w := make([]uint64, len(weight))
	var sum uint64
	for shift := 0; ; shift++ { // as much as it takes for the sum to fit
		var carry, over uint64
		sum = 0
		for i, v := range weight {
			w[i] = v >> shift
			sum, carry = bits.Add64(sum, w[i], 0)
			over |= carry
		}
		if over == 0 {
			break
		}
	}
	out := make([]uint64, len(weight))
	if sum == 0 {
		if len(out) > 0 {
			out[len(out)-1] = total
		}
		return out
	}
	var upTo, given uint64
	for i := range w {
		upTo += w[i]
		hi, lo := bits.Mul64(total, upTo)
		q, _ := bits.Div64(hi, lo, sum) // upTo is at most sum, so the quotient fits
		out[i] = q - given
		given = q
	}
	return out
}

// memory is the largest of the trace while a part ran: of the whole build, as the
// trace is.
func memory(r *cimeter.Record, p *Part) (most cimeter.Opt[uint64]) {
	if r.Trace == nil {
		return most
	}
	column := r.Trace.MemoryKiB
	overlaps(r, len(column), p.StartedAt, p.EndedAt, func(step int, _ time.Duration) {
		if v := column[step]; v.Known && v.Value >= 0 && (!most.Known || uint64(v.Value)*1024 > most.Value) {
			most = cimeter.Some(uint64(v.Value) * 1024)
		}
	})
	return most
}
