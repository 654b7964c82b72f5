package store

import (
	"context"
	"regexp"
	"slices"
	"strings"
)

// way is how a scan enters the table.
type way struct {
	gather    bool       // take all of the paths, then sort; else walk in order
	paths     []path     // of the condition entered by; none: the range of time or all
	condition *condition // that the paths stand for, when they are all of it
}

// index is the index that a walk goes along.
func (w *way) index(column string) string {
	if len(w.paths) == 1 {
		return w.paths[0].index
	}
	return "builds_" + column
}

// cheap ends the search for a narrower way: sorting so few is quicker than
// another count.
const cheap = 500

// Indexes carry what lists sort by and check and what sums add up, so that most
// ways read no build itself: a build that is read costs as much as thirty of an
// index. The migrations of the back ends say the same.
var (
	carried = []string{"id", "at", "shard", "wall_us", "cpu_us", "queue_us", "mem_peak", "mem_limit", "io_bytes", "net_bytes", "result"}
	// carriers are the indexes that do, each with what it holds more.
	carriers = map[string][]string{
		"builds_at": {"throttled_us", "flags"}, "builds_project": {"throttled_us", "flags", "project"}, "builds_job": {"throttled_us", "flags", "project", "name"},
		"builds_name": {"throttled_us", "flags", "name"}, "builds_ref": {"throttled_us", "flags", "ref"}, "builds_machine": {"throttled_us", "flags", "machine"},
		"builds_runner": {"throttled_us", "flags", "runner"}, "builds_result": {"throttled_us", "flags"},
		"builds_cpu_us": nil, "builds_wall_us": nil, "builds_queue_us": nil, "builds_mem_peak": nil, "builds_io_bytes": nil, "builds_net_bytes": nil,
	}
)

// covers reports whether an index holds all columns that are read.
func covers(index string, read []string) bool {
	own, ok := carriers[index]
	for _, column := range read {
		ok = ok && (slices.Contains(carried, column) || slices.Contains(own, column))
	}
	return ok
}

// covered reports whether a way reads indexes alone.
func (w *way) covered(column string, read []string) bool {
	for _, p := range w.paths {
		if !covers(p.index, read) || len(w.paths) > 1 && !p.whole {
			return false
		}
	}
	return len(w.paths) > 0 || covers(w.index(column), read)
}

// choose picks the narrowest way that holds few enough builds to sort them,
// else a walk.
func (sc *scan) choose(ctx context.Context, q Queryer, c *compiled) (*way, error) {
	byTime := sc.sort == SortEnded
	walk := &way{}
	if byTime {
		// Along an index of one value that is in the order of time, with nothing
		// left to check, every build looked at is one wanted.
		if cond := c.only(); cond != nil {
			return &way{paths: cond.paths, condition: cond}, nil
		}
		if len(c.conditions) == 0 {
			return walk, nil
		}
	} else if len(c.conditions) == 0 && !c.ranged() {
		return walk, nil
	}
	// Of ways that read each build a quarter of what may be looked at is sorted
	// as quickly as it is walked through, and a walk past more of them fills a page.
	// Twice as many are sorted sooner where indexes are all that is read, but for
	// the walk.
	read := sc.read(c)
	most := sc.examine
	if !byTime && !walk.covered(sortColumns[sc.sort], read) {
		most *= 2
	}
	best, fewest := (*way)(nil), most+1
	consider := func(w *way) error {
		few := most
		if !w.covered("at", read) {
			few = max(1, sc.examine/4)
		}
		n, err := count(ctx, q, c, w, few)
		if err == nil && n <= few && n < fewest {
			best, fewest = w, n
		}
		return err
	}
	for i := len(c.conditions) - 1; i >= 0 && fewest > cheap; i-- { // the joined one is last
		cond := &c.conditions[i]
		if len(cond.paths) == 0 {
			continue
		}
		if err := consider(&way{gather: true, paths: cond.paths, condition: cond}); err != nil {
			return nil, err
		}
	}
	if !byTime && c.ranged() && fewest > cheap {
		if err := consider(&way{gather: true}); err != nil {
			return nil, err
		}
	}
	if best != nil {
		return best, nil
	}
	if byTime {
		if cond := c.narrowest(); cond != nil {
			return &way{paths: cond.paths, condition: cond}, nil
		}
	}
	return walk, nil
}

// narrow are the indexes of one value, the one whose values have the fewest builds
// first: a walk along it looks at the fewest builds that the other conditions refuse.
var narrow = []string{"builds_pipeline", "builds_job", "builds_project", "builds_ref", "builds_runner", "builds_machine", "builds_name", "builds_unmetered", "builds_stages", "builds_verdicts", "builds_tags"}

// narrowest returns the condition whose one path, in the order of time, is walked along
// where all hold many builds; nil: there is none. What is in no list, such as a result,
// is shared by most builds.
func (c *compiled) narrowest() (best *condition) {
	rank := func(cond *condition) int {
		if i := slices.Index(narrow, cond.paths[0].index); i >= 0 {
			return i
		}
		return len(narrow)
	}
	for i := range c.conditions {
		cond := &c.conditions[i]
		if len(cond.paths) == 1 && cond.paths[0].byAt && (best == nil || rank(cond) < rank(best)) {
			best = cond
		}
	}
	return best
}

// only returns the condition whose one path, in the order of time, is the whole
// filter; nil: there is none. The joined condition stands for its two parts.
func (c *compiled) only() *condition {
	n := len(c.conditions)
	if n == 0 {
		return nil
	}
	last := &c.conditions[n-1]
	if len(last.paths) != 1 || !last.paths[0].byAt || !last.paths[0].whole {
		return nil
	}
	if n == 1 || n == 3 && last.paths[0].index == "builds_job" {
		return last
	}
	return nil
}

// count tells how many builds a way holds, at most limit+1.
func count(ctx context.Context, q Queryer, c *compiled, w *way, limit int) (int, error) {
	total := 0
	one := func(write func(s *statement)) error {
		s := statement{dialect: q.Dialect()}
		s.add("SELECT count(*) FROM (SELECT 1 FROM ")
		write(&s)
		s.add(" LIMIT ?) counted", limit+1-total)
		return s.run(ctx, q, func(scan func(dest ...any) error) error {
			var n int
			err := scan(&n)
			total += n
			return err
		})
	}
	if len(w.paths) == 0 {
		return total, one(func(s *statement) {
			s.builds("builds_at")
			s.add(" WHERE 1 = 1")
			c.within(s)
		})
	}
	for _, p := range w.paths {
		if total > limit {
			break
		}
		err := one(func(s *statement) {
			s.builds(p.index)
			s.add(" WHERE "+p.sql, p.args...)
			if p.byAt {
				c.within(s)
			}
		})
		if err != nil {
			return 0, err
		}
	}
	return total, nil
}

// write is the statement of a scan; it asks for one row more than the limit.
func (sc *scan) write(s *statement, c *compiled, w *way, column string, after *position) {
	cols := "b." + column + ", " + sc.columns
	if w.gather {
		s.add("SELECT " + cols + " FROM ")
		sc.gather(s, c, w, column, after)
		s.add(" LIMIT ?", sc.limit+1)
		return
	}
	rest := 0
	for i := range c.conditions {
		if &c.conditions[i] != w.condition && !c.covered(i, w) {
			rest++
		}
	}
	if rest == 0 {
		sc.walk(s, cols, c, w, column, after, min(sc.limit+1, sc.examine), 0)
		return
	}
	s.add("SELECT " + cols + " FROM (")
	// Of thousands of builds no more is read than is asked.
	sc.walk(s, columns("b.", sc.read(c)...), c, w, column, after, sc.examine, 0)
	s.add(") b WHERE 1 = 1")
	c.where(s, w.condition)
	if s.dialect == Postgres {
		// SQLite keeps the order of the inner statement, and would sort again all
		// that it looks at; PostgreSQL knows that it is sorted.
		sc.order(s, column)
	}
	s.add(" LIMIT ?", sc.limit+1)
}

var namedColumn = regexp.MustCompile(`\bb\.(\w+)`)

// read is the columns that a scan reads.
func (sc *scan) read(c *compiled) []string {
	read := []string{"id", sortColumns[sc.sort]}
	for _, m := range namedColumn.FindAllStringSubmatch(sc.columns+c.text(), -1) {
		if !slices.Contains(read, m[1]) {
			read = append(read, m[1])
		}
	}
	return read
}

// text is the SQL of all conditions.
func (c *compiled) text() string {
	var b strings.Builder
	for i := range c.conditions {
		b.WriteByte(' ')
		b.WriteString(c.conditions[i].sql)
	}
	return b.String()
}

// covered reports whether condition i is a part of the joined one walked along.
func (c *compiled) covered(i int, w *way) bool {
	return w.condition == &c.conditions[len(c.conditions)-1] && len(w.paths) == 1 && w.paths[0].index == "builds_job" && len(c.conditions) == 3 && i < 2
}

// walk selects cols of builds along an index in the order of the list.
func (sc *scan) walk(s *statement, cols string, c *compiled, w *way, column string, after *position, limit, offset int) {
	leg := func(follow string, args ...any) {
		s.add("SELECT " + cols + " FROM ")
		s.builds(w.index(column))
		s.add(" WHERE 1 = 1")
		if len(w.paths) == 1 {
			s.add(" AND "+w.paths[0].sql, w.paths[0].args...)
		}
		c.within(s)
		s.add(follow, args...)
		sc.order(s, column)
	}
	switch {
	case after == nil:
		leg("")
	case s.dialect == Postgres:
		leg(sc.follow(column), after.value, after.id)
	default:
		// SQLite does not enter an index by a pair that ends in the id: builds that
		// share a value would be gone through from the first of them for each page.
		s.add("SELECT * FROM (")
		leg(" AND b."+column+" = ? AND b.id "+sc.sign()+" ?", after.value, after.id)
		s.add(" LIMIT ?) UNION ALL SELECT * FROM (", limit+offset)
		leg(" AND b."+column+" "+sc.sign()+" ?", after.value)
		s.add(" LIMIT ?)", limit+offset)
	}
	s.add(" LIMIT ? OFFSET ?", limit, offset)
}

// gather is what follows FROM when all of a way is taken and sorted.
func (sc *scan) gather(s *statement, c *compiled, w *way, column string, after *position) {
	if s.dialect == Postgres {
		sc.gatherApart(s, c, w)
		if after != nil {
			s.add(sc.follow(column), after.value, after.id)
		}
		sc.order(s, column)
		return
	}
	together := len(w.paths) > 1 && w.covered("at", sc.read(c)) // each is whole: no two hold the same build
	switch {
	case len(w.paths) == 0:
		s.builds("builds_at")
		s.add(" WHERE 1 = 1")
	case len(w.paths) == 1:
		s.builds(w.paths[0].index)
		s.add(" WHERE "+w.paths[0].sql, w.paths[0].args...)
	case together:
		read := columns("b.", sc.read(c)...)
		s.add("(")
		for i, p := range w.paths {
			if i > 0 {
				s.add(" UNION ALL ")
			}
			s.add("SELECT " + read + " FROM ")
			s.builds(p.index)
			s.add(" WHERE "+p.sql, p.args...)
			c.within(s)
		}
		s.add(") b WHERE 1 = 1")
	default:
		s.add("builds b WHERE b.id IN (")
		for i, p := range w.paths {
			if i > 0 {
				s.add(" UNION ")
			}
			s.add("SELECT b.id FROM ")
			s.builds(p.index)
			s.add(" WHERE "+p.sql, p.args...)
			if p.byAt {
				c.within(s)
			}
		}
		s.add(")")
	}
	c.within(s)
	skip := w.condition
	if joined := len(w.paths) > 1 && !together; joined || len(w.paths) > 0 && !w.paths[0].whole {
		skip = nil
	}
	c.where(s, skip)
	if after != nil {
		s.add(sc.follow(column), after.value, after.id)
	}
	sc.order(s, column)
}

// gatherApart gathers within a statement of its own, whose plan PostgreSQL does not
// make from the order and the limit of the list: it would walk along the order, past
// builds without number, to find the few. It joins the paths by itself.
func (sc *scan) gatherApart(s *statement, c *compiled, w *way) {
	s.add("(SELECT " + columns("b.", sc.read(c)...) + " FROM builds b WHERE 1 = 1")
	skip := w.condition
	if len(w.paths) == 1 && w.paths[0].whole {
		s.add(" AND "+w.paths[0].sql, w.paths[0].args...)
	} else {
		skip = nil
	}
	c.within(s)
	c.where(s, skip)
	s.add(" OFFSET 0) b WHERE 1 = 1")
}

// follow keeps what stands behind a position in the order of the list.
func (sc *scan) follow(column string) string {
	return " AND (b." + column + ", b.id) " + sc.sign() + " (?, ?)"
}

func (sc *scan) sign() string {
	if sc.asc {
		return ">"
	}
	return "<"
}

func (sc *scan) order(s *statement, column string) {
	way := " DESC"
	if sc.asc {
		way = " ASC"
	}
	s.add(" ORDER BY b." + column + way + ", b.id" + way)
}
