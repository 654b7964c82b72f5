package meter

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/series"
)

const (
	kindCounter   = series.Counter
	kindGauge     = series.Gauge
	kindHistogram = series.Histogram

	// maxCustom bounds the series of all instruments of an author's own: a label
	// that takes too many values costs no more than this. What is over it is
	// counted with #other# for every label.
	maxCustom = 10_000
	// maxLabel bounds a label's value, in runes.
	maxLabel = 200
	other    = "#other#"
)

// registry holds the instruments that are not in the catalogue.
type registry struct {
	start time.Time

	mu     sync.Mutex // guards what follows; never held while a value changes
	names  map[string]*family
	sorted []*family // by name
	series int
}

// family is one metric.
type family struct {
	registry *registry
	name     string
	help     string
	kind     series.Kind
	bounds   []float64 // of a histogram

	// Guarded by registry.mu.
	cells map[string]*cell
	order []*cell
}

// cell is one series.
type cell struct {
	key    string
	labels []series.Label
	told   atomic.Bool   // something was counted
	bits   atomic.Uint64 // the value, or a histogram's sum: bits of a float64
	counts []atomic.Uint64
}

// instrument is a family with labels.
type instrument struct {
	family *family
	cell   *cell
}

func newRegistry(start time.Time) *registry {
	return &registry{start: start, names: map[string]*family{}}
}

func (r *registry) instrument(name, help string, kind series.Kind, bounds []float64) instrument {
	if _, taken := catalog.Lookup(name); taken {
		panic(fmt.Sprintf("meter: %s is a metric of the catalogue: want another name", name))
	}
	r.mu.Lock()
	f := r.names[name]
	if f == nil {
		f = &family{registry: r, name: name, help: help, kind: kind, bounds: bounds, cells: map[string]*cell{}}
		r.names[name] = f
		at, _ := slices.BinarySearchFunc(r.sorted, f, func(a, b *family) int { return cmp.Compare(a.name, b.name) })
		r.sorted = slices.Insert(r.sorted, at, f)
	}
	r.mu.Unlock()
	if f.kind != kind {
		panic(fmt.Sprintf("meter: %s is a %s already: want another name", name, f.kind))
	}
	return instrument{f, f.cell(nil)}
}

// with returns the instrument with labels added. A name without a value is left
// out; of a name that is given twice the later value holds.
func (i instrument) with(labelValues []string) instrument {
	labels := slices.Clone(i.cell.labels)
	for n := 0; n+1 < len(labelValues); n += 2 {
		name, value := series.LabelName(labelValues[n]), bounded(labelValues[n+1])
		if reserved(name) {
			name += "_"
		}
		labels = slices.DeleteFunc(labels, func(l series.Label) bool { return l.Name == name })
		if value != "" {
			labels = append(labels, series.Label{Name: name, Value: value})
		}
	}
	slices.SortFunc(labels, func(a, b series.Label) int { return cmp.Compare(a.Name, b.Name) })
	return instrument{i.family, i.family.cell(labels)}
}

// cell returns the series of the labels, making it when there is room. Without
// room it is the one whose labels are all #other#, which always has.
func (f *family) cell(labels []series.Label) *cell {
	key := series.Key(f.name, labels)
	r := f.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := f.cells[key]; c != nil {
		return c
	}
	if r.series >= maxCustom && len(labels) > 0 {
		labels = []series.Label{{Name: labels[0].Name, Value: other}}
		key = series.Key(f.name, labels)
		if c := f.cells[key]; c != nil {
			return c
		}
	}
	c := &cell{key: key, labels: labels, counts: counts(f.bounds)}
	f.cells[key] = c
	f.order = append(f.order, c)
	r.series++
	return c
}

// families returns what was counted so far, sorted by name.
func (r *registry) families() []series.Family {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []series.Family
	for _, f := range r.sorted {
		points := make([]series.Point, 0, len(f.order))
		for _, c := range f.order {
			if !c.told.Load() {
				continue
			}
			p := series.Point{Key: c.key, Labels: c.labels, Start: r.start}
			v := math.Float64frombits(c.bits.Load())
			if f.kind == kindHistogram {
				p.Buckets = &series.Buckets{Bounds: f.bounds, Counts: make([]uint64, len(c.counts)), Sum: v}
				for i := range c.counts {
					p.Buckets.Counts[i] = c.counts[i].Load()
				}
			} else {
				p.Value = v
			}
			points = append(points, p)
		}
		if len(points) > 0 {
			out = append(out, series.Family{Name: f.name, Kind: f.kind, Help: f.help, Points: points})
		}
	}
	return out
}
