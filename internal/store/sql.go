package store

import (
	"context"
	"strconv"
	"strings"
)

// Dialect is what the SQL of the back ends differs in.
type Dialect uint8

// The dialects.
const (
	SQLite Dialect = iota
	Postgres
)

// Ref is a build in a back end.
type Ref struct {
	ID    int64
	At    int64
	Shard int16 // of back ends that have it
}

// Queryer is what a back end gives for reads. Its errors name the back end.
type Queryer interface {
	// Query runs one statement and calls row for each row of its answer.
	Query(ctx context.Context, sql string, args []any, row func(scan func(dest ...any) error) error) error
	// Load calls fn with the keys and stored forms of the builds that are still
	// there, in any order; trace is nil unless asked for.
	Load(ctx context.Context, refs []Ref, traces bool, fn func(i int, key string, record, trace []byte) error) error
	// Dialect tells how its SQL is written.
	Dialect() Dialect
}

// statement builds one statement. Text from outside enters it as a parameter
// only; what add gets is text of this package.
type statement struct {
	dialect Dialect
	text    strings.Builder
	args    []any
}

// add appends sql, in which each ? takes the next of args.
func (s *statement) add(sql string, args ...any) {
	s.args = append(s.args, args...)
	if s.dialect == SQLite {
		s.text.WriteString(sql)
		return
	}
	n := len(s.args) - len(args)
	for {
		before, after, found := strings.Cut(sql, "?")
		s.text.WriteString(before)
		if !found {
			return
		}
		n++
		s.text.WriteByte('$')
		s.text.WriteString(strconv.Itoa(n))
		sql = after
	}
}

// builds names the table with the index that is to be walked. SQLite is told,
// so that its statistics never turn a page into a scan; PostgreSQL decides.
func (s *statement) builds(index string) {
	s.text.WriteString("builds b")
	if s.dialect == SQLite && index != "" {
		s.text.WriteString(" INDEXED BY ")
		s.text.WriteString(index)
	}
}

// rollups names the table; one is that its first name is asked for.
func (s *statement) rollups(one bool) {
	s.text.WriteString("rollups b")
	if s.dialect == SQLite && one {
		s.text.WriteString(" INDEXED BY rollups_names")
	}
}

func (s *statement) run(ctx context.Context, q Queryer, row func(scan func(dest ...any) error) error) error {
	return q.Query(ctx, s.text.String(), s.args, row)
}

// like is the operator that compares without regard to case.
func (d Dialect) like() string {
	if d == Postgres {
		return "ILIKE"
	}
	return "LIKE"
}

var likeEscaper = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// contains is a LIKE pattern for values that hold s; escape is \.
func contains(s string) string { return "%" + likeEscaper.Replace(s) + "%" }

// startsWith is a LIKE pattern for values that begin with s.
func startsWith(s string) string { return likeEscaper.Replace(s) + "%" }

// marks is n parameters for an IN list.
func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?,", n), ",") }
