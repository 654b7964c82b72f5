package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	Source string // file and line, or the flag: cimeter.yaml:3, --listen
	Line   int    // line in the file, from 1; 0 when it is not from the file
	Path   string // agent.interval; "" for the file as a whole
	Value  string // as it was given; "" when there is none to show
	Want   string // what would be accepted
}

// String is one line: cimeter.yaml:3: agent.interval: 0s: want 100ms to 5m.
func (p Problem) String() string {
	var parts []string
	for _, s := range []string{p.Source, p.Path, p.Value} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(append(parts, p.Want), ": ")
}

// Problems are all things that are wrong, in the order of the file.
type Problems []Problem

// Error lists the problems, a line each.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Path, b.Path))
	})
	return ps
}

// shown quotes a value for a problem and cuts a long one.
func shown(v string) string {
	const most = 120
	if len(v) > most {
		v = strings.ToValidUTF8(v[:most], "") + "..."
	}
	if v == "" || strings.ContainsAny(v, " :\"'\n\t\r\\") {
		return fmt.Sprintf("%q", v)
	}
	return v
}

// nearest returns the name that is most like s, or "" when none is near.
func nearest(s string, names []string) string {
	best, least := "", 3
	for _, n := range names {
		if d := distance(s, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := min(row[j]+1, row[j+1]+1, diagonal+1)
			if a[i] == b[j] {
				next = min(next, diagonal)
			}
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
