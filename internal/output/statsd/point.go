package statsd

import (
	"slices"

	"github.com/cimeter/cimeter/internal/series"
)

// A histogram that is told as counters has these cells, then one a bound.
const (
	cellCount = iota
	cellSum
	cellBuckets
)

// add begins to remember a point; nil is that there is no room. With whole, all
// that its counters have is new.
func (s *Sink) add(f *series.Family, p *series.Point, whole bool) *entry {
	if len(s.entries) >= maxSeries {
		return nil
	}
	e := &entry{shape: shapeOf(f, p)}
	from := nanoseconds(p)
	counter := func(name, label, value string, v float64) {
		c := s.cell(name, "c", p.Labels, label, value)
		c.counter = true
		c.rise.first(v, from, whole)
		e.cells = append(e.cells, c)
	}
	switch b, q := p.Buckets, p.Quantiles; {
	case f.Kind == series.Counter:
		counter(f.Name, "", "", p.Value)
	case b != nil && !s.observes(f):
		counter(f.Name+"_count", "", "", float64(b.Count()))
		counter(f.Name+"_sum", "", "", b.Sum)
		for i, v := range cumulative(b) {
			counter(f.Name+"_bucket", "le", text(b.Bounds[i]), v)
			e.cells[cellBuckets+i].quiet = true
		}
	case b != nil:
		kind := "ms"
		if s.dog != nil {
			kind = "d"
		}
		e.cells = []cell{s.cell(f.Name, kind, p.Labels, "", "")}
		e.told = &observed{counts: make([]uint64, len(b.Counts)), from: from}
		if !whole {
			copy(e.told.counts, b.Counts)
			e.told.sum = b.Sum
		}
	case q != nil:
		counter(f.Name+"_count", "", "", float64(q.Count))
		counter(f.Name+"_sum", "", "", q.Sum)
		for _, rank := range q.Ranks {
			e.cells = append(e.cells, s.cell(f.Name, "g", p.Labels, "quantile", text(rank)))
		}
		e.gauge = true
	default:
		e.cells = []cell{s.cell(f.Name, "g", p.Labels, "", "")}
		e.gauge = true
	}
	s.entries[p.Key] = e
	if e.gauge {
		s.claim(e)
	}
	return e
}

// claim gives an entry the names of its gauges, unless another one has them:
// the server would show now the one, now the other.
func (s *Sink) claim(e *entry) {
	e.taken = false
	for i := range e.cells {
		if c := &e.cells[i]; !c.counter && s.gauges[c.name+c.tail] != nil {
			e.taken = true
			return
		}
	}
	for i := range e.cells {
		if c := &e.cells[i]; !c.counter {
			s.gauges[c.name+c.tail] = e
		}
	}
}

// observes reports whether a histogram is told as observations. A timer of plain
// StatsD is in milliseconds, so only what is in seconds can be one.
func (s *Sink) observes(f *series.Family) bool {
	return s.dog != nil || f.Unit == "seconds" && !s.counted
}

func (s *Sink) cell(name, kind string, labels []series.Label, label, value string) cell {
	if label != "" {
		labels = append(slices.Clip(labels), series.Label{Name: label, Value: value})
	}
	for _, l := range s.fixed {
		if !slices.ContainsFunc(labels, func(has series.Label) bool { return has.Name == l.Name }) {
			labels = append(slices.Clip(labels), l)
		}
	}
	c := cell{kind: kind}
	if s.dog != nil {
		c.name, c.tail = string(squeeze(appendMetric([]byte(s.dog.prefix), name))), s.dog.tail(labels)
	} else {
		c.name = s.template.name(name, labels)
	}
	if c.name == "" { // of dots only
		c.name = "_"
	}
	return c
}

// cumulative are the observations up to each bound.
func cumulative(b *series.Buckets) []float64 {
	out := make([]float64, len(b.Bounds))
	n := uint64(0)
	for i := range out {
		n += b.Counts[i]
		out[i] = float64(n)
	}
	return out
}

func nanoseconds(p *series.Point) int64 {
	if p.Start.IsZero() {
		return 0
	}
	return p.Start.UnixNano()
}

// shape is how a point is told. One that comes in another shape is another point.
type shape struct {
	kind  series.Kind
	parts int // buckets or quantiles
}

func shapeOf(f *series.Family, p *series.Point) shape {
	switch {
	case p.Buckets != nil:
		return shape{f.Kind, len(p.Buckets.Counts)}
	case p.Quantiles != nil:
		return shape{f.Kind, len(p.Quantiles.Values)}
	}
	return shape{f.Kind, 0}
}

// isWhole reports whether nobody can have been told of a counter before.
func (s *Sink) isWhole(p *series.Point) bool {
	return !p.Start.IsZero() && !p.Start.Before(s.started)
}

// sound reports whether a point's parts belong together.
func sound(p *series.Point) bool {
	if b := p.Buckets; b != nil {
		return finite(b.Sum) && len(b.Counts) == len(b.Bounds)+1
	}
	if q := p.Quantiles; q != nil {
		return len(q.Ranks) == len(q.Values)
	}
	return true
}

// point tells what is new of a point.
func (s *Sink) point(f *series.Family, p *series.Point, e *entry) error {
	t := telling{s: s, from: nanoseconds(p)}
	switch b, q := p.Buckets, p.Quantiles; {
	case f.Kind == series.Counter:
		t.rose(&e.cells[0], p.Value)
	case b != nil && e.told != nil:
		t.observed(b, e)
	case b != nil:
		t.rose(&e.cells[cellCount], float64(b.Count()))
		if nonNegative(b) { // else the sum may fall
			t.rose(&e.cells[cellSum], b.Sum)
		}
		for i, v := range cumulative(b) {
			t.rose(&e.cells[cellBuckets+i], v)
		}
	case q != nil:
		t.rose(&e.cells[cellCount], float64(q.Count))
		t.rose(&e.cells[cellSum], q.Sum)
		for i, v := range q.Values {
			if finite(v) { // NaN: there was no observation
				t.level(e, &e.cells[cellBuckets+i], v)
			}
		}
	default:
		t.level(e, &e.cells[0], p.Value)
	}
	return t.end()
}

// telling is one point that is being told.
type telling struct {
	s       *Sink
	from    int64
	lines   int
	dropped string // why the point is dropped
	err     error
}

func (t *telling) add(line []byte, d done) {
	if t.err != nil {
		return
	}
	fits, err := t.s.packer.add(line, d)
	switch {
	case err != nil:
		t.err = err
	case !fits:
		t.dropped = tooLong
	default:
		t.lines++
	}
}

// rose tells a counter's delta: also one of 0, once, so that the server has the
// series.
func (t *telling) rose(c *cell, v float64) {
	if !finite(v) || v < 0 {
		t.dropped = noNumber
		return
	}
	c.rise.see(v, t.from)
	if d, second, sum := c.rise.due(t.s.whole); d > 0 || !c.known && !c.quiet {
		t.add(t.s.packer.counter(c, d, second), done{cell: c, told: sum})
	}
}

func (t *telling) level(e *entry, c *cell, v float64) {
	if e.taken {
		if t.s.claim(e); e.taken {
			t.dropped = nameTaken
			return
		}
	}
	if !finite(v) {
		t.dropped = noNumber
		return
	}
	e.ended = false
	t.add(t.s.packer.gauge(c, v), done{cell: c})
}

func (t *telling) observed(b *series.Buckets, e *entry) {
	c, p := &e.cells[0], &t.s.packer
	t.s.news = e.told.see(t.s.news[:0], b, t.from)
	for i, n := range t.s.news {
		v, of := n.value, b.Sum
		if t.s.dog == nil { // seconds to milliseconds
			v, of = v*1000, of*1000
		}
		d := done{cell: c, observed: e.told, bucket: n.bucket, n: n.n, sum: float64(n.n) * n.value}
		if i == len(t.s.news)-1 {
			d.sum, d.exact = b.Sum, true
		}
		t.add(p.observations(c, v, of, n.n), d)
	}
}

// end accounts for the point.
func (t *telling) end() error {
	switch {
	case t.err != nil:
	case t.dropped != "":
		t.s.drop(t.dropped)
	case t.lines == 0:
		t.s.sent.Points++ // the server has all of it
	default:
		t.s.packer.last().point = true
	}
	return t.err
}
