package webtest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/web"
)

// Memory is a source and a fleet of what it is given. It is not changed while
// it serves.
type Memory struct {
	Records []*cimeter.Record
	Running map[string]bool // keys of those that still run
	Fleet   []web.Machine
	Gone    int
}

var (
	_ web.Source = (*Memory)(nil)
	_ web.Fleet  = (*Memory)(nil)
)

// Machines implements web.Fleet.
func (m *Memory) Machines(context.Context) ([]web.Machine, int, error) {
	return slices.Clone(m.Fleet), m.Gone, nil
}

// Build implements web.Source.
func (m *Memory) Build(_ context.Context, key string) (*cimeter.Record, bool, error) {
	for _, r := range m.Records {
		if r.Key == key {
			return r, m.Running[key], nil
		}
	}
	return nil, false, fmt.Errorf("build %q: %w", key, cimeter.ErrNotFound)
}

func sortValue(r *web.Row, by web.Sort) cimeter.Opt[float64] {
	number := func(o cimeter.Opt[uint64]) cimeter.Opt[float64] {
		return cimeter.Opt[float64]{Value: float64(o.Value), Known: o.Known}
	}
	switch by {
	case web.SortQueue:
		return r.Queue()
	case web.SortWall:
		return cimeter.Some(r.WallSeconds)
	case web.SortCPU:
		return r.CPUSeconds
	case web.SortMemory:
		return number(r.MemoryPeak)
	case web.SortDisk:
		return number(r.DiskBytes)
	case web.SortNet:
		return number(r.NetBytes)
	}
	return cimeter.Some(float64(r.StartedAt.UnixMicro()))
}

func (m *Memory) matching(f web.Filter) []web.Row {
	var rows []web.Row
	for _, r := range m.Records {
		if f.Match(r) {
			row := web.RowOf(r)
			row.Running = m.Running[r.Key]
			rows = append(rows, row)
		}
	}
	return rows
}

// Builds implements web.Source; its cursor is a place in the list.
func (m *Memory) Builds(_ context.Context, q web.Query) (web.Page, error) {
	rows := m.matching(q.Filter)
	slices.SortStableFunc(rows, func(a, b web.Row) int {
		x, y := sortValue(&a, q.Sort), sortValue(&b, q.Sort)
		if x.Known != y.Known {
			if x.Known {
				return -1
			}
			return 1
		}
		if q.Ascending {
			return cmp.Compare(x.Value, y.Value)
		}
		return cmp.Compare(y.Value, x.Value)
	})
	from := 0
	if q.Cursor != "" {
		var err error
		if from, err = strconv.Atoi(q.Cursor); err != nil || from < 0 || from > len(rows) {
			return web.Page{}, fmt.Errorf("cursor: %w", cimeter.ErrInvalid)
		}
	}
	end := min(len(rows), from+q.Limit)
	p := web.Page{Rows: rows[from:end]}
	if end < len(rows) {
		p.Next = strconv.Itoa(end)
	}
	if q.Totals {
		g := fold(rows)
		p.Totals = &web.Totals{Builds: g.Builds, CPUSeconds: g.CPUSeconds, Bytes: g.Bytes, WallP50: g.Wall.P50, WallP95: g.Wall.P95}
	}
	return p, nil
}

// Groups implements web.Source.
func (m *Memory) Groups(_ context.Context, q web.GroupQuery) ([]web.Group, error) {
	if q.By == web.ByStage {
		return m.stages(q), nil
	}
	type key struct {
		project, name, label string
		at                   time.Time
		bucket               int
	}
	rows := map[key][]web.Row{}
	for _, r := range m.matching(q.Filter) {
		var k key
		switch q.By {
		case web.ByProject:
			k.project = r.Project
		case web.ByJob:
			k.project, k.name = r.Project, r.Name
		case web.ByMachine:
			k.name = r.Machine
		case web.ByRunner:
			k.name, k.label = r.Runner.Key(), r.Runner.Name
		case web.ByDay:
			k.at = r.StartedAt.UTC().Truncate(24 * time.Hour)
		case web.ByHour:
			k.at = r.StartedAt.UTC().Truncate(time.Hour)
		case web.ByPeak:
			if !r.MemoryPeak.Known || r.MemoryLimit.Value == 0 {
				continue
			}
			k.bucket = min(9, int(10*float64(r.MemoryPeak.Value)/float64(r.MemoryLimit.Value)))
		}
		rows[k] = append(rows[k], r)
	}
	var gs []web.Group
	for k, rs := range rows {
		g := fold(rs)
		g.Project, g.Name, g.Label, g.At, g.Bucket = k.project, k.name, k.label, k.at, k.bucket
		if q.Trend {
			g.Trend = trend(rs)
		}
		gs = append(gs, g)
	}
	return ordered(gs, q), nil
}

func ordered(gs []web.Group, q web.GroupQuery) []web.Group {
	slices.SortFunc(gs, func(a, b web.Group) int {
		if q.By == web.ByDay || q.By == web.ByHour {
			return a.At.Compare(b.At)
		}
		if q.By == web.ByPeak {
			return a.Bucket - b.Bucket
		}
		return cmp.Or(cmp.Compare(b.CPUSeconds, a.CPUSeconds), strings.Compare(a.Name, b.Name))
	})
	if q.Limit > 0 && len(gs) > q.Limit {
		gs = gs[:q.Limit]
	}
	return gs
}

// stages adds up the stages of all builds by name.
func (m *Memory) stages(q web.GroupQuery) []web.Group {
	by := map[string][]web.Row{}
	for _, r := range m.Records {
		if !q.Filter.Match(r) {
			continue
		}
		for _, s := range r.Stages {
			c := *r
			c.Usage, c.Trace, c.Verdicts = s.Usage, nil, nil
			by[s.Name] = append(by[s.Name], web.RowOf(&c))
		}
	}
	var gs []web.Group
	for name, rows := range by {
		g := fold(rows)
		g.Name = name
		gs = append(gs, g)
	}
	return ordered(gs, q)
}

// trend is the median CPU time of each of the last 14 days.
func trend(rows []web.Row) []cimeter.Opt[float64] {
	days := make([][]float64, 14)
	for i := range rows {
		if d := int(Now.Sub(rows[i].StartedAt).Hours() / 24); d >= 0 && d < 14 && rows[i].CPUSeconds.Known {
			days[13-d] = append(days[13-d], rows[i].CPUSeconds.Value)
		}
	}
	out := make([]cimeter.Opt[float64], 14)
	for i, vs := range days {
		out[i] = percentile(vs, 0.5)
	}
	return out
}

func percentile(vs []float64, p float64) cimeter.Opt[float64] {
	if len(vs) == 0 {
		return cimeter.Opt[float64]{}
	}
	vs = slices.Sorted(slices.Values(vs))
	return cimeter.Some(vs[min(len(vs)-1, int(math.Ceil(p*float64(len(vs))))-1+btoi(p == 0))])
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func fold(rows []web.Row) web.Group {
	var g web.Group
	var wall, queue, cpu, peak, share []float64
	for i := range rows {
		r := &rows[i]
		g.Builds++
		switch r.Result {
		case "success":
			g.Succeeded++
		case "failed":
			g.Failed++
		case "canceled":
			g.Canceled++
		}
		if len(r.Verdicts) > 0 {
			g.Verdicts++
		}
		if slices.Contains(r.Verdicts, "oom") {
			g.OOMs++
		}
		g.CPUSeconds += r.CPUSeconds.Value
		g.Bytes += float64(r.DiskBytes.Value + r.NetBytes.Value)
		if r.StartedAt.After(g.LastStartedAt) {
			g.LastStartedAt = r.StartedAt
		}
		if r.Result == "canceled" {
			continue
		}
		wall = append(wall, r.WallSeconds)
		if v := r.Queue(); v.Known {
			queue = append(queue, v.Value)
		}
		if r.CPUSeconds.Known {
			cpu = append(cpu, r.CPUSeconds.Value)
		}
		if r.MemoryPeak.Known {
			peak = append(peak, float64(r.MemoryPeak.Value))
			if r.MemoryLimit.Value > 0 {
				share = append(share, float64(r.MemoryPeak.Value)/float64(r.MemoryLimit.Value))
			}
		}
	}
	both := func(vs []float64) web.Percentiles {
		return web.Percentiles{P50: percentile(vs, 0.5), P95: percentile(vs, 0.95)}
	}
	g.Wall, g.Queue, g.CPU, g.Peak, g.PeakShare = both(wall), both(queue), both(cpu), both(peak), both(share)
	return g
}
