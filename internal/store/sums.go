package store

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
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
	asked   int64                    // counts questions, to tell which parts were asked for last
	names   map[[3]string]*[3]string // of all groups, each once
}

// maxSums bounds the sums in a cache: about 50 MB. What was not asked for the
// longest time leaves a full one.
const maxSums = 400_000

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
	asked  int64
}

// groupSum is the sums of a group, whose names are mostly at one place for all
// parts: a pointer is compared sooner than three names.
type groupSum struct {
	names *[3]string
	sums
}

// sums are those of a Rollup, in the order of its dest.
type sums [13]int64

// The places in sums of what is not added up: the largest is kept.
const (
	sumMemPeak = 11
	sumLastAt  = 12
)

// The places of sums that are looked at.
const (
	sumWall = 4
	sumCPU  = 5
)

func (s *sums) merge(of *sums) {
	for i := range sumMemPeak {
		s[i] += of[i]
	}
	s[sumMemPeak], s[sumLastAt] = max(s[sumMemPeak], of[sumMemPeak]), max(s[sumLastAt], of[sumLastAt])
}

func (s *sums) dest() []any {
	dest := make([]any, len(s))
	for i := range s {
		dest[i] = &s[i]
	}
	return dest
}

func (s *sums) totals() Totals {
	r := Rollup{}
	for i, to := range r.dest() {
		*to.(*int64) = s[i]
	}
	return r.totals()
}

// sumsOf are the sums of r.
func sumsOf(r *Rollup) (s sums) {
	for i, from := range r.dest() {
		s[i] = *from.(*int64)
	}
	return s
}

const weekUS = 7 * dayUS

// weekStart is the start of the week (Monday, UTC) of at.
func weekStart(at int64) int64 { return at - (at-4*dayUS)%weekUS }

func (c *sumCache) get(k partKey, said []Rollup) []groupSum {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.parts[k]; p != nil && slices.Equal(p.said, said) {
		c.asked++
		p.asked = c.asked
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
	delete(c.parts, k)
	if c.parts == nil || len(c.names) > maxSums {
		c.parts, c.entries, c.names = map[partKey]*part{}, 0, map[[3]string]*[3]string{}
	}
	for len(c.parts) > 0 && c.entries+len(groups) > maxSums {
		var last partKey
		asked := int64(math.MaxInt64)
		for k, p := range c.parts {
			if p.asked < asked {
				last, asked = k, p.asked
			}
		}
		c.entries -= len(c.parts[last].groups)
		delete(c.parts, last)
	}
	for i := range groups {
		g := &groups[i]
		if known := c.names[*g.names]; known != nil {
			g.names = known
		} else {
			c.names[*g.names] = g.names
		}
	}
	c.asked++
	c.parts[k] = &part{said: said, groups: groups, asked: c.asked}
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
	all := map[*[3]string]*sums{}
	merge := func(groups []groupSum) {
		for i := range groups {
			g := &groups[i]
			s := all[g.names]
			if s == nil {
				s = &sums{sumMemPeak: -1}
				all[g.names] = s
			}
			s.merge(&g.sums)
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
	return query.answer(all, from, to), nil
}

// Warm adds up what the pages of the last day, week, month and quarter ask for, so
// that it is in memory when it is asked for: a server calls it when it starts, in
// the background, and now and then.
func (r Reader) Warm(ctx context.Context, now time.Time) error {
	for _, by := range []By{ByProject, ByMachine, ByRunner, ByJob} {
		for _, days := range []int{1, 7, 30, 90} {
			if _, err := r.Groups(ctx, GroupQuery{By: by, From: now.AddDate(0, 0, -days), To: now, Limit: 1}); err != nil {
				return err
			}
		}
	}
	return nil
}

// answer sorts and cuts the groups.
func (q *GroupQuery) answer(parts map[*[3]string]*sums, from, to int64) Groups {
	type ranked struct {
		*sums
		names *[3]string
		value int64
	}
	all := make([]ranked, 0, len(parts))
	known := make(map[[3]string]int, len(parts)) // where in all
	for names, p := range parts {
		if at, ok := known[*names]; ok {
			all[at].merge(p)
			continue
		}
		known[*names] = len(all)
		all = append(all, ranked{p, names, 0})
	}
	all = slices.DeleteFunc(all, func(r ranked) bool { return r.sums[0] <= 0 && r.sums[sumWall] <= 0 && r.sums[sumCPU] <= 0 }) // see anyRollup
	for i := range all {
		all[i].value = all[i].sums[sumColumns[q.Sort]-1]
	}
	slices.SortFunc(all, func(x, y ranked) int {
		if c := cmp.Compare(y.value, x.value); c != 0 {
			return c
		}
		return cmp.Or(strings.Compare(x.names[0], y.names[0]), strings.Compare(x.names[1], y.names[1]), strings.Compare(x.names[2], y.names[2]))
	})
	out := Groups{From: Time(from), To: Time(to), More: len(all) > q.Limit}
	by := groupings[q.By]
	for _, r := range all[:min(len(all), q.Limit)] {
		g := Group{Totals: r.totals()}
		by.fill(&g, r.names[:])
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
