package tally

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cimeter/cimeter/internal/catalog"
)

// Distribution is one series of a histogram of the program: of what the program
// learns of others, such as the builds of a CI server.
type Distribution struct {
	labels []string
	h      *Histogram
}

// Labels returns the values of the metric's labels, in its order. Do not change
// them.
func (d *Distribution) Labels() []string { return d.labels }

// Histogram returns what was observed.
func (d *Distribution) Histogram() *Histogram { return d.h }

// Observe counts x, in the metric's unit, with the build that is the exemplar.
func (d *Distribution) Observe(x float64, of Exemplar) { d.h.observe(x, of) }

// Distribution returns the cell of a histogram of the program, making it when there
// is room; else the one whose project is Other, and without room for that, the one
// whose labels are all Other. It panics as Value does.
func (t *Table) Distribution(name string, labelValues ...string) *Distribution {
	m := t.must(name, len(labelValues))
	if m.Scope != catalog.Program || m.Kind != catalog.Histogram {
		panic(fmt.Sprintf("tally: %s: want a histogram of the program", name))
	}
	labels := boundedAll(labelValues)
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(m.Buckets) + 3 // and +Inf, sum and count
	project, all := slices.Clone(labels), make([]string, len(labels))
	for i := range all {
		all[i] = Other
		if m.Labels[i] == "project" {
			project[i] = Other
		}
	}
	for _, try := range []struct {
		labels []string
		keep   int
	}{{labels, t.reserve + t.budget/8}, {project, t.reserve}, {all, 0}} {
		key := strings.Join(try.labels, "\x00")
		d := m.spread[key]
		if d == nil {
			if try.keep != 0 && !t.room(n, try.keep) {
				continue
			}
			t.take(n)
			d = &Distribution{labels: try.labels, h: newHistogram(m.Buckets)}
			m.spread[key] = d
			m.spreadSeq = append(m.spreadSeq, d)
		}
		t.countFold(!slices.Equal(try.labels, labels))
		return d
	}
	panic("tally: the last fold always has room")
}

// Distributions returns all cells of that histogram, as Stages does.
func (t *Table) Distributions(name string) []*Distribution {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.metrics[name].spreadSeq
}
