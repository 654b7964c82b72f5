package store

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
)

// Groups over all that there is would add up a row for each group and day, or
// each build of the last two days, each time that a page asks. What is past
// hardly changes, so that the sums of whole hours, days and weeks are kept in
// memory, each with what the store's totals said of that time when it was summed
// up: when they say something else now, it is summed up again.

// sumCache keeps sums by group. Many goroutines may use it.
type sumCache struct {
	mu      sync.Mutex
	parts   map[partKey]*part
	entries int
	names   map[[3]string]*[3]string // of all groups, each once
}

// maxSums bounds the sums in a cache: about 50 MB. A full cache is dropped.
const maxSums = 200_000

type partKey struct {
	by      By
	machine string
	start   int64
	length  int64
}

// part is the groups of a span of time.
type part struct {
	said   []Rollup // what the totals said of it
	groups []groupSum
}

// groupSum is the sums of a group, whose names are mostly at one place for all
// parts: a pointer is compared sooner than three names.
type groupSum struct {
	names *[3]string
	Rollup
}

const weekUS = 7 * dayUS

// weekStart is the start of the week (Monday, UTC) of at.
func weekStart(at int64) int64 { return at - (at-4*dayUS)%weekUS }

func (c *sumCache) get(k partKey, said []Rollup) []groupSum {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.parts[k]; p != nil && slices.Equal(p.said, said) {
		return p.groups
	}
	return nil
}

func (c *sumCache) put(k partKey, said []Rollup, groups []groupSum) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.parts[k]; old != nil {
		c.entries -= len(old.groups)
	}
	if c.parts == nil || c.entries+len(groups) > maxSums {
		c.parts, c.entries, c.names = map[partKey]*part{}, 0, map[[3]string]*[3]string{}
	}
	for i := range groups {
		g := &groups[i]
		if known := c.names[*g.names]; known != nil {
			g.names = known
		} else {
			c.names[*g.names] = g.names
		}
	}
	c.parts[k] = &part{said: said, groups: groups}
	c.entries += len(groups)
}

// cacheable reports whether the groups of a question are kept in memory: others
// are few rows.
func (q *GroupQuery) cacheable() bool {
	switch q.By {
	case ByProject, ByMachine, ByRunner:
		return q.Project == "" && q.Name == "" && q.Machine == ""
	case ByJob:
		return q.Project == "" && q.Machine == ""
	case ByMachineJob:
		return q.Project == "" && q.Machine != ""
	}
	return false
}

// groups adds up whole parts of a range. query is valid and cacheable.
func (c *sumCache) groups(ctx context.Context, q Queryer, query GroupQuery) (Groups, error) {
	sums := map[*[3]string]*Rollup{}
	merge := func(groups []groupSum) {
		for i := range groups {
			g := &groups[i]
			s := sums[g.names]
			if s == nil {
				s = &Rollup{MemPeak: -1}
				sums[g.names] = s
			}
			s.merge(&g.Rollup)
		}
	}
	from, to := Micros(query.From), Micros(query.To)
	exact := query.exact()
	unit := dayUS
	if exact {
		unit = hourUS
	} else {
		from, to = from-from%dayUS, to+(dayUS-to%dayUS)%dayUS
	}
	first, last := from+(unit-from%unit)%unit, to-to%unit // whole units
	if first > last {
		first, last = to, to
	}
	for _, edge := range [][2]int64{{from, min(first, to)}, {max(last, first), to}} {
		if edge[0] < edge[1] {
			groups, err := sumGroups(ctx, q, &query, true, edge[0], edge[1])
			if err != nil {
				return Groups{}, err
			}
			merge(groups)
		}
	}
	said, err := totalsOf(ctx, q, &query, unit, first, last)
	if err != nil {
		return Groups{}, err
	}
	for at := first; at < last; {
		length := unit
		if !exact && at == weekStart(at) && at+weekUS <= last {
			length = weekUS
		}
		var now []Rollup
		for t := at; t < at+length; t += unit {
			if r, ok := said[t]; ok {
				now = append(now, r)
			}
		}
		k := partKey{query.By, query.Machine, at, length}
		at += length
		if len(now) == 0 {
			continue // no builds
		}
		groups := c.get(k, now)
		if groups == nil {
			if groups, err = sumGroups(ctx, q, &query, exact, k.start, k.start+length); err != nil {
				return Groups{}, err
			}
			c.put(k, now, groups)
		}
		merge(groups)
	}
	return query.answer(sums, from, to), nil
}

// answer sorts and cuts the groups.
func (q *GroupQuery) answer(parts map[*[3]string]*Rollup, from, to int64) Groups {
	sums := make(map[[3]string]*Rollup, len(parts))
	for names, p := range parts {
		if s := sums[*names]; s != nil {
			s.merge(p)
			continue
		}
		p.A, p.B, p.C = names[0], names[1], names[2]
		sums[*names] = p
	}
	type ranked struct {
		*Rollup
		value int64
	}
	all := make([]ranked, 0, len(sums))
	for _, s := range sums {
		if s.Builds > 0 {
			value, _ := s.dest()[sumColumns[q.Sort]-1].(*int64)
			all = append(all, ranked{s, *value})
		}
	}
	slices.SortFunc(all, func(x, y ranked) int {
		if c := cmp.Compare(y.value, x.value); c != 0 {
			return c
		}
		return cmp.Or(strings.Compare(x.A, y.A), strings.Compare(x.B, y.B), strings.Compare(x.C, y.C))
	})
	out := Groups{From: Time(from), To: Time(to), More: len(all) > q.Limit}
	by := groupings[q.By]
	for _, r := range all[:min(len(all), q.Limit)] {
		g := Group{Totals: r.totals()}
		by.fill(&g, []string{r.A, r.B, r.C})
		out.Groups = append(out.Groups, g)
	}
	return out
}

// totalsOf returns what the totals say of each unit of a range: of everything,
// or of the machine that is asked for.
func totalsOf(ctx context.Context, q Queryer, query *GroupQuery, unit, from, to int64) (map[int64]Rollup, error) {
	said := map[int64]Rollup{}
	if from >= to {
		return said, nil
	}
	s := statement{dialect: q.Dialect()}
	s.add("SELECT b.at, builds, failed, canceled, oom, wall_us, cpu_us, queue_us, queued, throttled_us, io_bytes, net_bytes, mem_peak, last_at FROM ")
	switch {
	case unit == hourUS:
		s.rollups(false)
		s.add(" WHERE b.dim = ?", int64(DimAll))
	case query.Machine != "":
		s.rollups(true)
		s.add(" WHERE b.dim = ? AND b.a = ? AND b.b = ''", int64(DimMachine), Clean(query.Machine))
	default:
		s.rollups(false)
		s.add(" WHERE b.dim = ?", int64(DimDay))
	}
	s.add(" AND b.at >= ? AND b.at < ?", from, to)
	err := s.run(ctx, q, func(scan func(dest ...any) error) error {
		var r Rollup
		err := scan(append([]any{&r.At}, r.dest()...)...)
		said[r.At] = r
		return err
	})
	return said, err
}

// sumGroups adds up the builds of a span by group, exactly from builds or else
// from the totals of its days.
func sumGroups(ctx context.Context, q Queryer, query *GroupQuery, exact bool, from, to int64) ([]groupSum, error) {
	s := statement{dialect: q.Dialect()}
	names := query.selectGroups(&s, exact, from, to)
	s.add(" GROUP BY " + columns("b.", names...))
	groups := []groupSum{}
	err := s.run(ctx, q, func(scan func(dest ...any) error) error {
		g := groupSum{names: new([3]string)}
		dest := make([]any, 0, len(names)+13)
		for i := range names {
			dest = append(dest, &g.names[i])
		}
		err := scan(append(dest, g.dest()...)...)
		groups = append(groups, g)
		return err
	})
	return groups, err
}
