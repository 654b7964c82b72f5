package remotewrite

import "time"

// sample is one value of a series; its batch has the time.
type sample struct {
	of    *one
	value float64
}

const sampleBytes = 16

// batch is what was kept at one instant.
type batch struct {
	at      int64 // ms
	samples []sample
}

// queue is what waits, oldest first.
type queue struct {
	batches []batch
	bytes   int64
}

func (q *queue) push(b batch) {
	if len(b.samples) > 0 {
		q.batches = append(q.batches, b)
		q.bytes += int64(len(b.samples)) * sampleBytes
	}
}

// take removes up to most samples from the front.
func (q *queue) take(most int) []batch {
	var out []batch
	for most > 0 && len(q.batches) > 0 {
		b := &q.batches[0]
		n := min(most, len(b.samples))
		out = append(out, batch{b.at, b.samples[:n:n]})
		b.samples = b.samples[n:]
		q.bytes -= int64(n) * sampleBytes
		most -= n
		if len(b.samples) == 0 {
			q.shift()
		}
	}
	return out
}

func (q *queue) shift() {
	q.batches[0] = batch{}
	q.batches = q.batches[1:]
	if len(q.batches) == 0 {
		q.batches = nil
	}
}

// trim drops the oldest until at most maxBytes are left and none is from before
// oldest, and returns how many samples went for each reason.
func (q *queue) trim(maxBytes, oldest int64) (over, old int) {
	for len(q.batches) > 0 {
		b := &q.batches[0]
		n := len(b.samples)
		switch {
		case b.at < oldest:
			old += n
		case q.bytes > maxBytes:
			over += n
		default:
			return over, old
		}
		q.bytes -= int64(n) * sampleBytes
		q.shift()
	}
	return over, old
}

func size(batches []batch) (n int) {
	for _, b := range batches {
		n += len(b.samples)
	}
	return n
}

// clock gives batches times that rise. A clock that is set back a little is
// waited for, a millisecond a batch; one that is set back a lot was wrong before.
type clock struct{ last int64 }

const maxSetBack = 5 * time.Minute

func (c *clock) next(at time.Time) int64 {
	ms := at.UnixMilli()
	if ms <= c.last && c.last-ms < maxSetBack.Milliseconds() {
		ms = c.last + 1
	}
	c.last = ms
	return ms
}
