package web

import (
	"fmt"
	"slices"
	"time"
)

// jobStats is what the builds of one job of a project say beyond their sums.
type jobStats struct {
	Median, P95, Peak, Findings string
	Trend                       change
}

// trendWeek is how long each of the two times is whose CPU time a trend compares.
const trendWeek = 7 * 24 * time.Hour

// stats gives the rows of a table of jobs what single builds tell; builds are the latest
// of the project.
func (t *groupTable) stats(gs []Group, builds []Row, now time.Time) {
	type values struct {
		walls, peaks, before, after []float64
		findings, n                 int
	}
	by := map[string]*values{}
	longest := 0.0
	for i := range builds {
		r := &builds[i]
		v := by[r.Name]
		if v == nil {
			v = &values{}
			by[r.Name] = v
		}
		if r.Result == "canceled" {
			continue
		}
		v.n++
		if len(r.Verdicts) > 0 {
			v.findings++
		}
		if w := r.Wall(); w.Known {
			v.walls, longest = append(v.walls, w.Value), max(longest, w.Value)
		}
		if r.MemoryPeak.Known && r.MemoryLimit.Value > 0 {
			v.peaks = append(v.peaks, float64(r.MemoryPeak.Value)/float64(r.MemoryLimit.Value))
		}
		if age := now.Sub(r.EndedAt); r.CPUSeconds.Known && r.Result == "success" && age < 2*trendWeek {
			to := &v.before
			if age < trendWeek {
				to = &v.after
			}
			*to = append(*to, r.CPUSeconds.Value)
		}
	}
	col := timeColumn(longest)
	in := func(v float64) string { return col.cell(some(v)) }
	for i := range t.Rows {
		s := &jobStats{Median: dash, P95: dash, Peak: dash, Findings: dash, Trend: change{Text: dash}}
		if v := by[gs[i].Name]; v != nil {
			s.Median, s.P95, s.Peak = percentileText(v.walls, 0.5, in), percentileText(v.walls, 0.95, in), percentileText(v.peaks, 0.95, percent)
			s.Findings = fmt.Sprintf("%d of %d", v.findings, v.n)
			if before, after := spreadOf(v.before), spreadOf(v.after); min(before.n, after.n) >= minPeers {
				s.Trend = changeOf(after.median, before.median, before.beyond(after.median))
			}
		}
		t.Rows[i].Stats = s
	}
	of := fmt.Sprintf("of the latest %d builds of the project at most, without canceled ones", historyMost)
	at := slices.IndexFunc(t.Headings, func(h heading) bool { return h.Label == "mean time" })
	t.Headings = slices.Replace(t.Headings, at, at+1, heading{Label: "median time", Unit: col.Unit, Class: "n", Title: of}, heading{Label: "95 % under", Unit: col.Unit, Class: "n", Title: of},
		heading{Label: "peaks under", Class: "n", Title: "95 % of the peaks of memory, against their limit; " + of}, heading{Label: "CPU, 14 d", Class: "n", Title: "the median of the last 7 days against that of the 7 days before"},
		heading{Label: "with findings", Class: "n", Title: of})
}
