package webtest

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/web"
)

// match reports whether r meets f.
func match(r *cimeter.Record, f filter.Filter) bool {
	row := web.RowOf(r)
	for _, t := range f {
		if meets(r, &row, t) == t.Not {
			return false
		}
	}
	return true
}

func meets(r *cimeter.Record, row *web.Row, t filter.Term) bool {
	var texts []string
	switch t.Field {
	case filter.Since:
		return !r.EndedAt.Before(t.At)
	case filter.Before:
		return r.EndedAt.Before(t.At)
	case filter.CPU, filter.Wall, filter.Queue, filter.Memory, filter.IO, filter.Net:
		v := sortValue(row, web.Sort(t.Field))
		want := float64(t.Number)
		switch t.Unit {
		case filter.Microseconds:
			want /= 1e6
		case filter.Thousandths:
			want = want / 1000 * float64(row.MemoryLimit.Value)
			v.Known = v.Known && row.MemoryLimit.Known
		}
		if !v.Known {
			return t.Not // meets no condition, nor its opposite
		}
		return t.Op == filter.Gt && v.Value > want || (t.Op == filter.Ge || t.Op == filter.Eq) && v.Value >= want ||
			t.Op == filter.Lt && v.Value < want || t.Op == filter.Le && v.Value <= want
	case filter.Text:
		for _, s := range []string{r.Project, r.Name, r.Ref, r.Number} {
			if strings.Contains(strings.ToLower(s), strings.ToLower(t.Text)) {
				return true
			}
		}
		return strings.HasPrefix(r.Key, t.Text)
	case filter.Stage:
		for _, s := range r.Stages {
			texts = append(texts, s.Name)
		}
	case filter.Verdict:
		texts = row.Verdicts
	case filter.Runner:
		texts = []string{r.Runner.ID, r.Runner.ShortToken, r.Runner.Name}
	default:
		texts = []string{map[filter.Field]string{filter.Key: r.Key, filter.Project: r.Project, filter.Ref: r.Ref, filter.Job: r.Name, filter.Machine: r.Machine,
			filter.CI: r.CI, filter.Result: r.Result, filter.Event: r.Event, filter.Pipeline: r.Pipeline}[t.Field]}
	}
	return slices.ContainsFunc(texts, func(s string) bool { return s == t.Text || t.Prefix && strings.HasPrefix(s, t.Text) })
}

// Groups implements web.Totals.
func (m *Memory) Groups(_ context.Context, q web.GroupQuery) ([]web.Group, error) {
	rows := map[web.Group][]web.Row{}
	for _, r := range m.Records {
		if r.EndedAt.Before(q.From) || !r.EndedAt.Before(q.To) || q.Project != "" && r.Project != q.Project || q.Name != "" && r.Name != q.Name || q.Machine != "" && r.Machine != q.Machine {
			continue
		}
		g := web.Group{}
		switch q.By {
		case web.ByProject:
			g.Project = r.Project
		case web.ByJob, web.ByMachineJob:
			g.Project, g.Name = r.Project, r.Name
		case web.ByMachine:
			g.Machine = r.Machine
		case web.ByRunner:
			g.Runner, g.RunnerName, g.Machine = r.Runner.Key(), r.Runner.Name, r.Machine
		case web.ByStage:
			for _, s := range r.Stages {
				c := *r
				c.Usage, c.Trace, c.Verdicts = s.Usage, nil, nil
				g := web.Group{Project: r.Project, Name: r.Name, Stage: s.Name}
				rows[g] = append(rows[g], web.RowOf(&c))
			}
			continue
		}
		rows[g] = append(rows[g], web.RowOf(r))
	}
	var gs []web.Group
	for g, rs := range rows {
		g.Sums = sum(rs)
		gs = append(gs, g)
	}
	slices.SortFunc(gs, func(a, b web.Group) int {
		return cmp.Or(cmp.Compare(b.CPUSeconds, a.CPUSeconds), strings.Compare(a.Project+a.Name+a.Machine, b.Project+b.Name+b.Machine))
	})
	if q.Limit > 0 && len(gs) > q.Limit {
		gs = gs[:q.Limit]
	}
	return gs, nil
}

// Buckets implements web.Totals.
func (m *Memory) Buckets(_ context.Context, q web.BucketQuery) ([]web.Bucket, error) {
	rows := map[time.Time][]web.Row{}
	for _, r := range m.Records {
		if r.EndedAt.Before(q.From) || !r.EndedAt.Before(q.To) || q.Project != "" && r.Project != q.Project || q.Name != "" && r.Name != q.Name ||
			q.Machine != "" && r.Machine != q.Machine || q.Runner != "" && r.Runner.Key() != q.Runner {
			continue
		}
		at := r.EndedAt.UTC().Truncate(q.Bucket)
		rows[at] = append(rows[at], web.RowOf(r))
	}
	var bs []web.Bucket
	for at, rs := range rows {
		bs = append(bs, web.Bucket{Start: at, Sums: sum(rs)})
	}
	slices.SortFunc(bs, func(a, b web.Bucket) int { return a.Start.Compare(b.Start) })
	return bs, nil
}

func percentile(vs []float64, p float64) cimeter.Opt[float64] {
	if len(vs) == 0 {
		return cimeter.Opt[float64]{}
	}
	slices.Sort(vs)
	return cimeter.Some(vs[max(0, int(math.Ceil(p*float64(len(vs))))-1)])
}

func sum(rows []web.Row) web.Sums {
	var s web.Sums
	var wall, queue []float64
	for i := range rows {
		r := &rows[i]
		s.Builds++
		s.Failed += int64(btoi(r.Result == "failed"))
		s.Canceled += int64(btoi(r.Result == "canceled"))
		s.OOM += int64(btoi(slices.Contains(r.Verdicts, "oom")))
		s.WallSeconds += r.WallSeconds
		s.CPUSeconds += r.CPUSeconds.Value
		s.IOBytes += int64(r.DiskBytes.Value)
		s.NetworkBytes += int64(r.NetBytes.Value)
		if r.MemoryPeak.Known && int64(r.MemoryPeak.Value) >= s.MemoryPeakBytes.Value {
			s.MemoryPeakBytes = cimeter.Some(int64(r.MemoryPeak.Value))
		}
		if r.EndedAt.After(s.Last) {
			s.Last = r.EndedAt
		}
		wall = append(wall, r.WallSeconds)
		if v := r.Queue(); v.Known {
			queue = append(queue, v.Value)
		}
	}
	s.WallP50, s.WallP95, s.QueueP50, s.QueueP95 = percentile(wall, 0.5), percentile(wall, 0.95), percentile(queue, 0.5), percentile(queue, 0.95)
	return s
}

// Course implements web.Totals.
func (m *Memory) Course(_ context.Context, q web.CourseQuery) (web.Course, error) {
	rows := slices.DeleteFunc(m.matching(q.Filter), func(r web.Row) bool { return r.Running })
	slices.SortStableFunc(rows, func(a, b web.Row) int { return a.EndedAt.Compare(b.EndedAt) })
	cut := len(rows) > q.Most
	rows = rows[max(0, len(rows)-q.Most):]
	c := web.Course{Sums: sum(rows)}
	c.Sums.Partial = cut
	for i := range rows {
		r := &rows[i]
		one := web.Row{EndedAt: r.EndedAt, Result: r.Result, WallSeconds: r.WallSeconds, Unmetered: r.Unmetered, CPUSeconds: r.CPUSeconds, MemoryPeak: r.MemoryPeak, MemoryLimit: r.MemoryLimit}
		if slices.Contains(r.Verdicts, "oom") {
			one.Verdicts = []string{"oom"}
		}
		c.Builds = append(c.Builds, one)
	}
	if q.To.Sub(q.From) >= 6*time.Hour {
		var all []web.Row
		for _, r := range m.Records {
			if !r.EndedAt.Before(q.From) && r.EndedAt.Before(q.To) {
				all = append(all, web.RowOf(r))
			}
		}
		c.FleetCPUSeconds = cimeter.Some(sum(all).CPUSeconds)
	}
	return c, nil
}
