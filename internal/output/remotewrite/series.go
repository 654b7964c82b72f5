package remotewrite

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter/internal/series"
)

// staleNaN are the bits of the value that says that a series has ended; a NaN
// that was measured has others (model/value of Prometheus).
const (
	staleNaN  = 0x7ff0000000000002
	normalNaN = 0x7ff8000000000001
)

// family is what all series of a metric share.
type family struct {
	name, help, unit string
	kind             series.Kind
	told             int64 // when its metadata was sent last, ms; for Send alone
}

// one is a series as Prometheus has it. Only Send touches the last three fields.
type one struct {
	family *family
	name   string         // of the metric, with _bucket, _sum or _count
	labels []series.Label // sorted; shared with the other series of a histogram
	extra  series.Label   // le or quantile; no name is none
	start  int64          // when it was 0, in ms; 0 is not known

	request     uint64 // the request that is being made
	first, last int32  // its samples in that
}

// point is all series of one point of a family.
type point struct {
	all  []one
	seen uint64 // the round that had it last
	gone bool   // its series have ended; kept so that it does not begin at 0 again
}

// samples returns how many a point makes.
func samples(f *series.Family, p *series.Point) int {
	switch f.Kind {
	case series.Histogram:
		return len(p.Buckets.Counts) + 2
	case series.Summary:
		return len(p.Quantiles.Ranks) + 2
	}
	return 1
}

// newPoint names the series of p. Labels that the receiver would refuse are
// mended or left out.
func (o *Output) newPoint(f *family, p *series.Point, n int) *point {
	reserved := ""
	switch f.kind {
	case series.Histogram:
		reserved = "le"
	case series.Summary:
		reserved = "quantile"
	}
	labels := o.labels(p.Labels, reserved)
	s := one{family: f, name: f.name, labels: labels}
	if counts(f.kind) {
		s.start = startOf(p)
	}
	all := make([]one, 0, n)
	switch f.kind {
	case series.Histogram:
		s.name = f.name + "_bucket"
		for _, b := range p.Buckets.Bounds {
			s.extra = series.Label{Name: reserved, Value: number(b)}
			all = append(all, s)
		}
		s.extra.Value = "+Inf"
		all = append(all, s)
	case series.Summary:
		for _, r := range p.Quantiles.Ranks {
			s.extra = series.Label{Name: reserved, Value: number(r)}
			all = append(all, s)
		}
	default:
		return &point{all: append(all, s)}
	}
	s.extra = series.Label{}
	s.name = f.name + "_sum"
	all = append(all, s)
	s.name = f.name + "_count"
	return &point{all: append(all, s)}
}

// startOf is when a counter was 0, in ms; 0 is not known.
func startOf(p *series.Point) int64 {
	if p.Start.IsZero() {
		return 0
	}
	return p.Start.UnixMilli()
}

// number is a bound as Prometheus' own programs write it.
func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// counts reports whether series of that kind start at 0.
func counts(k series.Kind) bool {
	return k == series.Counter || k == series.Histogram || k == series.Summary
}

// labels returns those of a point and those of all series, sorted by name.
func (o *Output) labels(own []series.Label, reserved string) []series.Label {
	out := make([]series.Label, 0, len(own)+len(o.o.Labels))
	for _, list := range [][]series.Label{own, o.o.Labels} {
		for _, l := range list {
			l.Name = series.LabelName(l.Name)
			taken := func(other series.Label) bool { return other.Name == l.Name }
			if l.Value != "" && l.Name != reserved && l.Name != "__name__" && !slices.ContainsFunc(out, taken) {
				out = append(out, l)
			}
		}
	}
	slices.SortFunc(out, func(a, b series.Label) int { return strings.Compare(a.Name, b.Name) })
	return slices.Clip(out)
}

// values appends the values of a point's series, in the order of newPoint's.
func values(to []float64, f *series.Family, p *series.Point) []float64 {
	switch f.Kind {
	case series.Histogram:
		n := uint64(0)
		for _, c := range p.Buckets.Counts {
			n += c
			to = append(to, float64(n))
		}
		return append(to, clean(p.Buckets.Sum), float64(n))
	case series.Summary:
		for _, v := range p.Quantiles.Values {
			to = append(to, clean(v))
		}
		return append(to, clean(p.Quantiles.Sum), float64(p.Quantiles.Count))
	}
	return append(to, clean(p.Value))
}

// clean keeps a NaN that was measured from ending its series.
func clean(v float64) float64 {
	if math.IsNaN(v) {
		return math.Float64frombits(normalNaN)
	}
	return v
}

// each calls fn for every label of a series, sorted by name.
func (s *one) each(fn func(name, value string)) {
	name, extra := true, s.extra.Name != ""
	for _, l := range s.labels {
		if name && l.Name > "__name__" {
			fn("__name__", s.name)
			name = false
		}
		if extra && l.Name > s.extra.Name {
			fn(s.extra.Name, s.extra.Value)
			extra = false
		}
		fn(l.Name, l.Value)
	}
	if name {
		fn("__name__", s.name)
	}
	if extra {
		fn(s.extra.Name, s.extra.Value)
	}
}
