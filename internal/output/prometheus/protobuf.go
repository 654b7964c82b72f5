package prometheus

import (
	"encoding/binary"
	"io"
	"math"
	"strings"

	"github.com/cimeter/cimeter/internal/series"
)

// Numbers of io.prometheus.client.MetricType.
const (
	typeCounter   = 0
	typeGauge     = 1
	typeSummary   = 2
	typeUntyped   = 3
	typeHistogram = 4
)

// message is a protobuf message as it is written. Messages inside it are written
// behind it and moved when their length is known, so nothing is allocated for one.
type message struct{ b []byte }

func (m *message) tag(field, wire int) {
	m.b = binary.AppendUvarint(m.b, uint64(field)<<3|uint64(wire))
}
func (m *message) uint(field int, v uint64) { m.tag(field, 0); m.b = binary.AppendUvarint(m.b, v) }
func (m *message) sint(field int, v int64)  { m.uint(field, zigzag(v)) }
func (m *message) double(field int, v float64) {
	m.tag(field, 1)
	m.b = binary.LittleEndian.AppendUint64(m.b, math.Float64bits(v))
}
func (m *message) text(field int, s string) {
	m.tag(field, 2)
	m.b = append(binary.AppendUvarint(m.b, uint64(len(s))), s...)
}
func zigzag(v int64) uint64 { return uint64(v<<1) ^ uint64(v>>63) }

// open begins a message inside and returns where; close ends it there.
func (m *message) open(field int) int {
	m.tag(field, 2)
	return len(m.b)
}

func (m *message) close(at int) {
	n := len(m.b) - at
	var length [binary.MaxVarintLen64]byte
	l := binary.PutUvarint(length[:], uint64(n))
	m.b = append(m.b, length[:l]...)
	copy(m.b[at+l:], m.b[at:at+n])
	copy(m.b[at:], length[:l])
}

// protobuf writes all metrics to w as messages io.prometheus.client.MetricFamily,
// each behind its length. A family is held in memory whole, as its length comes
// first.
func (e *Encoder) protobuf(w io.Writer) error {
	e.asking.Lock()
	families := e.walker.Families()
	families = append(families, e.others()...)
	e.asking.Unlock()
	var m message
	var length [binary.MaxVarintLen64]byte
	for i := range families {
		m.b = m.b[:0]
		m.family(&families[i])
		if _, err := w.Write(length[:binary.PutUvarint(length[:], uint64(len(m.b)))]); err != nil {
			return err
		}
		if _, err := w.Write(m.b); err != nil {
			return err
		}
	}
	return nil
}

func (m *message) family(f *series.Family) {
	m.text(1, f.Name)
	if f.Help != "" {
		m.text(2, f.Help)
	}
	number, field := uint64(typeUntyped), 5
	switch f.Kind {
	case series.Counter:
		number, field = typeCounter, 3
	case series.Gauge, series.Info:
		number, field = typeGauge, 2
	case series.Summary:
		number = typeSummary
	case series.Histogram:
		number = typeHistogram
	}
	m.uint(3, number)
	for i := range f.Points {
		p := &f.Points[i]
		at := m.open(4)
		for _, l := range p.Labels {
			if l.Value != "" {
				m.label(1, l)
			}
		}
		switch {
		case p.Buckets != nil:
			m.histogram(p.Buckets)
		case p.Quantiles != nil:
			m.summary(p.Quantiles)
		default:
			v := m.open(field)
			m.double(1, p.Value)
			m.close(v)
		}
		m.close(at)
	}
	if f.Unit != "" {
		m.text(5, f.Unit)
	}
}

func (m *message) label(field int, l series.Label) {
	at := m.open(field)
	m.text(1, l.Name)
	m.text(2, strings.ToValidUTF8(l.Value, "\uFFFD"))
	m.close(at)
}

func (m *message) summary(q *series.Quantile) {
	at := m.open(4)
	m.uint(1, q.Count)
	m.double(2, q.Sum)
	for i, v := range q.Values {
		of := m.open(3)
		m.double(1, q.Ranks[i])
		m.double(2, v)
		m.close(of)
	}
	m.close(at)
}

// histogram writes the classic buckets and, where there are any, the native ones:
// a receiver takes those that it is set up for. The count is the native one, which
// is never less than that of the classic buckets; +Inf, whose count it is, is not
// written.
func (m *message) histogram(b *series.Buckets) {
	at := m.open(7)
	count := b.Count()
	if b.Native != nil {
		count = b.Native.Count()
	}
	m.uint(1, count)
	m.double(2, b.Sum)
	n := uint64(0)
	for i, bound := range b.Bounds {
		n += b.Counts[i]
		of := m.open(3)
		m.uint(1, n)
		m.double(2, bound)
		if e := b.Exemplar; e != nil && e.Value <= bound && (i == 0 || e.Value > b.Bounds[i-1]) {
			m.exemplar(3, e)
		}
		m.close(of)
	}
	if b.Native != nil {
		m.native(b.Native)
		if b.Exemplar != nil {
			m.exemplar(16, b.Exemplar)
		}
	}
	m.close(at)
}

// native writes one span from the first bucket that has something to the last.
func (m *message) native(n *series.Native) {
	m.sint(5, int64(n.Schema))
	m.double(6, n.ZeroThreshold)
	m.uint(7, n.Zero)
	if len(n.Counts) == 0 {
		// A span without buckets says that this is native though nothing is in it.
		m.close(m.span(0, 0))
		return
	}
	m.close(m.span(n.First, len(n.Counts)))
	last := int64(0)
	for _, c := range n.Counts {
		m.sint(13, int64(c)-last)
		last = int64(c)
	}
}

func (m *message) span(offset, length int) (at int) {
	at = m.open(12)
	m.sint(1, int64(offset))
	m.uint(2, uint64(length))
	return at
}

func (m *message) exemplar(field int, e *series.Exemplar) {
	at := m.open(field)
	m.label(1, e.Label)
	m.double(2, e.Value)
	if !e.At.IsZero() {
		when := m.open(3)
		m.uint(1, uint64(e.At.Unix()))
		m.uint(2, uint64(e.At.Nanosecond()))
		m.close(when)
	}
	m.close(at)
}
