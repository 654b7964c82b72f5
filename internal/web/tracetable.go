package web

import (
	"net/url"
	"strconv"
	"strings"
)

// traceTable is a chart as a table.
type traceTable struct {
	Headings []string
	Rows     [][]string
	Pages    []choice
}

// traceBuckets and tracePage bound a chart's table.
const (
	traceBuckets = 60
	tracePage    = 25
)

func traceRows(c *chart, step float64, a axis, q url.Values, path string) *traceTable {
	t := &traceTable{Headings: []string{"from", "to"}}
	_, size := unit(1)
	if c.ID == "cpu" || c.Unit == eachSecond {
		size = 1
	} else {
		lo, hi := extent(c.Series)
		_, size = unit(max(hi, -lo, kib))
		for name, u := range map[string]float64{"KiB": kib, "MiB": mib, "GiB": gib, "TiB": tib} {
			if strings.HasPrefix(c.Unit, name) {
				size = u
			}
		}
	}
	for _, s := range c.Series {
		for _, f := range []string{"min", "avg", "max"} {
			t.Headings = append(t.Headings, s.Label+" "+f+", "+c.Unit)
		}
	}
	n := 0
	for _, s := range c.Series {
		n = max(n, len(s.ys))
	}
	first, last := max(0, int(a.From/step)), min(n, int(a.To/step)+1)
	steps := last - first
	if steps <= 0 {
		return t
	}
	buckets := min(traceBuckets, steps)
	page, err := strconv.Atoi(q.Get("tpage"))
	if err != nil || page < 1 || (page-1)*tracePage >= buckets {
		page = 1
	}
	for b := (page - 1) * tracePage; b < min(buckets, page*tracePage); b++ {
		lo, hi := first+b*steps/buckets, first+(b+1)*steps/buckets
		row := []string{clock(float64(lo) * step), clock(float64(hi) * step)}
		for _, s := range c.Series {
			row = append(row, bucket(s.ys[min(lo, len(s.ys)):min(hi, len(s.ys))], size)...)
		}
		t.Rows = append(t.Rows, row)
	}
	for i := 0; i*tracePage < buckets; i++ {
		z := cloneValues(q)
		z.Set("tpage", strconv.Itoa(i+1))
		t.Pages = append(t.Pages, choice{link{Text: strconv.Itoa(i + 1), URL: path + "?" + z.Encode() + "#" + c.ID}, i+1 == page})
	}
	if len(t.Pages) < 2 {
		t.Pages = nil
	}
	return t
}

// bucket is the least, the mean and the largest of ys.
func bucket(ys []float64, size float64) []string {
	lo, hi, sum, n := 0.0, 0.0, 0.0, 0
	for _, y := range ys {
		if y != y {
			continue
		}
		y = max(y, -y)
		if n == 0 {
			lo, hi = y, y
		}
		lo, hi, sum, n = min(lo, y), max(hi, y), sum+y, n+1
	}
	if n == 0 {
		return []string{dash, dash, dash}
	}
	return []string{sig3(lo / size), sig3(sum / float64(n) / size), sig3(hi / size)}
}
