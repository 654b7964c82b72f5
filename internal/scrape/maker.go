package scrape

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/cimeter/cimeter/internal/series"
)

// maxLabel bounds a label's value, in runes.
const maxLabel = 200

// maker gathers families by the options.
type maker struct {
	o        *Options
	most     int // series
	points   int
	families []series.Family
	at       map[string]int // name to place in families
	seen     map[string]bool
	skipped  map[string]int
}

func (m *maker) skip(reason string) { m.skipped[reason]++ }

// wanted reports whether points of that name are kept.
func (m *maker) wanted(name string) bool {
	return (m.o.Keep == nil || m.o.Keep.MatchString(name)) && (m.o.Drop == nil || !m.o.Drop.MatchString(name))
}

// add takes one point of the family with that name.
func (m *maker) add(name, help string, kind series.Kind, p series.Point) {
	if m.points >= m.most {
		m.skip("series")
		return
	}
	name = series.MetricName(m.o.Prefix + name)
	p.Labels = m.labels(p.Labels)
	p.Key = series.Key(name, p.Labels)
	if m.seen[p.Key] {
		m.skip("duplicate")
		return
	}
	i, ok := m.at[name]
	if !ok {
		i = len(m.families)
		m.at[name] = i
		m.families = append(m.families, series.Family{Name: name, Kind: kind, Help: help, Unit: unit(name)})
	}
	if m.families[i].Kind != kind {
		m.skip("type")
		return
	}
	m.seen[p.Key] = true
	m.points++
	m.families[i].Points = append(m.families[i].Points, p)
}

// labels returns the labels as the options want them, sorted by name.
func (m *maker) labels(of []series.Label) []series.Label {
	out := make([]series.Label, 0, len(of)+len(m.o.Labels))
	put := func(name, value string) {
		has := slices.ContainsFunc(out, func(l series.Label) bool { return l.Name == name })
		if value != "" && !has {
			out = append(out, series.Label{Name: name, Value: value})
		}
	}
	for _, l := range of {
		name := l.Name
		if to, ok := m.o.Rename[name]; ok {
			name = to
		}
		if name != "" {
			put(series.LabelName(name), bounded(l.Value))
		}
	}
	for _, l := range m.o.Labels {
		put(l.Name, l.Value)
	}
	slices.SortFunc(out, func(a, b series.Label) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (m *maker) page() Page {
	p := Page{Families: m.families}
	slices.SortFunc(p.Families, func(a, b series.Family) int { return cmp.Compare(a.Name, b.Name) })
	for _, reason := range []string{"syntax", "type", "value", "duplicate", "series"} {
		if n := m.skipped[reason]; n > 0 {
			p.Skipped = append(p.Skipped, series.Drop{Reason: reason, Points: n})
		}
	}
	return p
}

// unit is the base unit that a name ends in, for outputs that tell units.
func unit(name string) string {
	name = strings.TrimSuffix(name, "_total")
	for _, u := range []string{"seconds", "bytes", "ratio", "celsius", "volts", "amperes", "joules", "grams", "meters"} {
		if strings.HasSuffix(name, "_"+u) {
			return u
		}
	}
	return ""
}

func bounded(v string) string {
	v = strings.ToValidUTF8(v, "\uFFFD")
	if len(v) > maxLabel {
		if r := []rune(v); len(r) > maxLabel {
			return string(r[:maxLabel])
		}
	}
	return strings.Clone(v)
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
