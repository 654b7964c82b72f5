package web

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// Filter selects builds: all of its terms hold, and the build started from From
// on and before To (zero: open).
type Filter struct {
	Terms    []Term
	From, To time.Time
}

// Field is what a term looks at.
type Field string

// The fields. Those of text are compared as a whole; FieldText looks into
// project, name, number, ref and sha.
const (
	FieldText    Field = "text"
	FieldCI      Field = "ci"
	FieldServer  Field = "server"
	FieldProject Field = "project"
	FieldRef     Field = "ref"
	FieldSHA     Field = "sha"
	FieldJob     Field = "job"
	FieldStage   Field = "stage"
	FieldRunner  Field = "runner" // any of its names
	FieldMachine Field = "machine"
	FieldResult  Field = "result"  // success, failed, canceled, unknown
	FieldVerdict Field = "verdict" // oom, throttled ...; any: has one

	FieldWall  Field = "wall"  // seconds
	FieldQueue Field = "queue" // seconds
	FieldCPU   Field = "cpu"   // CPU seconds
	FieldMem   Field = "mem"   // peak in bytes; with Share, 0 to 1 of the limit
	FieldDisk  Field = "disk"  // bytes
	FieldNet   Field = "net"   // bytes
)

// Op is how a term compares.
type Op byte

// The comparisons.
const (
	OpIs       Op = '=' // the whole text
	OpPrefix   Op = '^' // the text's beginning
	OpContains Op = '~' // a part of it, without case
	OpAbove    Op = '>'
	OpBelow    Op = '<'
)

// Term is one condition. A build that does not know a number meets no
// condition on it, not even a negated one.
type Term struct {
	Field Field
	Op    Op
	Not   bool
	Text  string
	Value float64 // in the field's unit
	Share bool    // Value is a share of the limit
}

// Word is a word of a filter as it was written.
type Word struct {
	Source  string
	Invalid string // what was wanted instead; "" when it is understood
}

// maxFilter bounds a filter: what no person types.
const (
	maxFilter = 1000 // bytes
	maxTerms  = 20
)

var textFields = map[string]Field{
	"ci": FieldCI, "server": FieldServer, "project": FieldProject, "ref": FieldRef, "sha": FieldSHA, "job": FieldJob, "stage": FieldStage,
	"runner": FieldRunner, "machine": FieldMachine, "result": FieldResult, "verdict": FieldVerdict,
}

var numberFields = map[string]Field{
	"wall": FieldWall, "queue": FieldQueue, "cpu": FieldCPU, "mem": FieldMem, "disk": FieldDisk, "net": FieldNet,
}

const wantKey = "want project, ref, sha, job, stage, runner, machine, result, verdict, ci, server, since or until before the colon"

// ParseFilter reads a filter: words that are looked for, key:value (a value
// with spaces in "quotes", one that ends in * is a beginning), key>number with
// a unit, since: and until: an age (7d) or a date, each with - before it for
// the opposite. The words are always returned; err wraps cimeter.ErrInvalid
// when one of them is not understood, and tells the first.
func ParseFilter(s string, now time.Time) (Filter, []Word, error) {
	var f Filter
	if len(s) > maxFilter {
		return f, nil, fmt.Errorf("filter of %d bytes: want at most %d: %w", len(s), maxFilter, cimeter.ErrInvalid)
	}
	var words []Word
	var first error
	for _, source := range split(s) {
		w := Word{Source: source}
		if len(f.Terms) >= maxTerms {
			w.Invalid = fmt.Sprintf("want at most %d terms", maxTerms)
		} else {
			w.Invalid = f.add(source, now)
		}
		if w.Invalid != "" && first == nil {
			first = fmt.Errorf("%s: %s: %w", display.Fit(source, 40, "…"), w.Invalid, cimeter.ErrInvalid)
		}
		words = append(words, w)
	}
	return f, words, first
}

// split cuts at spaces outside of quotes.
func split(s string) []string {
	var words []string
	start, quoted := -1, false
	for i, r := range s {
		switch {
		case r == '"':
			quoted = !quoted
			if start < 0 {
				start = i
			}
		case r == ' ' || r == '\t' || r == '\n' || r == '\r':
			if start >= 0 && !quoted {
				words, start = append(words, s[start:i]), -1
			}
		case start < 0:
			start = i
		}
	}
	if start >= 0 {
		words = append(words, s[start:])
	}
	return words
}

// add adds the term of a word, or says what was wanted.
func (f *Filter) add(word string, now time.Time) (wanted string) {
	if !utf8.ValidString(word) {
		return "want UTF-8"
	}
	var t Term
	if rest, ok := strings.CutPrefix(word, "-"); ok && rest != "" {
		t.Not, word = true, rest
	}
	at := strings.IndexAny(word, ":<>\"")
	if at <= 0 || word[at] == '"' {
		t.Field, t.Op, t.Text = FieldText, OpContains, unquote(word)
		if t.Text == "" {
			return "want a word"
		}
		f.Terms = append(f.Terms, t)
		return ""
	}
	key, value := strings.ToLower(word[:at]), unquote(word[at+1:])
	switch {
	case value == "":
		return "want a value after " + word[at:at+1]
	case word[at] != ':':
		if t.Field = numberFields[key]; t.Field == "" {
			return "want wall, queue, cpu, mem, disk or net before " + word[at:at+1]
		}
		t.Op = Op(word[at])
		if wanted := t.amount(value); wanted != "" {
			return wanted
		}
	case key == "since" || key == "until":
		if t.Not {
			return "want no - before it"
		}
		when, ok := parseTime(value, now)
		if !ok {
			return "want an age such as 90m, 24h or 7d, or a date such as 2026-11-30"
		}
		if key == "since" {
			f.From = when
		} else {
			f.To = when
		}
		return ""
	default:
		if t.Field = textFields[key]; t.Field == "" {
			if numberFields[key] != "" {
				return "want > or < after " + key
			}
			return wantKey
		}
		t.Op, t.Text = OpIs, value
		if beginning, ok := strings.CutSuffix(value, "*"); ok {
			t.Op, t.Text = OpPrefix, beginning
		}
		if t.Field == FieldResult && t.Op == OpIs {
			switch t.Text {
			case "success", "failed", "canceled", "unknown":
			default:
				return "want success, failed, canceled or unknown"
			}
		}
	}
	f.Terms = append(f.Terms, t)
	return ""
}

func unquote(s string) string { return strings.TrimSpace(strings.ReplaceAll(s, `"`, "")) }

// amount reads a number with its unit.
func (t *Term) amount(s string) (wanted string) {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789."))
	v, err := strconv.ParseFloat(s[:digits], 64)
	in := strings.ToLower(s[digits:])
	units, wanted := map[string]float64{"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "ms": 0.001}, "want a time such as 600s, 5m or 2h"
	switch t.Field {
	case FieldMem, FieldDisk, FieldNet:
		units = map[string]float64{"": 1, "b": 1, "k": kib, "kib": kib, "m": mib, "mib": mib, "g": gib, "gib": gib, "t": tib, "tib": tib, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
		wanted = "want an amount such as 512MiB or 4GiB"
		if t.Field == FieldMem {
			wanted += ", or a share of the limit such as 90%"
			if in == "%" && err == nil {
				t.Share, t.Value = true, v/100
				return ""
			}
		}
	}
	u, ok := units[in]
	if err != nil || !ok || math.IsInf(v*u, 0) {
		return wanted
	}
	t.Value = v * u
	return ""
}

// parseTime reads an age or a date of UTC.
func parseTime(s string, now time.Time) (time.Time, bool) {
	for _, form := range []string{"2006-01-02", "2006-01-02T15:04", time.RFC3339} {
		if t, err := time.Parse(form, s); err == nil {
			return t, true
		}
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.Atoi(days)
		return now.AddDate(0, 0, -n), err == nil && n >= 0 && n <= 3660
	}
	d, err := time.ParseDuration(s)
	return now.Add(-d), err == nil && d >= 0
}

// With returns the filter with one more term.
func (f Filter) With(field Field, is string) Filter {
	f.Terms = append(f.Terms[:len(f.Terms):len(f.Terms)], Term{Field: field, Op: OpIs, Text: is})
	return f
}

// Match reports whether r meets the filter: what a store must answer too.
func (f Filter) Match(r *cimeter.Record) bool {
	if !f.From.IsZero() && r.StartedAt.Before(f.From) || !f.To.IsZero() && !r.StartedAt.Before(f.To) {
		return false
	}
	row := RowOf(r)
	for i := range f.Terms {
		if !f.Terms[i].match(r, &row) {
			return false
		}
	}
	return true
}

func (t *Term) match(r *cimeter.Record, row *Row) bool {
	if t.Op == OpAbove || t.Op == OpBelow {
		v := t.number(row)
		return v.Known && (t.Op == OpAbove && v.Value > t.Value || t.Op == OpBelow && v.Value < t.Value) != t.Not
	}
	for _, s := range t.texts(r) {
		switch t.Op {
		case OpIs:
			if s == t.Text {
				return !t.Not
			}
		case OpPrefix:
			if strings.HasPrefix(s, t.Text) {
				return !t.Not
			}
		case OpContains:
			if strings.Contains(strings.ToLower(s), strings.ToLower(t.Text)) {
				return !t.Not
			}
		}
	}
	return t.Not
}

// texts are the values of a text field.
func (t *Term) texts(r *cimeter.Record) []string {
	switch t.Field {
	case FieldCI:
		return []string{r.CI}
	case FieldServer:
		return []string{r.Server}
	case FieldProject:
		return []string{r.Project}
	case FieldRef:
		return []string{r.Ref}
	case FieldSHA:
		return []string{r.SHA}
	case FieldJob:
		return []string{r.Name}
	case FieldRunner:
		return []string{r.Runner.ID, r.Runner.ShortToken, r.Runner.Name}
	case FieldMachine:
		return []string{r.Machine}
	case FieldResult:
		if r.Result == "" {
			return []string{"unknown"}
		}
		return []string{r.Result}
	case FieldStage:
		names := make([]string, 0, len(r.Stages))
		for _, s := range r.Stages {
			names = append(names, s.Name)
		}
		return names
	case FieldVerdict:
		var kinds []string
		for _, v := range r.Verdicts {
			kinds = append(kinds, v.Kind, "any")
		}
		return kinds
	}
	return []string{r.Project, r.Name, r.Number, r.Ref, r.SHA}
}

func (t *Term) number(row *Row) opt {
	switch t.Field {
	case FieldWall:
		return some(row.WallSeconds)
	case FieldQueue:
		return row.Queue()
	case FieldCPU:
		return row.CPUSeconds
	case FieldMem:
		if !t.Share {
			return number(row.MemoryPeak)
		}
		if row.MemoryPeak.Known && row.MemoryLimit.Known && row.MemoryLimit.Value > 0 {
			return some(float64(row.MemoryPeak.Value) / float64(row.MemoryLimit.Value))
		}
	case FieldDisk:
		return number(row.DiskBytes)
	case FieldNet:
		return number(row.NetBytes)
	}
	return opt{}
}
