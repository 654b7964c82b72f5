package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// table is what was measured against what is required.
type table struct {
	title  string
	missed int
	rows   []string
}

// bound adds a figure that must not exceed its bound, with its share of it.
func (t *table) bound(what string, limit, got float64, unit, detail string) {
	verdict := "met"
	if got > limit {
		verdict = "MISSED"
		t.missed++
	}
	ratio := "-"
	if limit > 0 {
		ratio = fmt.Sprintf("%.2f", got/limit)
	}
	t.rows = append(t.rows, fmt.Sprintf("%s\t<= %g%s\t%.4g%s\t%s\t%s\t%s", what, limit, unit, got, unit, ratio, verdict, detail))
}

// note adds a figure that nothing is required of.
func (t *table) note(what, measured string) {
	t.rows = append(t.rows, fmt.Sprintf("%s\t-\t%s\t-\t\t", what, measured))
}

func (t *table) print(w io.Writer) {
	fmt.Fprintln(w, t.title)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "what\trequired\tmeasured\tratio\t\t")
	for _, r := range t.rows {
		fmt.Fprintln(tw, r)
	}
	tw.Flush()
}

// quantile is the value below which that share of the times lies.
func quantile(times []time.Duration, share float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
