package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
)

// ranges are the times that lists offer, with how long each is.
var ranges = []struct {
	name  string
	words string
	days  float64
}{{"1h", "1 hour", 1. / 24}, {"24h", "24 hours", 1}, {"7d", "7 days", 7}, {"30d", "30 days", 30}, {"90d", "90 days", 90}, {"all", "all", 0}}

// parameters are the query parameters that stand for terms of a filter: names
// in links are given so, that they need no quotes.
var parameters = []string{"project", "ref", "sha", "job", "stage", "runner", "machine", "result", "verdict", "ci", "server"}

// selection is the filter of a list's URL.
type selection struct {
	Filter Filter
	Q      string
	Words  []Word
	Range  string // of ranges, or "" with From and To, or "" with since: in Q
	From   string
	To     string
	exact  [][2]string // parameter and value
	values url.Values
	err    error // why Q, or a parameter, is not understood
}

// selectionOf reads the filter of a URL; byDefault is the range without one.
func selectionOf(r *http.Request, now time.Time, byDefault string) selection {
	s := selection{values: r.URL.Query()}
	s.Q = strings.TrimSpace(s.values.Get("q"))
	s.Filter, s.Words, s.err = ParseFilter(s.Q, now)
	for _, key := range parameters {
		for _, v := range s.values[key] {
			if len(s.Filter.Terms) < maxTerms && len(v) <= maxFilter {
				s.Filter = s.Filter.With(textFields[key], v)
				s.exact = append(s.exact, [2]string{key, v})
			}
		}
	}
	s.Range, s.From, s.To = s.values.Get("t"), s.values.Get("from"), s.values.Get("to")
	bad := func(key, want string) {
		if s.err == nil {
			s.err = fmt.Errorf("%s: %s: %w", key, want, cimeter.ErrInvalid)
		}
	}
	if s.From != "" || s.To != "" {
		s.Range = ""
		for _, b := range []struct {
			key, value string
			to         *time.Time
		}{{"from", s.From, &s.Filter.From}, {"to", s.To, &s.Filter.To}} {
			if b.value == "" {
				continue
			}
			t, ok := parseTime(b.value, now)
			if !ok {
				bad(b.key, "want a date such as 2026-11-30 or a time such as 2026-11-30T14:00")
				continue
			}
			*b.to = t
		}
		return s
	}
	if s.Range == "" && s.Filter.From.IsZero() && s.Filter.To.IsZero() {
		s.Range = byDefault
	}
	for _, rg := range ranges {
		if rg.name == s.Range && rg.days > 0 && s.Filter.From.IsZero() {
			s.Filter.From = now.Add(-time.Duration(rg.days * 24 * float64(time.Hour))).Truncate(time.Second)
		}
	}
	if s.Range != "" && !slices.ContainsFunc(ranges, func(r struct {
		name, words string
		days        float64
	}) bool {
		return r.name == s.Range
	}) {
		bad("t", "want 1h, 24h, 7d, 30d, 90d or all")
	}
	return s
}

// url is the list's URL with some parameters changed ("" takes one away); the
// cursor is always left behind.
func (s *selection) url(path string, pairs ...string) string {
	v := url.Values{}
	for _, key := range slices.Concat(parameters, []string{"q", "t", "from", "to", "sort"}) {
		if x := s.values[key]; len(x) > 0 && x[0] != "" {
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

// without is the URL without the i-th word of the filter.
func (s *selection) without(path string, i int) string {
	var rest []string
	for j, w := range s.Words {
		if j != i {
			rest = append(rest, w.Source)
		}
	}
	return s.url(path, "q", strings.Join(rest, " "))
}

// chip is a term of the filter with the link that drops it.
type chip struct{ Text, Invalid, Remove string }

func (s *selection) chips(path string) []chip {
	var cs []chip
	for _, e := range s.exact {
		cs = append(cs, chip{Text: e[0] + ": " + name(e[1]), Remove: s.url(path, e[0], "")})
	}
	for i, w := range s.Words {
		cs = append(cs, chip{Text: name(w.Source), Invalid: w.Invalid, Remove: s.without(path, i)})
	}
	return cs
}

// choice is one of several links of which one is taken.
type choice struct {
	link
	Current bool
}

func (s *selection) rangeChoices(path string) []choice {
	var cs []choice
	for _, rg := range ranges {
		cs = append(cs, choice{link{rg.name, s.url(path, "t", rg.name, "from", "", "to", ""), "the last " + rg.words}, rg.name == s.Range})
	}
	return cs
}
