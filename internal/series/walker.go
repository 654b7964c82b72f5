package series

import (
	"math"
	"time"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/tally"
)

// Walker makes families of what one table holds. It is for one goroutine.
type Walker struct {
	table    *tally.Table
	start    time.Time
	families []walked
	counts   []uint64 // of the histogram at hand

	fine, exemplars bool // give histograms their Native, and their Exemplar
}

// walked is one metric of the catalogue with what is kept of its series: their
// labels and keys are made once.
type walked struct {
	metric  catalog.Metric
	kind    Kind
	series  []catalog.Series // in each label set of the scope
	names   []named          // by cell and series, in the order of the table
	version uint64           // of names, when they are infos
}

type named struct {
	key    string
	labels []Label
}

// NewWalker returns a walker over t, whose counters were 0 at start.
func NewWalker(t *tally.Table, start time.Time) *Walker {
	w := &Walker{table: t, start: start}
	for _, m := range catalog.Metrics() {
		f := walked{metric: m, kind: kindOf(m.Kind), series: m.Series}
		if f.series == nil {
			f.series = make([]catalog.Series, 1)
		}
		w.families = append(w.families, f)
	}
	return w
}

func kindOf(k catalog.Kind) Kind {
	switch k {
	case catalog.Counter:
		return Counter
	case catalog.Gauge:
		return Gauge
	case catalog.Histogram:
		return Histogram
	case catalog.Info:
		return Info
	}
	return Unknown
}

// Families returns the metrics that have a point now, sorted by name. The result
// is new each time and may be kept; labels and keys are shared and never change.
func (w *Walker) Families() []Family {
	out := make([]Family, 0, len(w.families))
	stages, builds := w.table.Stages(), w.table.Builds()
	for i := range w.families {
		f := &w.families[i]
		var points []Point
		switch {
		case f.kind == Info:
			points = w.infos(f)
		case f.metric.Scope == catalog.Program && f.kind == Histogram:
			points = w.distributions(f)
		case f.metric.Scope == catalog.Program:
			points = w.values(f)
		case f.metric.Scope == catalog.Build:
			points = w.builds(f, builds)
		default:
			points = w.stages(f, stages)
		}
		if len(points) > 0 {
			out = append(out, Family{Name: f.metric.Name, Kind: f.kind, Unit: f.metric.Unit, Help: f.metric.Help, Points: points})
		}
	}
	return out
}

func (w *Walker) stages(f *walked, stages []*tally.Stage) []Point {
	points := make([]Point, 0, len(stages)*len(f.series))
	for i, s := range stages {
		if i*len(f.series) == len(f.names) {
			l := s.Labels()
			f.name(catalog.Stage.Labels(), l.CI, l.Project, l.Machine, l.Runner, l.Stage)
		}
		if f.kind == Histogram {
			points = w.histogram(points, f, i*len(f.series), s.Histogram(f.metric.Name))
			continue
		}
		for j := range f.series {
			if v, ok := read(f.kind, &f.series[j], s); ok {
				points = w.point(points, &f.names[i*len(f.series)+j], scaled(v, f.series[j].Decimals))
			}
		}
	}
	return points
}

// read returns a series' value in a stage, in the reading's own unit.
func read(kind Kind, r *catalog.Series, s *tally.Stage) (uint64, bool) {
	if kind == Gauge {
		return s.Gauge(r.Gauge)
	}
	var sum uint64
	known := false
	for _, c := range r.Counters {
		v, ok := s.Counter(c)
		sum += v
		known = known || ok
	}
	return sum, known
}

// scaled returns v of 10 to the -decimals. Dividing by a power of ten that a
// float64 holds exactly rounds once, as parsing the decimal number would.
func scaled(v uint64, decimals int) float64 { return float64(v) / math.Pow10(decimals) }

func (w *Walker) builds(f *walked, builds []*tally.Build) []Point {
	points := make([]Point, 0, len(builds)*len(f.series))
	for i, b := range builds {
		at := i * len(f.series)
		if at == len(f.names) {
			l := b.Labels()
			f.name(catalog.Build.Labels(), l.CI, l.Project, l.Machine, l.Runner)
		}
		for j := range f.series {
			switch f.metric.Name {
			case catalog.BuildsRunning:
				points = w.point(points, &f.names[at+j], float64(b.Running()))
			case catalog.Builds:
				if n, ok := b.Count(j); ok {
					points = w.point(points, &f.names[at+j], float64(n))
				}
			case catalog.BuildDuration:
				points = w.histogram(points, f, at+j, b.Duration(j))
			case catalog.BuildQueue:
				points = w.histogram(points, f, at+j, b.Queue())
			}
		}
	}
	return points
}

func (w *Walker) values(f *walked) []Point {
	values := w.table.Values(f.metric.Name)
	points := make([]Point, 0, len(values))
	for i, v := range values {
		if i == len(f.names) {
			f.name(f.metric.Labels, v.Labels()...)
		}
		if x, ok := v.Get(); ok {
			points = w.point(points, &f.names[i], x)
		}
	}
	return points
}

func (w *Walker) distributions(f *walked) (points []Point) {
	for i, d := range w.table.Distributions(f.metric.Name) {
		if i == len(f.names) {
			f.name(f.metric.Labels, d.Labels()...)
		}
		points = w.histogram(points, f, i, d.Histogram())
	}
	return points
}

func (w *Walker) infos(f *walked) []Point {
	infos, version := w.table.Infos(f.metric.Name)
	if version != f.version {
		f.names, f.version = nil, version
		for _, info := range infos {
			f.name(f.metric.Labels, info.Labels()...)
		}
	}
	points := make([]Point, 0, len(infos))
	for i := range infos {
		points = w.point(points, &f.names[i], 1)
	}
	return points
}

func (w *Walker) point(points []Point, n *named, value float64) []Point {
	return append(points, Point{Key: n.key, Labels: n.labels, Value: value, Start: w.start})
}

func (w *Walker) histogram(points []Point, f *walked, name int, h *tally.Histogram) []Point {
	if h == nil {
		return points
	}
	b := &Buckets{Bounds: f.metric.Buckets, Counts: make([]uint64, len(f.metric.Buckets)+1), Sum: h.Sum()}
	for i := range b.Counts {
		b.Counts[i] = h.Bucket(i)
	}
	if w.exemplars {
		w.refine(b, h)
	}
	n := &f.names[name]
	return append(points, Point{Key: n.key, Labels: n.labels, Buckets: b, Start: w.start})
}

// name keeps the labels and keys of the series of one more cell.
func (f *walked) name(names []string, values ...string) {
	for _, s := range f.series {
		labels := make([]Label, 0, len(values)+len(s.Values))
		for i, v := range values {
			if v != "" {
				labels = append(labels, Label{names[i], v})
			}
		}
		own := f.metric.Own()
		for i, v := range s.Values {
			labels = append(labels, Label{own[i], v})
		}
		f.names = append(f.names, named{Key(f.metric.Name, labels), labels})
	}
}
