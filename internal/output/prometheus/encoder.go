package prometheus

import (
	"io"
	"sync"
	"time"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

const (
	// maxScrapes bounds the scrapes that are served at once: two Prometheus of a
	// pair, a person and one to spare. What is over it is refused.
	maxScrapes = 4
	// chunk is how many bytes are gathered before they are written, so that a
	// scrape of any size needs no more memory than this.
	chunk = 64 << 10
)

// Encoder writes the metrics of one table. Make it with New.
type Encoder struct {
	table    *tally.Table
	more     []func() []series.Family
	asking   sync.Mutex     // held while more are called, or walker is
	walker   *series.Walker // for protobuf
	families []family       // sorted by name
	buffers  chan []byte
	serving  chan struct{}

	mu     sync.Mutex // guards the rendered bytes below and in families
	stages [][]byte   // labels of table.Stages(), by index
	builds [][]byte   // labels of table.Builds(), by index
}

// family is how one metric is written.
type family struct {
	metric *catalog.Metric
	header [2][]byte // by Format
	series []row     // in each label set of the scope; of histograms with a scope, too
	value  []byte    // name{

	// Of a histogram: name_bucket{ and the like.
	bucket, sum, count []byte

	cells   [][]byte // whole lines but the values: of table.Values(), or of table.Infos()
	version uint64   // of cells, when they are infos
}

// row is one of the series that a family has in each label set.
type row struct {
	catalog.Series
	tail    []byte
	buckets [][]byte // tails of a histogram's buckets, +Inf last
}

// New returns an encoder for what t holds, and for what more return at each
// scrape, one at a time.
func New(t *tally.Table, more ...func() []series.Family) *Encoder {
	e := &Encoder{table: t, more: more, walker: series.NewWalker(t, time.Time{}), buffers: make(chan []byte, maxScrapes), serving: make(chan struct{}, maxScrapes)}
	e.walker.Fine()
	metrics := catalog.Metrics()
	for i := range metrics {
		e.families = append(e.families, newFamily(&metrics[i]))
	}
	return e
}

func newFamily(m *catalog.Metric) family {
	f := family{metric: m, header: header(m), value: []byte(m.Name + "{")}
	of := m.Series
	if of == nil {
		of = make([]catalog.Series, 1)
	}
	for _, s := range of {
		r := row{Series: s, tail: tail(m.Own(), s.Values)}
		if m.Kind == catalog.Histogram {
			names := append(m.Own()[:len(s.Values):len(s.Values)], "le")
			for _, b := range m.Buckets {
				r.buckets = append(r.buckets, tail(names, append(s.Values[:len(s.Values):len(s.Values)], bound(b))))
			}
			r.buckets = append(r.buckets, tail(names, append(s.Values[:len(s.Values):len(s.Values)], "+Inf")))
		}
		f.series = append(f.series, r)
	}
	if m.Kind == catalog.Histogram {
		f.bucket, f.sum, f.count = []byte(m.Name+"_bucket{"), []byte(m.Name+"_sum{"), []byte(m.Name+"_count{")
	}
	return f
}

// Encode writes all metrics to w in the format. The error is w's.
func (e *Encoder) Encode(w io.Writer, format Format) error {
	if format == Protobuf {
		return e.protobuf(w)
	}
	var buf []byte
	select {
	case buf = <-e.buffers:
	default:
		buf = make([]byte, 0, chunk+chunk/4)
	}
	o := output{w: w, buf: buf[:0], exemplars: format == OpenMetrics}
	e.encode(&o, format)
	if format == OpenMetrics {
		o.buf = append(o.buf, "# EOF\n"...)
	}
	o.finish()
	if cap(o.buf) <= 4*chunk {
		select {
		case e.buffers <- o.buf:
		default:
		}
	}
	return o.err
}

func (e *Encoder) encode(o *output, format Format) {
	stages, builds := e.table.Stages(), e.table.Builds()
	stageLabels, buildLabels := e.rendered(stages, builds)
	for i := range e.families {
		f := &e.families[i]
		mark := len(o.buf)
		o.buf = append(o.buf, f.header[format]...)
		before := o.samples
		switch {
		case f.metric.Kind == catalog.Info:
			e.infos(o, f)
		case f.metric.Scope == catalog.Program && f.metric.Kind == catalog.Histogram:
			e.distributions(o, f)
		case f.metric.Scope == catalog.Program:
			e.values(o, f)
		case f.metric.Scope == catalog.Build:
			f.builds(o, builds, buildLabels)
		default:
			f.stages(o, stages, stageLabels)
		}
		if o.samples == before { // nothing was flushed either
			o.buf = o.buf[:mark]
		}
		if o.err != nil {
			return
		}
	}
	if len(e.more) > 0 && o.err == nil {
		e.asking.Lock()
		e.extra(o, format)
		e.asking.Unlock()
	}
}

// rendered returns the label bytes of the cells, by index.
func (e *Encoder) rendered(stages []*tally.Stage, builds []*tally.Build) (s, b [][]byte) {
	stageNames, buildNames := catalog.Stage.Labels, catalog.Build.Labels
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.stages); n < len(stages) {
		names := stageNames()
		for _, c := range stages[n:] {
			l := c.Labels()
			e.stages = append(e.stages, clip(appendLabels(nil, names, []string{l.CI, l.Project, l.Machine, l.Runner, l.Stage})))
		}
	}
	if n := len(e.builds); n < len(builds) {
		names := buildNames()
		for _, c := range builds[n:] {
			l := c.Labels()
			e.builds = append(e.builds, clip(appendLabels(nil, names, []string{l.CI, l.Project, l.Machine, l.Runner})))
		}
	}
	return e.stages, e.builds
}

func (f *family) stages(o *output, stages []*tally.Stage, labels [][]byte) {
	for i, s := range stages {
		if f.metric.Kind == catalog.Histogram {
			f.histogram(o, &f.series[0], labels[i], s.Histogram(f.metric.Name))
			continue
		}
		for j := range f.series {
			r := &f.series[j]
			v, ok := r.read(f.metric.Kind, s)
			if !ok {
				continue
			}
			o.buf = appendScaled(appendLine(o.buf, f.value, labels[i], r.tail), v, r.Decimals)
			o.end()
		}
	}
}

// read returns the series' value in a stage, and whether it has one.
func (r *row) read(kind catalog.Kind, s *tally.Stage) (uint64, bool) {
	if kind == catalog.Gauge {
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

func (f *family) builds(o *output, builds []*tally.Build, labels [][]byte) {
	for i, b := range builds {
		for j := range f.series {
			r := &f.series[j]
			switch f.metric.Name {
			case catalog.BuildsRunning:
				o.buf = appendScaled(appendLine(o.buf, f.value, labels[i], r.tail), uint64(b.Running()), 0)
				o.end()
			case catalog.Builds:
				if n, ok := b.Count(j); ok {
					o.buf = appendScaled(appendLine(o.buf, f.value, labels[i], r.tail), n, 0)
					o.end()
				}
			case catalog.BuildDuration:
				f.histogram(o, r, labels[i], b.Duration(j))
			case catalog.BuildQueue:
				f.histogram(o, r, labels[i], b.Queue())
			}
		}
	}
}

// histogram writes a histogram, or nothing when there is none. Its count is the
// sum of the buckets that it wrote, so the two agree whatever is added
// meanwhile.
func (f *family) histogram(o *output, r *row, labels []byte, h *tally.Histogram) {
	if h == nil {
		return
	}
	sum, n := h.Sum(), uint64(0)
	at := -1 // the bucket of the exemplar
	var exemplar tally.Exemplar
	if o.exemplars {
		exemplar, at = exemplarOf(f.metric.Buckets, h)
	}
	for i, tail := range r.buckets {
		n += h.Bucket(i)
		o.buf = appendScaled(appendLine(o.buf, f.bucket, labels, tail), n, 0)
		if i == at {
			o.buf = appendExemplar(o.buf, exemplar)
		}
		o.end()
	}
	o.buf = appendFloat(appendLine(o.buf, f.sum, labels, r.tail), sum)
	o.end()
	o.buf = appendScaled(appendLine(o.buf, f.count, labels, r.tail), n, 0)
	o.end()
}

func (e *Encoder) values(o *output, f *family) {
	values := e.table.Values(f.metric.Name)
	e.mu.Lock()
	for _, v := range values[min(len(f.cells), len(values)):] {
		f.cells = append(f.cells, f.cell(v.Labels()))
	}
	cells := f.cells
	e.mu.Unlock()
	for i, v := range values {
		if x, ok := v.Get(); ok {
			o.buf = appendFloat(append(o.buf, cells[i]...), x)
			o.end()
		}
	}
}

func (e *Encoder) distributions(o *output, f *family) {
	all := e.table.Distributions(f.metric.Name)
	e.mu.Lock()
	for _, d := range all[min(len(f.cells), len(all)):] {
		f.cells = append(f.cells, clip(appendLabels(nil, f.metric.Labels, d.Labels())))
	}
	cells := f.cells
	e.mu.Unlock()
	for i, d := range all {
		f.histogram(o, &f.series[0], cells[i], d.Histogram())
	}
}

func (e *Encoder) infos(o *output, f *family) {
	e.mu.Lock()
	infos, version := e.table.Infos(f.metric.Name)
	if version != f.version {
		cells := make([][]byte, len(infos)) // others may be reading the old ones
		for i, info := range infos {
			cells[i] = f.cell(info.Labels())
		}
		f.cells, f.version = cells, version
	}
	cells := f.cells
	e.mu.Unlock()
	for _, c := range cells {
		o.buf = append(append(o.buf, c...), '1')
		o.end()
	}
}

// cell returns a sample line up to its value.
func (f *family) cell(values []string) []byte {
	labels := appendLabels(nil, f.metric.Labels, values)
	if len(labels) == 0 {
		return append([]byte(f.metric.Name), ' ')
	}
	return appendLine(nil, f.value, labels, []byte("} "))
}

func clip(b []byte) []byte { return append(make([]byte, 0, len(b)), b...) }

// output gathers lines and writes them in chunks.
type output struct {
	w       io.Writer
	buf     []byte
	samples int
	flushed bool
	err     error

	exemplars bool // the format has them
}

// end ends a sample line.
func (o *output) end() {
	o.buf = append(o.buf, '\n')
	o.samples++
	if len(o.buf) >= chunk {
		o.flush()
	}
}

func (o *output) flush() {
	if o.err == nil {
		_, o.err = o.w.Write(o.buf)
	}
	o.flushed = true
	o.buf = o.buf[:0]
}

func (o *output) finish() {
	if last, ok := o.w.(interface{ whole(n int) }); ok && !o.flushed {
		last.whole(len(o.buf))
	}
	o.flush()
}
