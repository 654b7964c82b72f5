package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/cimeter/cimeter"
)

// quantile is the smallest value that at least the share p of us does not
// exceed, in seconds.
func quantile(us []int64, p float64) cimeter.Opt[float64] {
	if len(us) == 0 {
		return cimeter.Opt[float64]{}
	}
	slices.Sort(us)
	i := int(p*float64(len(us))+0.999999) - 1
	return cimeter.Some(float64(us[min(max(i, 0), len(us)-1)]) / 1e6)
}

func (r *Rollup) totals() Totals {
	t := Totals{Builds: r.Builds, Failed: r.Failed, Canceled: r.Canceled, OOM: r.OOM,
		WallSeconds: float64(r.WallUS) / 1e6, CPUSeconds: float64(r.CPUUS) / 1e6, QueueSeconds: float64(r.QueueUS) / 1e6, Queued: r.Queued,
		ThrottledSeconds: float64(r.ThrottledUS) / 1e6, IOBytes: r.IO, NetworkBytes: r.Net, Last: Time(r.LastAt)}
	if r.MemPeak >= 0 {
		t.MemoryPeakBytes = cimeter.Some(r.MemPeak)
	}
	return t
}

// The sums of a group, over rollups and over builds, in the order of dest.
const (
	rollupSums = `CAST(sum(builds) AS BIGINT), CAST(sum(failed) AS BIGINT), CAST(sum(canceled) AS BIGINT), CAST(sum(oom) AS BIGINT),
CAST(sum(wall_us) AS BIGINT), CAST(sum(cpu_us) AS BIGINT), CAST(sum(queue_us) AS BIGINT), CAST(sum(queued) AS BIGINT), CAST(sum(throttled_us) AS BIGINT),
CAST(sum(io_bytes) AS BIGINT), CAST(sum(net_bytes) AS BIGINT), max(mem_peak), max(last_at)`
	// anyRollup keeps groups of which something is left: a machine's part of a build that
	// is counted elsewhere is no build, and costs; what was replaced leaves nothing behind.
	anyRollup = " HAVING sum(builds) > 0 OR sum(wall_us) > 0 OR sum(cpu_us) > 0"
)

// buildSums are those over builds, each counted where none of the flags of again says
// that another row is.
func buildSums(dim Dim) string {
	first := "flags & " + strconv.FormatInt(int64(dim.again())<<partBit, 10) + " = 0"
	killed := strconv.Itoa(flagKilled)
	if dim.again() == AgainOfBuild {
		killed = strconv.FormatInt(flagKilled|int64(AgainKilled)<<partBit, 10)
	}
	return "count(CASE WHEN " + first + " THEN 1 END), count(CASE WHEN result = 'failed' AND " + first + " THEN 1 END), count(CASE WHEN result = 'canceled' AND " + first + ` THEN 1 END),
count(CASE WHEN flags & ` + killed + " = " + strconv.Itoa(flagKilled) + ` THEN 1 END),
CAST(sum(CASE WHEN wall_us > 0 THEN wall_us ELSE 0 END) AS BIGINT), CAST(sum(CASE WHEN cpu_us > 0 THEN cpu_us ELSE 0 END) AS BIGINT),
CAST(sum(CASE WHEN queue_us > 0 AND ` + first + ` THEN queue_us ELSE 0 END) AS BIGINT), count(CASE WHEN queue_us >= 0 AND ` + first + ` THEN 1 END),
CAST(sum(CASE WHEN throttled_us > 0 THEN throttled_us ELSE 0 END) AS BIGINT), CAST(sum(CASE WHEN io_bytes > 0 THEN io_bytes ELSE 0 END) AS BIGINT),
CAST(sum(CASE WHEN net_bytes > 0 THEN net_bytes ELSE 0 END) AS BIGINT), max(mem_peak), max(at)`
}

// sumColumns are the places of the sums, for ORDER BY, behind the names.
var sumColumns = map[Sort]int{SortWall: 5, SortCPU: 6, SortQueue: 7, SortIO: 10, SortNet: 11, SortMemory: 12, SortEnded: 13}

func (r *Rollup) dest() []any {
	return []any{&r.Builds, &r.Failed, &r.Canceled, &r.OOM, &r.WallUS, &r.CPUUS, &r.QueueUS, &r.Queued, &r.ThrottledUS, &r.IO, &r.Net, &r.MemPeak, &r.LastAt}
}

// grouping says where the names of a By are.
type grouping struct {
	dim    Dim
	rollup []string // columns of rollups
	builds []string // columns of builds; nil: of neither, but of the totals of stages
	fill   func(g *Group, names []string)
}

var groupings = map[By]grouping{
	ByProject: {DimProject, []string{"a"}, []string{"project"}, func(g *Group, n []string) { g.Project = n[0] }},
	ByJob:     {DimJob, []string{"a", "b"}, []string{"project", "name"}, func(g *Group, n []string) { g.Project, g.Name = n[0], n[1] }},
	ByStage:   {0, nil, nil, func(g *Group, n []string) { g.Project, g.Name, g.Stage = n[0], n[1], n[2] }},
	ByMachine: {DimMachine, []string{"a"}, []string{"machine"}, func(g *Group, n []string) { g.Machine = n[0] }},
	ByMachineJob: {DimMachineJob, []string{"a", "b", "c"}, []string{"machine", "project", "name"}, func(g *Group, n []string) {
		g.Machine, g.Project, g.Name = n[0], n[1], n[2]
	}},
	ByRunner: {DimRunner, []string{"a", "b", "c"}, []string{"runner", "machine", "runner_name"}, func(g *Group, n []string) {
		g.Runner, g.Machine, g.RunnerName = n[0], n[1], n[2]
	}},
}

// first is the value asked for of the first name of the rollups; "": any.
func (q *GroupQuery) first() string {
	switch q.By {
	case ByProject, ByJob:
		return q.Project
	case ByMachine, ByMachineJob:
		return q.Machine
	}
	return ""
}

// maxDays bounds the days that are listed in a statement.
const maxDays = 400

// exactRange is the longest range that is added up from builds.
const exactRange = 48 * time.Hour

// check completes a question, or tells what is wrong with it.
func (q *GroupQuery) check() error {
	if q.Sort == "" {
		q.Sort = SortCPU
	}
	if q.Limit == 0 {
		q.Limit = 100
	}
	switch {
	case groupings[q.By].fill == nil:
		return fmt.Errorf("groups by %.20q: want a known grouping: %w", q.By, cimeter.ErrInvalid)
	case sumColumns[q.Sort] == 0:
		return fmt.Errorf("groups sorted by %.20q: want one of %v: %w", q.Sort, sorts(), cimeter.ErrInvalid)
	case q.Limit < 1 || q.Limit > MaxGroups:
		return fmt.Errorf("%d groups: want 1 to %d: %w", q.Limit, MaxGroups, cimeter.ErrInvalid)
	case !q.From.Before(q.To):
		return fmt.Errorf("groups from %s to %s: want a range: %w", q.From.Format(time.RFC3339), q.To.Format(time.RFC3339), cimeter.ErrInvalid)
	case q.Name != "" && q.Project == "":
		return fmt.Errorf("groups of job %q: want its project too: %w", q.Name, cimeter.ErrInvalid)
	}
	return nil
}

// exact reports whether the builds themselves are added up, not their days.
func (q *GroupQuery) exact() bool {
	return groupings[q.By].builds != nil && q.To.Sub(q.From) <= exactRange
}

// selectGroups begins the statement that adds up a span, from builds or from the
// totals of days, and returns the columns of the groups' names.
func (q *GroupQuery) selectGroups(s *statement, exact bool, from, to int64) (names []string) {
	by := groupings[q.By]
	if names = by.rollup; exact {
		names = by.builds
		s.add("SELECT " + columns("b.", names...) + ", " + buildSums(by.dim) + " FROM ")
		switch {
		case q.Machine != "" && q.By == ByMachineJob:
			s.builds("builds_machine")
		case q.Project != "" && q.By == ByJob:
			s.builds("builds_project")
		default:
			s.builds("builds_at")
		}
		s.add(" WHERE b.at >= ? AND b.at < ?", from, to)
	} else {
		s.add("SELECT " + columns("b.", names...) + ", " + rollupSums + " FROM ")
		if days := (to - from) / dayUS; q.By == ByMachineJob && s.dialect == SQLite && days <= maxDays {
			// A machine has thousands of jobs and days: its days are entered one by one.
			s.rollups(false)
			s.add(" WHERE b.dim = ? AND b.at IN ("+marks(int(days))+")", int64(by.dim))
			for at := from; at < to; at += dayUS {
				s.args = append(s.args, at)
			}
		} else {
			s.rollups(q.first() != "")
			s.add(" WHERE b.dim = ? AND b.at >= ? AND b.at < ?", int64(by.dim), from, to)
		}
	}
	for i, n := range by.builds {
		want := ""
		switch {
		case n == "project":
			want = q.Project
		case n == "machine":
			want = q.Machine
		}
		if want != "" {
			s.add(" AND b."+names[i]+" = ?", Clean(want))
		}
	}
	return names
}

// GroupTotals answers a GroupQuery from the store alone.
func GroupTotals(ctx context.Context, q Queryer, query GroupQuery) (Groups, error) {
	if err := query.check(); err != nil {
		return Groups{}, err
	}
	if query.By == ByStage {
		return stageGroups(ctx, q, query)
	}
	exact := query.exact()
	from, to := Micros(query.From), Micros(query.To)
	having := ""
	if !exact {
		from, to = from-from%dayUS, to+(dayUS-to%dayUS)%dayUS
		having = anyRollup
	}
	s := statement{dialect: q.Dialect()}
	names := query.selectGroups(&s, exact, from, to)
	s.add(fmt.Sprintf(" GROUP BY %s%s ORDER BY %d DESC, %s LIMIT ?", columns("b.", names...), having, len(names)+sumColumns[query.Sort], columns("b.", names...)), query.Limit+1)
	out := Groups{From: Time(from), To: Time(to)}
	err := s.run(ctx, q, func(scan func(dest ...any) error) error {
		if len(out.Groups) == query.Limit {
			out.More = true
			return nil
		}
		var r Rollup
		values := make([]string, len(names))
		dest := make([]any, 0, len(names)+13)
		for i := range values {
			dest = append(dest, &values[i])
		}
		if err := scan(append(dest, r.dest()...)...); err != nil {
			return err
		}
		g := Group{Totals: r.totals()}
		groupings[query.By].fill(&g, values)
		out.Groups = append(out.Groups, g)
		return nil
	})
	return out, err
}

// BucketTotals answers a BucketQuery: every bucket of the range, empty ones too.
func BucketTotals(ctx context.Context, q Queryer, query BucketQuery) ([]Bucket, error) {
	bucket := query.Bucket.Microseconds()
	fields := 0
	for _, f := range []string{query.Project, query.Machine, query.Runner} {
		if f != "" {
			fields++
		}
	}
	unit := hourUS
	if bucket%dayUS == 0 {
		unit = dayUS
	}
	from, to := Micros(query.From), Micros(query.To)
	from -= from % unit
	switch {
	case bucket < hourUS || bucket > 30*dayUS || bucket%hourUS != 0:
		return nil, fmt.Errorf("buckets of %s: want whole hours, 1h to 720h: %w", query.Bucket, cimeter.ErrInvalid)
	case from < 0 || !query.From.Before(query.To) || (to-from)/bucket >= MaxGroups:
		return nil, fmt.Errorf("buckets of %s from %s to %s: want a range of at most %d buckets: %w",
			query.Bucket, query.From.Format(time.RFC3339), query.To.Format(time.RFC3339), MaxGroups, cimeter.ErrInvalid)
	case fields > 1 || query.Name != "" && query.Project == "":
		return nil, fmt.Errorf("buckets: want at most one of project (with or without name), machine and runner: %w", cimeter.ErrInvalid)
	case fields == 1 && unit == hourUS && to-from > exactRange.Microseconds()+hourUS:
		return nil, fmt.Errorf("buckets of %s over %s: want buckets of whole days over more than two days: %w", query.Bucket, query.To.Sub(query.From), cimeter.ErrInvalid)
	}
	sums := make([]Rollup, (to-from+bucket-1)/bucket)
	for i := range sums {
		sums[i].MemPeak = -1
	}
	to = from + int64(len(sums))*bucket
	s := statement{dialect: q.Dialect()}
	if fields == 1 && unit == hourUS {
		column, value, dim := "project", query.Project, DimProject
		switch {
		case query.Machine != "":
			column, value, dim = "machine", query.Machine, DimMachine
		case query.Runner != "":
			column, value, dim = "runner", query.Runner, DimRunner
		}
		s.add("SELECT b.at / ?, "+buildSums(dim)+" FROM ", hourUS)
		if query.Name != "" {
			s.builds("builds_job")
			s.add(" WHERE b.project = ? AND b.name = ?", Clean(value), Clean(query.Name))
		} else {
			s.builds("builds_" + column)
			s.add(" WHERE b."+column+" = ?", Clean(value))
		}
		s.add(" AND b.at >= ? AND b.at < ? GROUP BY 1", from, to)
	} else {
		dim, names := DimAll, []string{"", ""}
		switch {
		case query.Name != "":
			dim, names = DimJob, []string{query.Project, query.Name}
		case query.Project != "":
			dim, names[0] = DimProject, query.Project
		case query.Machine != "":
			dim, names[0] = DimMachine, query.Machine
		case query.Runner != "":
			dim, names[0] = DimRunner, query.Runner
		}
		s.add("SELECT b.at / ?, "+rollupSums+" FROM ", hourUS)
		s.rollups(dim != DimAll)
		s.add(" WHERE b.dim = ? AND b.a = ?", int64(dim), Clean(names[0]))
		if dim != DimRunner {
			s.add(" AND b.b = ?", Clean(names[1]))
		}
		s.add(" AND b.at >= ? AND b.at < ? GROUP BY 1"+anyRollup, from, to)
	}
	err := s.run(ctx, q, func(scan func(dest ...any) error) error {
		var hour int64
		var r Rollup
		if err := scan(append([]any{&hour}, r.dest()...)...); err != nil {
			return err
		}
		sums[(hour*hourUS-from)/bucket].merge(&r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := make([]Bucket, len(sums))
	for i := range sums {
		out[i] = Bucket{Start: Time(from + int64(i)*bucket), Totals: sums[i].totals()}
	}
	return out, nil
}

// ListNames returns at most limit values of a kind that hold part, sorted:
// project, job, ref, runner, machine or stage.
func ListNames(ctx context.Context, q Queryer, kind, part string, limit int) ([]string, error) {
	if !slices.Contains([]string{"project", "job", "ref", "runner", "machine", "stage"}, kind) || limit < 1 || limit > MaxGroups {
		return nil, fmt.Errorf("%d names of %.20q: want 1 to %d of project, job, ref, runner, machine or stage: %w", limit, kind, MaxGroups, cimeter.ErrInvalid)
	}
	s := statement{dialect: q.Dialect()}
	s.add("SELECT DISTINCT value FROM names WHERE kind = ? AND value <> '' AND value "+q.Dialect().like()+` ? ESCAPE '\' ORDER BY value LIMIT ?`, kind, contains(Clean(part)), limit)
	var values []any
	err := s.run(ctx, q, collect(&values))
	out := make([]string, len(values))
	for i, v := range values {
		out[i], _ = v.(string)
	}
	return out, err
}
