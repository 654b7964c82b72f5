package statsd

import (
	"math"
	"strconv"

	"github.com/cimeter/cimeter/internal/series"
)

// rise is what a server that adds up deltas has been told of one counter. The
// server's sum is followed as the server computes it, each delta rounded as a
// float64 rounds, so what one delta was off by is in the next one.
type rise struct {
	base float64 // the server's sum where the counter is 0
	last float64 // the counter as it was seen last
	told float64 // the server's sum now
	from int64   // when the counter was 0, in nanoseconds since 1970; 0 is not known
}

// first takes the counter as it is seen first. With whole, all of it is new;
// else somebody may have been told of it before, and it is where counting begins.
func (r *rise) first(v float64, from int64, whole bool) {
	*r = rise{last: v, from: from}
	if !whole {
		r.base = -v
	}
}

// see takes the counter as it is now. One that fell, or that was 0 since it was
// seen last, has started again: all of it is new.
func (r *rise) see(v float64, from int64) {
	if v < r.last || from > r.from && r.from != 0 {
		r.base += r.last
	}
	r.last, r.from = v, from
}

// due is the delta that the server is to be told, never less than 0, and what
// its sum is then. Where no one number makes that sum what it should be, there is
// a second delta.
func (r *rise) due(whole bool) (d, second, sum float64) {
	to := r.base + r.last
	d = to - r.told
	switch {
	case whole:
		d = max(math.Floor(d), 0)
		return d, 0, r.told + d
	case d <= 0:
		return 0, 0, r.told
	case r.told+d == to:
		return d, 0, to
	}
	// With half of it the sum is at least half of what it should be, and then
	// the rest is a difference that is exact, as is its sum.
	d /= 2
	half := r.told + d
	return d, to - half, to
}

// observed is what a server has been told of one histogram's observations.
type observed struct {
	counts []uint64
	sum    float64
	from   int64
}

// fresh are the observations in one bucket that a server has not been told yet:
// how many, and a value that stands for each.
type fresh struct {
	bucket int
	n      uint64
	value  float64
}

// see returns what is new, by bucket. Each value lies in its bucket, and as far
// as that allows the values add up to what the sum rose by; a lone observation
// is told exactly.
func (o *observed) see(dst []fresh, b *series.Buckets, from int64) []fresh {
	again := from > o.from && o.from != 0
	for i, n := range b.Counts {
		again = again || n < o.counts[i]
	}
	if again {
		clear(o.counts)
		o.sum = 0
	}
	o.from = from
	for i, n := range b.Counts {
		if n > o.counts[i] {
			dst = append(dst, fresh{bucket: i, n: n - o.counts[i]})
		}
	}
	spread(dst, b.Bounds, b.Sum-o.sum)
	return dst
}

func nonNegative(b *series.Buckets) bool { return len(b.Bounds) == 0 || b.Bounds[0] >= 0 }

// spread gives each bucket's observations a value, so that all add up to sum
// where that can be.
func spread(news []fresh, bounds []float64, sum float64) {
	if len(news) == 1 {
		low, high := edges(bounds, news[0].bucket)
		news[0].value = min(max(sum/float64(news[0].n), low), high)
		return
	}
	var low, width, over float64 // sums over the observations; over is of those above all bounds
	for i := range news {
		l, h := edges(bounds, news[i].bucket)
		n := float64(news[i].n)
		low += n * l
		if math.IsInf(h, 1) {
			over = n
			continue
		}
		width += n * (h - l)
	}
	share := 0.5 // of the way from a bucket's lower edge to its upper one
	if width > 0 && (over == 0 || sum < low+width/2) {
		share = min(max((sum-low)/width, 0), 1)
	}
	for i := range news {
		l, h := edges(bounds, news[i].bucket)
		if math.IsInf(h, 1) {
			news[i].value = l + max(0, sum-low-share*width)/over
			continue
		}
		news[i].value = l + share*(h-l)
	}
}

// edges are the bounds of a bucket.
func edges(bounds []float64, i int) (low, high float64) {
	high = math.Inf(1)
	if i < len(bounds) {
		high = bounds[i]
	}
	if i > 0 {
		return bounds[i-1], high
	}
	return min(0, high), high
}

// appendNumber appends v in plain decimals: servers take an exponent's sign for
// that of a change.
func appendNumber(b []byte, v float64) []byte {
	if v == 0 {
		return append(b, '0') // no -0
	}
	return strconv.AppendFloat(b, v, 'f', -1, 64)
}

// appendRounded appends v, which is a difference of numbers as large as of, with
// no more digits than such a difference can have.
func appendRounded(b []byte, v, of float64) []byte {
	ulp := math.Nextafter(math.Abs(of), math.Inf(1)) - math.Abs(of)
	digits := max(0, min(17, int(math.Floor(-math.Log10(4*ulp)))))
	n := len(b)
	b = strconv.AppendFloat(b, v, 'f', digits, 64)
	if digits > 0 {
		for b[len(b)-1] == '0' {
			b = b[:len(b)-1]
		}
		if b[len(b)-1] == '.' {
			b = b[:len(b)-1]
		}
	}
	if string(b[n:]) == "-0" {
		b = append(b[:n], '0')
	}
	return b
}

// appendRate appends the sample rate of a line that stands for n observations:
// the largest number of which a server that divides 1 by it, and cuts off, gets n.
func appendRate(b []byte, n uint64) []byte {
	rate := 1 / float64(n)
	for uint64(1/rate) < n {
		rate = math.Nextafter(rate, 0)
	}
	return strconv.AppendFloat(append(b, "|@"...), rate, 'f', -1, 64)
}
