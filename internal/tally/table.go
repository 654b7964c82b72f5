package tally

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cimeter/cimeter/internal/catalog"
)

const (
	// DefaultBudget is the budget of series where none is given: what one
	// Prometheus takes from one target without complaint, and some 300 label
	// sets of stages.
	DefaultBudget = 20_000
	// minBudget leaves room for the process's own metrics and the folds.
	minBudget = 1_000
)

// Options of a Table. The zero value is usable.
type Options struct {
	Budget int // most series; 0 is DefaultBudget, less than 1,000 is 1,000
}

// Table holds all cells. Make it with New.
//
// A label set reserves all series that it can ever have, at once, but for the
// histograms of builds, which do so one by one: so the number of series shown is
// never more than the budget, whatever comes later.
type Table struct {
	budget      int
	reserve     int // kept for what must always find room: the last folds
	stageSeries int // of one label set of stages
	buildSeries int // of one label set of builds, with histograms
	buildCounts int // of those, what is no histogram
	stageBounds stageBounds
	buildBounds buildBounds
	metrics     map[string]*metric // fixed after New

	used   *Value // AgentSeries
	folded *Value // AgentSeriesFolded

	mu       sync.RWMutex // guards what follows; never held while a value changes
	reserved int          // series
	stages   map[Labels]*Stage
	stageSeq []*Stage // append-only
	builds   map[BuildLabels]*Build
	buildSeq []*Build // append-only
}

// metric holds the cells of one metric of the program.
type metric struct {
	catalog.Metric
	values  []*Value // append-only
	infos   []*Info  // replaced as a whole, never changed in place
	version uint64   // of infos

	spread    map[string]*Distribution // by label values, of a histogram of the program
	spreadSeq []*Distribution          // append-only
}

// Info is one series of an info metric.
type Info struct {
	key    string
	labels []string
}

// Labels returns the values of the metric's labels, in its order. Do not change
// them.
func (i *Info) Labels() []string { return i.labels }

// New returns a table without any label set.
func New(o Options) *Table {
	if o.Budget == 0 {
		o.Budget = DefaultBudget
	}
	t := &Table{
		budget:  max(o.Budget, minBudget),
		metrics: map[string]*metric{},
		stages:  map[Labels]*Stage{},
		builds:  map[BuildLabels]*Build{},
	}
	for _, m := range catalog.Metrics() {
		t.metrics[m.Name] = &metric{Metric: m}
		n := max(1, len(m.Series))
		if m.Kind == catalog.Histogram {
			n *= len(m.Buckets) + 3 // and +Inf, sum and count
		}
		switch {
		case m.Scope == catalog.Program && m.Kind == catalog.Histogram:
			t.metrics[m.Name].spread = map[string]*Distribution{}
			t.reserve += n // its fold
		case m.Kind == catalog.Info || m.Scope == catalog.Program:
			t.reserve++ // its fold
		case m.Scope == catalog.Stage:
			t.stageSeries += n
		case m.Scope == catalog.Build:
			t.buildSeries += n
			if m.Kind != catalog.Histogram {
				t.buildCounts += n
			}
		}
	}
	t.stageBounds = stageBounds{
		duration:   t.metrics[catalog.StageDuration].Buckets,
		memoryPeak: t.metrics[catalog.StageMemoryPeak].Buckets,
		cpuCores:   t.metrics[catalog.StageCPUCores].Buckets,
	}
	t.buildBounds = buildBounds{
		duration: t.metrics[catalog.BuildDuration].Buckets,
		queue:    t.metrics[catalog.BuildQueue].Buckets,
	}
	for _, s := range t.metrics[catalog.Builds].Series {
		t.buildBounds.results = append(t.buildBounds.results, s.Values[0])
	}
	t.reserve += t.stageSeries + t.buildSeries
	t.Value(catalog.AgentSeriesBudget).Set(float64(t.budget))
	t.folded = t.Value(catalog.AgentSeriesFolded)
	t.used = t.Value(catalog.AgentSeries)
	t.used.Set(float64(t.reserved))
	return t
}

// Stage returns the cell of l, making it when there is room. Without room it is
// the fold's: same CI and machine, all else Other; when there is no room for
// that either, all is Other.
func (t *Table) Stage(l Labels) *Stage {
	l = l.bounded()
	t.mu.RLock()
	s := t.stages[l]
	t.mu.RUnlock()
	if s != nil {
		return s
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, try := range []struct {
		labels Labels
		keep   int
	}{
		{l, t.reserve + t.budget/8},
		{l.fold(), t.reserve},
		{Labels{Other, Other, Other, Other, Other}, 0},
	} {
		if s := t.stages[try.labels]; s != nil {
			t.countFold(try.labels != l)
			return s
		}
		if try.keep != 0 && !t.room(t.stageSeries, try.keep) {
			continue
		}
		t.countFold(try.labels != l)
		t.take(t.stageSeries)
		s := &Stage{labels: try.labels.clone(), bounds: &t.stageBounds}
		t.stages[s.labels] = s
		t.stageSeq = append(t.stageSeq, s)
		return s
	}
	panic("tally: the last fold always has room")
}

// Build returns the cell of l, as Stage does.
func (t *Table) Build(l BuildLabels) *Build {
	l = l.bounded()
	t.mu.RLock()
	b := t.builds[l]
	t.mu.RUnlock()
	if b != nil {
		return b
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.build(l)
}

// build is Build with the lock held.
func (t *Table) build(l BuildLabels) *Build {
	for _, try := range []struct {
		labels BuildLabels
		keep   int
	}{
		{l, t.reserve + t.budget/8},
		{l.fold(), t.reserve},
		{BuildLabels{Other, Other, Other, Other}, 0},
	} {
		if b := t.builds[try.labels]; b != nil {
			t.countFold(try.labels != l)
			return b
		}
		n, whole := t.buildCounts, false
		if try.labels.Project == Other {
			n, whole = t.buildSeries, true // what folds into it must find room
		}
		if try.keep != 0 && !t.room(n, try.keep) {
			continue
		}
		t.countFold(try.labels != l)
		t.take(n)
		b := &Build{
			labels: try.labels.clone(), bounds: &t.buildBounds, table: t, whole: whole,
			ended: make([]ended, len(t.buildBounds.results)),
		}
		t.builds[b.labels] = b
		t.buildSeq = append(t.buildSeq, b)
		return b
	}
	panic("tally: the last fold always has room")
}

// Value returns the cell of a metric of the machine or the program, making it
// when there is room and else the one whose labels are all Other. It panics
// when the catalogue has no such metric, or one of another scope or with other
// labels: that is the programmer's error.
func (t *Table) Value(name string, labelValues ...string) *Value {
	m := t.must(name, len(labelValues))
	if m.Scope != catalog.Program || m.Kind > catalog.Gauge {
		panic(fmt.Sprintf("tally: %s: want a counter or gauge of the program", name))
	}
	t.mu.RLock()
	v := m.value(labelValues)
	t.mu.RUnlock()
	if v != nil {
		return v
	}
	labels := boundedAll(labelValues)
	t.mu.Lock()
	defer t.mu.Unlock()
	if v := m.value(labels); v != nil {
		return v
	}
	if !t.room(1, t.reserve) {
		t.countFold(true)
		for i := range labels {
			labels[i] = Other
		}
		if v := m.value(labels); v != nil {
			return v
		}
	}
	t.take(1)
	v = &Value{labels: labels, counter: m.Kind == catalog.Counter}
	v.known.Store(v.counter)
	m.values = append(m.values, v)
	return v
}

func (m *metric) value(labels []string) *Value {
	for _, v := range m.values {
		if slices.Equal(v.labels, labels) {
			return v
		}
	}
	return nil
}

// Info shows an info metric that has one series for the life of the process.
// It panics as Value does.
func (t *Table) Info(name string, labelValues ...string) {
	t.SetInfo(name, "", labelValues...)
}

// SetInfo shows a series of an info metric until RemoveInfo takes key (a
// container's id) away; setting it again replaces its labels. Without room it
// is not shown, which is counted as a fold. It panics as Value does.
func (t *Table) SetInfo(name, key string, labelValues ...string) {
	m := t.must(name, len(labelValues))
	if m.Kind != catalog.Info {
		panic(fmt.Sprintf("tally: %s: want an info", name))
	}
	info := &Info{key: strings.Clone(key), labels: boundedAll(labelValues)}
	t.mu.Lock()
	defer t.mu.Unlock()
	infos := slices.Clone(m.infos)
	if i := m.info(key); i >= 0 {
		if slices.Equal(infos[i].labels, info.labels) {
			return
		}
		infos[i] = info
	} else {
		if len(infos) > 0 && !t.room(1, t.reserve) {
			t.countFold(true)
			return
		}
		t.take(1)
		infos = append(infos, info)
	}
	m.infos = infos
	m.version++
}

// RemoveInfo takes the series of key away. Without one it does nothing.
func (t *Table) RemoveInfo(name, key string) {
	m := t.must(name, -1)
	t.mu.Lock()
	defer t.mu.Unlock()
	i := m.info(key)
	if i < 0 {
		return
	}
	m.infos = slices.Delete(slices.Clone(m.infos), i, i+1)
	m.version++
	t.take(-1)
}

func (m *metric) info(key string) int {
	return slices.IndexFunc(m.infos, func(i *Info) bool { return i.key == key })
}

// Stages returns all cells of stages, oldest first. The slice only ever grows
// by appending; do not change it.
func (t *Table) Stages() []*Stage {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.stageSeq
}

// Builds returns all cells of builds, as Stages does.
func (t *Table) Builds() []*Build {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.buildSeq
}

// Values returns all cells of that metric, as Stages does.
func (t *Table) Values(name string) []*Value {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.metrics[name].values
}

// Infos returns the series of that info metric now, and a version that changes
// with them. Do not change the slice.
func (t *Table) Infos(name string) ([]*Info, uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.metrics[name].infos, t.metrics[name].version
}

// must returns the metric, which has that many labels unless labels is -1.
func (t *Table) must(name string, labels int) *metric {
	m := t.metrics[name]
	if m == nil {
		panic(fmt.Sprintf("tally: %q: not in the catalogue", name))
	}
	if labels >= 0 && labels != len(m.Labels) {
		panic(fmt.Sprintf("tally: %s: %d label values: want %d: %v", name, labels, len(m.Labels), m.Labels))
	}
	return m
}

func (t *Table) room(n, keep int) bool { return t.reserved+n+keep <= t.budget }

func (t *Table) take(n int) {
	t.reserved += n
	if t.used != nil {
		t.used.Set(float64(t.reserved))
	}
}

func (t *Table) countFold(yes bool) {
	if yes && t.folded != nil {
		t.folded.Add(1)
	}
}

func boundedAll(values []string) []string {
	labels := make([]string, len(values))
	for i, v := range values {
		labels[i] = strings.Clone(bounded(v))
	}
	return labels
}
