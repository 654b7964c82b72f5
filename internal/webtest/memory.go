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
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/section"
	"github.com/cimeter/cimeter/internal/web"
)

// Memory is a source and a fleet of what it is given. It is not changed while
// it serves.
type Memory struct {
	Records []*cimeter.Record
	Running map[string]bool // keys of those that still run
	Fleet   []web.Machine
	Gone    int
	Waiting queue.State            // what CI servers tell
	Logs    map[string]section.Log // by build key
	// LogsKept says that they were read already.
	LogsKept bool
}

var (
	_ web.Source = (*Memory)(nil)
	_ web.Totals = (*Memory)(nil)
	_ web.Fleet  = (*Memory)(nil)
)

// Machines implements web.Fleet.
func (m *Memory) Machines(context.Context) ([]web.Machine, int, error) {
	return slices.Clone(m.Fleet), m.Gone, nil
}

// Queue is a web.Queue.
func (m *Memory) Queue() queue.State {
	st := m.Waiting
	st.At = Now
	return st
}

// Sections is a web.Sections.
func (m *Memory) Sections(_ context.Context, r *cimeter.Record, keptOnly bool) (section.Parts, error) {
	if log, ok := m.Logs[r.Key]; ok && (m.LogsKept || !keptOnly) {
		if parts, ok := section.Split(r, log); ok {
			return parts, nil
		}
	}
	return section.Parts{}, fmt.Errorf("log of %q: %w", r.Key, cimeter.ErrNotFound)
}

// Neighbours is a web.Neighbours.
func (m *Memory) Neighbours(_ context.Context, of *cimeter.Record) (builds int, atOnce float64, err error) {
	for _, r := range m.Records {
		from, to := r.StartedAt, r.EndedAt
		if from.Before(of.StartedAt) {
			from = of.StartedAt
		}
		if to.After(of.EndedAt) {
			to = of.EndedAt
		}
		if r.Key != of.Key && r.Machine == of.Machine && to.After(from) {
			builds++
			atOnce += to.Sub(from).Seconds() / of.EndedAt.Sub(of.StartedAt).Seconds()
		}
	}
	return builds, atOnce, nil
}

// Past is a web.Past: a day of ci-7.
func (m *Memory) Past(_ context.Context, machine string, since time.Time) (day []web.Moment, err error) {
	for i := range 144 {
		if at := Now.Truncate(10 * time.Minute).Add(-time.Duration(143-i) * 10 * time.Minute); machine == "ci-7" && at.After(since) {
			busy := 0.5 + 0.5*math.Sin(float64(i)/11)
			p := web.Moment{At: at, Builds: 12 * busy, Other: 0.6 + 0.2*busy, Cimeter: 0.006, Coverage: 0.99 - 0.01*busy, MemoryUsed: (6 + 50*busy) * 1024 * mib, Disk: 80 * busy * mib, Net: 30 * busy * busy * mib, Pressure: 0.3 * busy * busy}
			switch {
			case i > 60 && i < 66: // it was away
				continue
			case i == 100:
				p.Coverage = 0.71
			case busy < 0.02: // no build ran
				p.Coverage = math.NaN()
			}
			day = append(day, p)
		}
	}
	return day, nil
}

// Names is a web.Names.
func (m *Memory) Names(_ context.Context, kind, part string, limit int) (names []string, err error) {
	of := map[string]func(*cimeter.Record) string{
		"project": func(r *cimeter.Record) string { return r.Project }, "job": func(r *cimeter.Record) string { return r.Name },
		"ref": func(r *cimeter.Record) string { return r.Ref }, "machine": func(r *cimeter.Record) string { return r.Machine },
	}[kind]
	for _, r := range m.Records {
		if of == nil {
			break
		}
		if s := of(r); s != "" && strings.Contains(strings.ToLower(s), strings.ToLower(part)) && !slices.Contains(names, s) && len(names) < limit {
			names = append(names, s)
		}
	}
	return names, nil
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

func number(o cimeter.Opt[uint64]) cimeter.Opt[float64] {
	return cimeter.Opt[float64]{Value: float64(o.Value), Known: o.Known}
}

func sortValue(r *web.Row, by web.Sort) cimeter.Opt[float64] {
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
	return cimeter.Some(float64(r.EndedAt.UnixMicro()))
}

func (m *Memory) matching(f filter.Filter) []web.Row {
	var rows []web.Row
	for _, r := range m.Records {
		if match(r, f) {
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
		less := cmp.Or(cmp.Compare(btoi(y.Known), btoi(x.Known)), cmp.Compare(y.Value, x.Value))
		if q.Ascending {
			return -less
		}
		return less
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
	if q.Sums {
		s := sum(rows)
		p.Sums = &s
	}
	return p, nil
}

// History implements web.Source.
func (m *Memory) History(_ context.Context, q web.HistoryQuery) ([]*cimeter.Record, error) {
	var rs []*cimeter.Record
	for _, r := range m.Records {
		if r.Project == q.Project && r.Name == q.Name && (q.Ref == "" || r.Ref == q.Ref) && (q.Before.IsZero() || r.EndedAt.Before(q.Before)) && !m.Running[r.Key] {
			rs = append(rs, r)
		}
	}
	slices.SortStableFunc(rs, func(a, b *cimeter.Record) int { return b.EndedAt.Compare(a.EndedAt) })
	return rs[:min(len(rs), q.Limit)], nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
