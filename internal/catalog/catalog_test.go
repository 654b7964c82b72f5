package catalog_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
)

func TestMetrics_names(t *testing.T) {
	legal := regexp.MustCompile(`^cimeter(_[a-z][a-z0-9]*)+$`)
	label := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	var names []string
	for _, m := range catalog.Metrics() {
		names = append(names, m.Name)
		if !legal.MatchString(m.Name) {
			t.Errorf("%s: want lower case words with the prefix", m.Name)
		}
		base := m.Name
		switch m.Kind {
		case catalog.Counter:
			base = strings.TrimSuffix(m.Name, "_total")
		case catalog.Info:
			base = strings.TrimSuffix(m.Name, "_info")
		}
		if wants := m.Kind == catalog.Counter || m.Kind == catalog.Info; (base != m.Name) != wants {
			t.Errorf("%s is a %s", m.Name, m.Kind)
		}
		if m.Unit != "" && !strings.HasSuffix(base, "_"+m.Unit) {
			t.Errorf("%s: want the unit %s at its end", m.Name, m.Unit)
		}
		for _, s := range []string{"_total", "_info", "_sum", "_count", "_bucket", "_created"} {
			if strings.HasSuffix(base, s) {
				t.Errorf("%s: %s has a meaning of its own in the formats", m.Name, s)
			}
		}
		if !strings.HasSuffix(m.Help, ".") || strings.ContainsAny(m.Help, "\n\\\"|") {
			t.Errorf("%s: help %q: want one plain sentence", m.Name, m.Help)
		}
		for i, l := range m.Labels {
			if !label.MatchString(l) || l == "le" || l == "quantile" || slices.Contains(m.Labels[:i], l) {
				t.Errorf("%s: label %q", m.Name, l)
			}
		}
		if !slices.Equal(m.Labels[:len(m.Scope.Labels())], m.Scope.Labels()) {
			t.Errorf("%s: labels %v do not begin with those of its scope", m.Name, m.Labels)
		}
		if got, ok := catalog.Lookup(m.Name); !ok || got.Name != m.Name || got.Help != m.Help {
			t.Errorf("%s: not found by its name", m.Name)
		}
	}
	if !slices.IsSorted(names) || len(slices.Compact(names)) != len(names) {
		t.Errorf("want sorted names without a double: %v", names)
	}
	for _, name := range []string{"", "cimeter", "cimeter_zzz"} {
		if _, ok := catalog.Lookup(name); ok {
			t.Errorf("%q was found", name)
		}
	}
}

func TestMetrics_series(t *testing.T) {
	shown := map[cimeter.Counter]string{}
	gauges := map[cimeter.Gauge]string{}
	for _, m := range catalog.Metrics() {
		if (m.Kind == catalog.Histogram) != (len(m.Buckets) > 0) || !slices.IsSorted(m.Buckets) {
			t.Errorf("%s: buckets %v", m.Name, m.Buckets)
		}
		if m.Scope == catalog.Stage && m.Kind != catalog.Histogram && len(m.Series) == 0 {
			t.Errorf("%s: nothing of a sample is shown by it", m.Name)
		}
		for _, s := range m.Series {
			if len(s.Values) != len(m.Own()) {
				t.Errorf("%s: label values %v for %v", m.Name, s.Values, m.Own())
			}
			for _, c := range s.Counters {
				if shown[c] != "" {
					t.Errorf("counter %d is in %s and %s", c, shown[c], m.Name)
				}
				shown[c] = m.Name
				if nano := m.Unit == "seconds"; nano != (s.Decimals == 9) {
					t.Errorf("%s in %q: %d decimals", m.Name, m.Unit, s.Decimals)
				}
			}
			if m.Scope == catalog.Stage && m.Kind == catalog.Gauge {
				if gauges[s.Gauge] != "" {
					t.Errorf("gauge %d is in %s and %s", s.Gauge, gauges[s.Gauge], m.Name)
				}
				gauges[s.Gauge] = m.Name
			}
		}
	}
	// CPUTotal is the sum of the modes; the periods are in records only.
	hidden := []cimeter.Counter{cimeter.CPUTotal, cimeter.CPUPeriods, cimeter.CPUThrottledPeriods}
	for c := range cimeter.NumCounters {
		if (shown[c] == "") != slices.Contains(hidden, c) {
			t.Errorf("counter %d is shown by %q", c, shown[c])
		}
	}
}

// What a caller changes in one answer is not in the next.
func TestMetrics_isACopy(t *testing.T) {
	a := catalog.Metrics()
	for i := range a {
		a[i].Name = "x"
		for j := range a[i].Labels {
			a[i].Labels[j] = "x"
		}
		for j := range a[i].Buckets {
			a[i].Buckets[j] = 0
		}
	}
	for _, m := range catalog.Metrics() {
		if m.Name == "x" || slices.Contains(m.Labels, "x") || slices.Contains(m.Buckets, 0) {
			t.Fatalf("%s was changed through another answer", m.Name)
		}
	}
}

// Waits and runs from a second to a day do not all end in the first or the
// last bucket.
func TestMetrics_durationBuckets(t *testing.T) {
	for _, m := range catalog.Metrics() {
		if m.Kind != catalog.Histogram || m.Unit != "seconds" {
			continue
		}
		if first, last := m.Buckets[0], m.Buckets[len(m.Buckets)-1]; first != 1 || last != 86400 {
			t.Errorf("%s: buckets from %g to %g s: want 1 to 86400", m.Name, first, last)
		}
		for i := 1; i < len(m.Buckets); i++ {
			if m.Buckets[i]/m.Buckets[i-1] > 4 {
				t.Errorf("%s: nothing between %g and %g s", m.Name, m.Buckets[i-1], m.Buckets[i])
			}
		}
	}
}
