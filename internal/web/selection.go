package web

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/filter"
)

// ranges are the times that lists offer, with how long each is.
var ranges = []struct {
	name, words string
	length      time.Duration // 0: all
}{
	{"1h", "the last hour", time.Hour}, {"24h", "the last 24 hours", 24 * time.Hour}, {"7d", "the last 7 days", 7 * 24 * time.Hour},
	{"30d", "the last 30 days", 30 * 24 * time.Hour}, {"90d", "the last 90 days", 90 * 24 * time.Hour}, {"all", "all that is kept", 0},
}

// parameters are the query parameters that stand for terms of a filter: names
// in links are given so, that they need no quotes.
var parameters = []filter.Field{filter.Project, filter.Ref, filter.Job, filter.Stage, filter.Runner, filter.Machine, filter.Result, filter.Verdict, filter.CI, filter.Pipeline}

// selection is the filter of a list's URL.
type selection struct {
	Filter filter.Filter // with absolute times
	Q      string
	Range  string // of ranges, or "" with From and To, or with a time in Q
	From   string
	To     string
	terms  filter.Filter // of Q
	exact  filter.Filter // of parameters
	values url.Values
	err    error // why Q, or a parameter, is not understood
}

// selectionOf reads the filter of a URL; byDefault is the range without one.
func selectionOf(r *http.Request, now time.Time, byDefault string) selection {
	s := selection{values: r.URL.Query()}
	s.Q = strings.TrimSpace(s.values.Get("q"))
	s.terms, s.err = filter.Parse(s.Q)
	for _, key := range parameters {
		for _, v := range s.values[string(key)] {
			if v != "" && len(v) <= filter.MaxBytes && len(s.exact)+len(s.terms) < filter.MaxTerms-2 {
				s.exact = append(s.exact, filter.Is(key, v))
			}
		}
	}
	s.Filter = append(s.terms.Resolve(now), s.exact...)
	s.Range, s.From, s.To = s.values.Get("t"), s.values.Get("from"), s.values.Get("to")
	bad := func(key, want string) {
		if s.err == nil {
			s.err = fmt.Errorf("%s: want %s: %w", key, want, cimeter.ErrInvalid)
		}
	}
	timed := slices.ContainsFunc(s.terms, func(t filter.Term) bool { return t.Field == filter.Since || t.Field == filter.Before })
	switch {
	case s.From != "" || s.To != "":
		s.Range = ""
		for _, b := range []struct {
			key, value string
			field      filter.Field
		}{{"from", s.From, filter.Since}, {"to", s.To, filter.Before}} {
			if b.value == "" {
				continue
			}
			t, ok := parseTime(b.value)
			if !ok {
				bad(b.key, "a date such as 2026-11-30 or a time such as 2026-11-30T14:00")
				continue
			}
			s.Filter = append(s.Filter, filter.Term{Field: b.field, Op: filter.Eq, At: t})
		}
		if from, to := s.span(now); s.err == nil && !from.Before(to) {
			bad("from", "a time before to")
		}
	case s.Range == "" && timed:
	default:
		if s.Range == "" {
			s.Range = byDefault
		}
		found := false
		for _, rg := range ranges {
			if rg.name == s.Range {
				found = true
				if rg.length > 0 {
					s.Filter = append(s.Filter, filter.Term{Field: filter.Since, Op: filter.Eq, At: now.Add(-rg.length).UTC()})
				}
			}
		}
		if !found {
			bad("t", "1h, 24h, 7d, 30d, 90d or all")
		}
	}
	return s
}

// parseTime reads a date or a time of UTC.
func parseTime(s string) (time.Time, bool) {
	for _, form := range []string{"2006-01-02", "2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339} {
		if t, err := time.Parse(form, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// span is the time that the selection covers; from is zero for all.
func (s *selection) span(now time.Time) (from, to time.Time) {
	to = now
	for _, t := range s.Filter {
		switch t.Field {
		case filter.Since:
			from = t.At
		case filter.Before:
			to = t.At
		}
	}
	return from, to
}

// url is the list's URL with some parameters changed ("" takes one away); the
// cursor is always left behind.
func (s *selection) url(path string, pairs ...string) string {
	v := url.Values{}
	for key, x := range s.values {
		if key != "cursor" && len(x) > 0 && x[0] != "" {
			v[key] = x
		}
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if v.Del(pairs[i]); pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

// keep are the parameters, as hidden inputs, that a form leaves as they are: all but
// those that it has itself, and the place in the list.
func (s *selection) keep(but ...string) []hidden {
	var hs []hidden
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		if key == "cursor" || key == "page" || slices.Contains(but, key) {
			continue
		}
		for _, v := range s.values[key] {
			if v != "" {
				hs = append(hs, hidden{key, v})
			}
		}
	}
	return hs
}

// hidden is an input that is not shown.
type hidden struct{ Name, Value string }

// spanForm chooses a time by two inputs.
type spanForm struct {
	Path     string
	Keep     []hidden
	From, To string
}

func (s *selection) spanForm(path string, now time.Time) *spanForm {
	f := &spanForm{Path: path, Keep: s.keep("t", "from", "to"), From: display.Fit(s.From, 40, "…"), To: display.Fit(s.To, 40, "…")}
	if s.err == nil {
		from, to := s.span(now)
		f.From, f.To = minute(from), minute(to)
	}
	return f
}

// export is where the API gives all builds of the filter, in the order of the list; it
// takes no other parameters than its own.
func (s *selection) export(format string, q Query) string {
	terms := s.terms
	pairs := []string{"format", format}
	given := map[string]bool{}
	for _, t := range s.exact {
		key := string(t.Field)
		if t.Field == filter.Job {
			key = "name"
		}
		if given[key] {
			terms = append(slices.Clone(terms), t)
			continue
		}
		given[key] = true
		pairs = append(pairs, key, t.Text)
	}
	for _, t := range s.Filter[len(s.terms)+len(s.exact):] { // of t, from and to
		pairs = append(pairs, string(t.Field), t.At.UTC().Format(time.RFC3339))
	}
	pairs = append(pairs, "q", terms.String())
	if q.Sort != SortEnded {
		pairs = append(pairs, "sort", string(q.Sort))
	}
	if q.Ascending {
		pairs = append(pairs, "order", "asc")
	}
	return href("/api/v1/builds", pairs...)
}

// chip is a term of the filter with the link that drops it.
type chip struct{ Text, Remove string }

func (s *selection) chips(path string) []chip {
	var cs []chip
	for _, t := range s.exact {
		cs = append(cs, chip{Text: string(t.Field) + ": " + name(t.Text), Remove: s.url(path, string(t.Field), "")})
	}
	for i, t := range s.terms {
		cs = append(cs, chip{Text: name(t.String()), Remove: s.url(path, "q", slices.Delete(slices.Clone(s.terms), i, i+1).String())})
	}
	return cs
}

// wrong is a filter that is not understood: its text with the bad part apart,
// and what was wanted.
type wrong struct{ Before, Bad, After, Want string }

func (s *selection) wrong() wrong {
	var e *filter.Error
	if !errors.As(s.err, &e) {
		return wrong{Want: display.Fit(strings.TrimSuffix(s.err.Error(), ": "+cimeter.ErrInvalid.Error()), 300, "…")}
	}
	start, end := min(e.Start, len(s.Q)), min(e.End, len(s.Q))
	return wrong{name(s.Q[:start]), name(s.Q[start:end]), name(s.Q[end:]), display.Fit("want "+e.Want, 300, "…")}
}

// choice is one of several links of which one is taken.
type choice struct {
	link
	Current bool
}

func (s *selection) rangeChoices(path string) []choice {
	var cs []choice
	for _, rg := range ranges {
		cs = append(cs, choice{link{rg.name, s.url(path, "t", rg.name, "from", "", "to", ""), rg.words}, rg.name == s.Range})
	}
	return cs
}

// pagesOf are links to the pages of n rows, few of them, and which rows the asked
// one has; one that there is not is the nearest.
func pagesOf(n int, asked string, size int, to func(page string) string) (first, last int, links []choice) {
	pages := max(1, (n+size-1)/size)
	at, err := strconv.Atoi(asked)
	if err != nil || at < 1 {
		at = 1
	}
	at = min(at, pages)
	first, last = (at-1)*size, min(n, at*size)
	if pages == 1 {
		return first, last, nil
	}
	for i := 1; i <= pages; i++ {
		if i != 1 && i != pages && (i < at-2 || i > at+2) {
			continue
		}
		number := strconv.Itoa(i)
		links = append(links, choice{link{number, to(number), fmt.Sprintf("rows %d to %d", (i-1)*size+1, min(n, i*size))}, i == at})
	}
	return first, last, links
}
