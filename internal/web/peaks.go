package web

import (
	"fmt"
	"slices"
)

// histogram is peak memory of its limit, in tenths.
type histogram struct {
	Bars []histogramBar
	N    int
}

type histogramBar struct {
	X, Y, W, H string
	Label      string
	Title      string
	URL        string
	OOM        string
}

func peaksOf(rows []Row, s *selection) *histogram {
	var counts, ooms [10]int
	n, killed := 0, 0
	for i := range rows {
		row := &rows[i]
		if !row.MemoryPeak.Known || row.MemoryLimit.Value == 0 {
			continue
		}
		b := min(9, int(10*float64(row.MemoryPeak.Value)/float64(row.MemoryLimit.Value)))
		counts[b]++
		n++
		if slices.Contains(row.Verdicts, "oom") {
			ooms[b]++
			killed++
		}
	}
	if n == 0 {
		return nil
	}
	top := slices.Max(counts[:])
	h := &histogram{N: n}
	for i, c := range counts {
		share := float64(c) / float64(top)
		b := histogramBar{X: pct(float64(i)/10 + 0.008), W: pct(0.084), Y: pct(1 - 0.82*share), H: pct(0.82 * share), Label: fmt.Sprintf("%d %%", 10*i),
			Title: fmt.Sprintf("%s at %d to %d %% of the limit", builds(int64(c)), 10*i, 10*i+10)}
		q := fmt.Sprintf("mem>=%d%%", 10*i)
		if i < 9 {
			q += fmt.Sprintf(" mem<%d%%", 10*i+10)
		}
		if c > 0 {
			b.URL = s.url("/builds", "q", q, "project", s.values.Get("project"), "job", s.values.Get("name"), "name", "")
		}
		if ooms[i] > 0 {
			b.Title += fmt.Sprintf(", %d killed", ooms[i])
		}
		if i == 9 && killed > 0 { // the label stands there for all of them: a peak is read too late for some
			b.OOM = fmt.Sprintf("%d killed", killed)
		}
		h.Bars = append(h.Bars, b)
	}
	return h
}
