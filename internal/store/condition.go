package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
)

// condition is one term as SQL over the alias b of builds.
type condition struct {
	sql   string
	args  []any
	never bool // nothing can meet it
	// paths are the ways into the table that together hold every build that
	// meets the term; none: only a walk finds them.
	paths []path
}

// path is a way into builds: an index and what it is entered with.
type path struct {
	index string
	sql   string
	args  []any
	byAt  bool // builds of the path come in the order of at, and its range narrows it
	whole bool // the path is the whole condition: nothing is left to check
}

// maxValues bounds the names that a text term is replaced by; a term that more
// names hold is so common that a walk finds builds soon.
const maxValues = 200

// compiled is a filter ready to be asked.
type compiled struct {
	conditions []condition
	from, to   int64 // of at; to is exclusive
	never      bool
}

const (
	minAt = int64(0)
	maxAt = int64(1) << 62
)

func (c *compiled) ranged() bool { return c.from > minAt || c.to < maxAt }

var textColumns = map[filter.Field]struct {
	column, index string
	kind          string // in names, of those that have them
}{
	filter.Key:      {"b.key", "", ""},
	filter.Project:  {"b.project", "builds_project", "project"},
	filter.Ref:      {"b.ref", "builds_ref", "ref"},
	filter.Job:      {"b.name", "builds_name", "job"},
	filter.Machine:  {"b.machine", "builds_machine", "machine"},
	filter.CI:       {"b.ci", "builds_ci", ""},
	filter.Result:   {"b.result", "builds_result", ""},
	filter.Event:    {"b.event", "", ""},
	filter.Pipeline: {"b.pipeline", "builds_pipeline", ""},
}

var numberColumns = map[filter.Field]struct{ column, index string }{
	filter.CPU: {"b.cpu_us", "builds_cpu_us"}, filter.Wall: {"b.wall_us", "builds_wall_us"}, filter.Queue: {"b.queue_us", "builds_queue_us"},
	filter.Memory: {"b.mem_peak", "builds_mem_peak"}, filter.IO: {"b.io_bytes", "builds_io_bytes"}, filter.Net: {"b.net_bytes", "builds_net_bytes"},
}

// compile turns a filter into conditions. Names that a term holds only a part
// of are looked up here.
func compile(ctx context.Context, q Queryer, f filter.Filter) (*compiled, error) {
	if len(f) > filter.MaxTerms {
		return nil, fmt.Errorf("filter of %d terms: want at most %d: %w", len(f), filter.MaxTerms, cimeter.ErrInvalid)
	}
	c := &compiled{from: minAt, to: maxAt}
	for _, t := range f {
		if t.Field == filter.Since || t.Field == filter.Before {
			if t.At.IsZero() {
				return nil, fmt.Errorf("filter %s: want a time that is resolved: %w", t, cimeter.ErrInvalid)
			}
			c.narrow(t)
			continue
		}
		cond, err := compileTerm(ctx, q, t)
		if err != nil {
			return nil, err
		}
		if t.Not {
			if cond.never {
				continue // excludes nothing
			}
			cond = condition{sql: "NOT (" + cond.sql + ")", args: cond.args}
		}
		c.never = c.never || cond.never
		c.conditions = append(c.conditions, cond)
	}
	c.joinJob(f)
	c.never = c.never || c.from >= c.to
	return c, nil
}

func (c *compiled) narrow(t filter.Term) {
	at := Micros(t.At)
	if (t.Field == filter.Since) != t.Not {
		c.from = max(c.from, at)
	} else {
		c.to = min(c.to, at)
	}
}

// joinJob gives the conditions on project and job the index that holds both.
func (c *compiled) joinJob(f filter.Filter) {
	var project, job *filter.Term
	for i, t := range f {
		if t.Not || t.Prefix {
			continue
		}
		switch t.Field {
		case filter.Project:
			project = &f[i]
		case filter.Job:
			job = &f[i]
		}
	}
	if project == nil || job == nil {
		return
	}
	c.conditions = append(c.conditions, condition{
		sql: "b.project = ? AND b.name = ?", args: []any{Clean(project.Text), Clean(job.Text)},
		paths: []path{{index: "builds_job", sql: "b.project = ? AND b.name = ?", args: []any{Clean(project.Text), Clean(job.Text)}, byAt: true, whole: true}},
	})
}

func compileTerm(ctx context.Context, q Queryer, t filter.Term) (condition, error) {
	if col, ok := textColumns[t.Field]; ok {
		if t.Prefix {
			return prefixed(ctx, q, col.column, col.index, col.kind, Clean(t.Text))
		}
		value := Clean(t.Text)
		if t.Field == filter.Key {
			value = scrub(t.Text)
		}
		return equal(col.column, col.index, value), nil
	}
	if col, ok := numberColumns[t.Field]; ok {
		return number(t, col.column, col.index)
	}
	switch t.Field {
	case filter.Text:
		return anywhere(ctx, q, Clean(t.Text))
	case filter.Runner:
		return targets(ctx, q, "runner", "b.runner", "builds_runner", Clean(t.Text))
	case filter.Stage:
		return targets(ctx, q, "stage", "b.stages", "builds_stages", Clean(t.Text))
	case filter.Verdict:
		return among("b.verdicts", "builds_verdicts", Clean(t.Text)), nil
	case filter.Tag:
		return among("b.tags", "builds_tags", Clean(t.Text)), nil
	case filter.Metered:
		switch strings.ToLower(t.Text) {
		case "yes", "true", "1":
			return condition{sql: "b.metered = 1"}, nil
		case "no", "false", "0":
			return condition{sql: "b.metered = 0", paths: []path{{index: "builds_unmetered", sql: "b.metered = 0", byAt: true, whole: true}}}, nil
		}
		return condition{}, fmt.Errorf("filter %s: want yes or no: %w", t, cimeter.ErrInvalid)
	}
	return condition{}, fmt.Errorf("filter %s: want a known field: %w", t, cimeter.ErrUnsupported)
}

// among is the condition that a word is among those of a column, joined by
// commas.
func among(column, index, word string) condition {
	return condition{sql: column + " <> '' AND " + column + ` LIKE ? ESCAPE '\'`, args: []any{"%," + likeEscaper.Replace(word) + ",%"},
		paths: []path{{index: index, sql: column + " <> ''", byAt: true}}}
}

// targets is the condition that a column is one of the targets of a name.
func targets(ctx context.Context, q Queryer, kind, column, index, value string) (condition, error) {
	var found []any
	s := statement{dialect: q.Dialect()}
	s.add("SELECT DISTINCT target FROM names WHERE kind = ? AND value = ? LIMIT ?", kind, value, maxValues+1)
	if err := s.run(ctx, q, collect(&found)); err != nil {
		return condition{}, err
	}
	if len(found) > maxValues {
		return condition{sql: column + " IN (SELECT target FROM names WHERE kind = ? AND value = ?)", args: []any{kind, value}}, nil
	}
	return oneOf(column, index, found), nil
}

func equal(column, index, value string) condition {
	c := condition{sql: column + " = ?", args: []any{value}}
	switch {
	case column == "b.pipeline" && value == "":
	case index != "":
		c.paths = []path{{index: index, sql: indexed(column), args: []any{value}, byAt: true, whole: true}}
	case column == "b.key":
		c.paths = []path{{sql: "b.key = ?", args: []any{value}, whole: true}}
	}
	return c
}

// indexed is the equality with what a partial index needs to hear.
func indexed(column string) string {
	if column == "b.pipeline" {
		return "b.pipeline = ? AND b.pipeline <> ''"
	}
	return column + " = ?"
}

func oneOf(column, index string, values []any) condition {
	if len(values) == 0 {
		return condition{never: true, sql: "1 = 0"}
	}
	c := condition{sql: column + " IN (" + marks(len(values)) + ")", args: values}
	for _, v := range values {
		c.paths = append(c.paths, path{index: index, sql: column + " = ?", args: []any{v}, byAt: true, whole: true})
	}
	return c
}

func prefixed(ctx context.Context, q Queryer, column, index, kind, value string) (condition, error) {
	like := condition{sql: column + " " + q.Dialect().like() + ` ? ESCAPE '\'`, args: []any{startsWith(value)}}
	if kind == "" || value == "" {
		return like, nil
	}
	values, err := named(ctx, q, kind, startsWith(value))
	if err != nil || len(values) > maxValues {
		return like, err
	}
	return oneOf(column, index, values), nil
}

// named returns at most maxValues+1 values of a kind that meet a pattern.
func named(ctx context.Context, q Queryer, kind, pattern string) (values []any, err error) {
	s := statement{dialect: q.Dialect()}
	s.add("SELECT value FROM names WHERE kind = ? AND value "+q.Dialect().like()+` ? ESCAPE '\' LIMIT ?`, kind, pattern, maxValues+1)
	return values, s.run(ctx, q, collect(&values))
}

func collect(values *[]any) func(scan func(dest ...any) error) error {
	return func(scan func(dest ...any) error) error {
		var v string
		if err := scan(&v); err != nil {
			return err
		}
		*values = append(*values, v)
		return nil
	}
}

// anywhere is the condition of a word: part of project, name or ref, the whole
// number, or the start of the key.
func anywhere(ctx context.Context, q Queryer, word string) (condition, error) {
	like := q.Dialect().like()
	c := condition{sql: "(b.number = ?", args: []any{word}, paths: []path{{index: "builds_number", sql: "b.number = ?", args: []any{word}, byAt: true}}}
	// A key is never longer than what may follow its start.
	c.sql += " OR b.key >= ? AND b.key < ?"
	c.args = append(c.args, word, word+"\U0010FFFF")
	c.paths = append(c.paths, path{sql: "b.key >= ? AND b.key < ?", args: []any{word, word + "\U0010FFFF"}})
	common := false
	for _, f := range []filter.Field{filter.Project, filter.Job, filter.Ref} {
		col := textColumns[f]
		values, err := named(ctx, q, col.kind, contains(word))
		switch {
		case err != nil:
			return c, err
		case len(values) > maxValues:
			common = true
			c.sql += " OR " + col.column + " " + like + ` ? ESCAPE '\'`
			c.args = append(c.args, contains(word))
		case len(values) > 0:
			c.sql += " OR " + col.column + " IN (" + marks(len(values)) + ")"
			c.args = append(c.args, values...)
			for _, v := range values {
				c.paths = append(c.paths, path{index: col.index, sql: col.column + " = ?", args: []any{v}, byAt: true})
			}
		}
	}
	c.sql += ")"
	if common {
		c.paths = nil
	}
	return c, nil
}

func number(t filter.Term, column, index string) (condition, error) {
	switch t.Op {
	case filter.Gt, filter.Ge, filter.Lt, filter.Le:
	default:
		return condition{}, fmt.Errorf("filter %s: want a comparison: %w", t, cimeter.ErrInvalid)
	}
	if t.Unit == filter.Thousandths {
		if t.Number < 0 || t.Number > 100_000 {
			return condition{}, fmt.Errorf("filter %s: want 0%% to 10,000%%: %w", t, cimeter.ErrInvalid)
		}
		// Shares above the walk's reach are found by time; peaks are below 2^52.
		return condition{sql: "b.mem_limit > 0 AND b.mem_peak >= 0 AND b.mem_peak / 1024 * 1000 " + string(t.Op) + " b.mem_limit / 1024 * ?", args: []any{t.Number}}, nil
	}
	sql := column + " >= 0 AND " + column + " " + string(t.Op) + " ?"
	if t.Op == filter.Gt || t.Op == filter.Ge {
		// One bound only: of two on one side SQLite enters an index by the first,
		// and goes through all builds that are not wanted.
		sql = column + " " + string(t.Op) + " ?"
		if t.Number < 0 {
			sql, t.Number = column+" >= ?", 0
		}
	}
	return condition{sql: sql, args: []any{t.Number}, paths: []path{{index: index, sql: sql, args: []any{t.Number}}}}, nil
}

// withTime returns the filter with the range of time as terms.
func withTime(f filter.Filter, from, to time.Time) filter.Filter {
	if !from.IsZero() {
		f = append(f[:len(f):len(f)], filter.Term{Field: filter.Since, Op: filter.Eq, At: from})
	}
	if !to.IsZero() {
		f = append(f[:len(f):len(f)], filter.Term{Field: filter.Before, Op: filter.Eq, At: to})
	}
	return f
}

// both joins conditions with AND behind what a statement has already.
func (c *compiled) where(s *statement, skip *condition) {
	for i := range c.conditions {
		if cond := &c.conditions[i]; cond != skip {
			s.add(" AND ("+cond.sql+")", cond.args...)
		}
	}
}

// within adds the range of time.
func (c *compiled) within(s *statement) {
	if c.from > minAt {
		s.add(" AND b.at >= ?", c.from)
	}
	if c.to < maxAt {
		s.add(" AND b.at < ?", c.to)
	}
}

func columns(prefix string, names ...string) string {
	return prefix + strings.Join(names, ", "+prefix)
}
