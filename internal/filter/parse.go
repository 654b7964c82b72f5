package filter

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

func isSpace(r rune) bool { return unicode.IsSpace(r) }

// Parse reads a filter. An empty text is the filter that every build meets. The
// error is an [*Error] that names the term and what was wanted.
func Parse(s string) (Filter, error) {
	if len(s) > MaxBytes {
		return nil, &Error{End: len(s), Term: clip(s), Want: fmt.Sprintf("at most %d bytes", MaxBytes)}
	}
	if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return nil, &Error{End: len(s), Term: clip(s), Want: "UTF-8 text without NUL"}
	}
	var f Filter
	for i := 0; ; {
		for i < len(s) {
			r, n := utf8.DecodeRuneInString(s[i:])
			if !isSpace(r) {
				break
			}
			i += n
		}
		if i == len(s) {
			return f, nil
		}
		if len(f) == MaxTerms {
			return nil, &Error{Start: i, End: len(s), Term: clip(s[i:]), Want: fmt.Sprintf("at most %d terms", MaxTerms)}
		}
		t, n, want := parseTerm(s[i:])
		if want != "" {
			return nil, &Error{Start: i, End: i + n, Term: clip(s[i : i+n]), Want: want}
		}
		f = append(f, t)
		i += n
	}
}

func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// parseTerm reads the term that s begins with and returns its length; want is
// not empty when it cannot be read.
func parseTerm(s string) (t Term, n int, want string) {
	rest := s
	if strings.HasPrefix(rest, "-") {
		t.Not, rest = true, rest[1:]
	}
	// A field is letters up to an operator.
	end := 0
	for end < len(rest) && (rest[end] >= 'a' && rest[end] <= 'z' || rest[end] >= 'A' && rest[end] <= 'Z' || rest[end] == '_') {
		end++
	}
	name, op := rest[:end], ""
	if tail := rest[end:]; tail != "" && end > 0 {
		switch tail[0] {
		case ':':
			op = ":"
			if len(tail) > 1 && (tail[1] == '<' || tail[1] == '>') {
				op += comparison(tail[1:])
			}
		case '<', '>':
			op = comparison(tail)
		}
	}
	rest = rest[end+len(op):]
	if op == "" {
		rest, name = s[len(s)-len(rest)-len(name):], ""
	}
	value, quoted, prefix, used, bad := parseValue(rest)
	n = len(s) - len(rest) + used
	if bad != "" {
		return t, n, bad
	}
	if op == "" {
		if prefix { // part of a value is what a word looks for anyway
			prefix = false
		}
		if value == "" {
			return t, n, "a word"
		}
		if !quoted && strings.ContainsAny(value, ":<>") {
			return t, n, "a field before the sign, one of " + strings.Join(Fields(), ", ") + ", or quotes"
		}
		t.Op, t.Text = Eq, value
		return t, n, ""
	}
	field, known := aliases[strings.ToLower(name)]
	if !known {
		field = Field(strings.ToLower(name))
	}
	k, known := fields[field]
	if !known {
		return t, n, "one of the fields " + strings.Join(Fields(), ", ")
	}
	t.Field, t.Op = field, Op(op)
	if len(op) > 1 && op[0] == ':' {
		t.Op = Op(op[1:])
	}
	return t, n, t.set(k, value, prefix)
}

func comparison(s string) string {
	if len(s) > 1 && s[1] == '=' {
		return s[:2]
	}
	return s[:1]
}

// parseValue reads a value up to the next space: bare, or in quotes with \" and
// \\, and a * behind it for a prefix.
func parseValue(s string) (value string, quoted, prefix bool, used int, want string) {
	if !strings.HasPrefix(s, `"`) {
		used = strings.IndexFunc(s, isSpace)
		if used < 0 {
			used = len(s)
		}
		value = s[:used]
		if strings.HasSuffix(value, "*") {
			value, prefix = value[:len(value)-1], true
		}
		if strings.ContainsAny(value, "\"*\\") {
			return "", false, false, used, `quotes around a value with ", \ or * in it`
		}
		return value, false, prefix, used, ""
	}
	var b strings.Builder
	i := 1
	for ; i < len(s) && s[i] != '"'; i++ {
		if s[i] == '\\' {
			if i++; i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", true, false, min(i+1, len(s)), `\" or \\ in quotes`
			}
		}
		b.WriteByte(s[i])
	}
	if i == len(s) {
		return "", true, false, len(s), "a closing quote"
	}
	i++
	if i < len(s) && s[i] == '*' {
		prefix = true
		i++
	}
	if r, _ := utf8.DecodeRuneInString(s[i:]); i < len(s) && !isSpace(r) {
		return "", true, false, i, "a space behind the closing quote"
	}
	return b.String(), true, prefix, i, ""
}

// set gives the term its value; want is not empty when it cannot be read.
func (t *Term) set(k kind, value string, prefix bool) (want string) {
	if k == text {
		if t.Op != Eq {
			return string(t.Field) + ":value"
		}
		if value == "" && !prefix && t.Field != Result {
			return "a value behind " + string(t.Field) + ":"
		}
		switch t.Field {
		case Stage, Runner, Verdict, Tag, Metered:
			if prefix {
				return "a whole value of " + string(t.Field)
			}
		}
		t.Text, t.Prefix = value, prefix
		return ""
	}
	if prefix {
		return "a value without *"
	}
	if k == instant {
		return t.setInstant(value)
	}
	if t.Op == Eq {
		t.Op = Ge // cpu:600s is what people type for "at least"
	}
	if k == duration {
		n, ok := parseSpan(value)
		if !ok {
			return "a time such as 90s, 15m, 1.5h, 7d"
		}
		t.Number, t.Unit = n, Microseconds
		return ""
	}
	if share, isShare := strings.CutSuffix(value, "%"); isShare && k == sizeOrShare {
		v, err := strconv.ParseFloat(share, 64)
		if err != nil || !(v >= 0 && v <= 1000) {
			return "a share of the limit such as 90%"
		}
		t.Number, t.Unit = int64(math.Round(v*10)), Thousandths
		return ""
	}
	n, ok := parseSize(value)
	if !ok {
		if k == sizeOrShare {
			return "a size such as 512MiB or 4G, or a share of the limit such as 90%"
		}
		return "a size such as 512MiB or 4G"
	}
	t.Number, t.Unit = n, Bytes
	return ""
}

func (t *Term) setInstant(value string) (want string) {
	if t.Op != Eq {
		return string(t.Field) + ":time"
	}
	if n, ok := parseSpan(value); ok && n > 0 && n <= maxSpan {
		t.Ago = time.Duration(n) * time.Microsecond
		return ""
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04", time.DateOnly} {
		at, err := time.Parse(layout, value)
		if err == nil && at.Year() >= 1970 && at.Year() <= 9998 {
			t.At = at.UTC()
			return ""
		}
	}
	return "a time ago such as 24h or 7d, a day such as 2026-11-30, or a time such as 2026-11-30T12:00:00Z"
}

// maxSpan bounds times ago, and all spans, in microseconds: 200 years.
const maxSpan = 200 * 365 * 24 * 3600 * 1_000_000

// spanUnits in microseconds, longest name first where one ends in another.
var spanUnits = []struct {
	name  string
	micro float64
}{{"us", 1}, {"ms", 1e3}, {"s", 1e6}, {"m", 60e6}, {"h", 3600e6}, {"d", 86400e6}, {"w", 7 * 86400e6}}

// parseSpan reads a time span into microseconds.
func parseSpan(s string) (int64, bool) {
	for _, u := range spanUnits {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		if v, ok := parseNumber(number); ok && v*u.micro <= maxSpan {
			return int64(math.Round(v * u.micro)), true
		}
	}
	return 0, false
}

func formatSpan(micro int64) string {
	for i := len(spanUnits) - 1; i > 0; i-- {
		if u := int64(spanUnits[i].micro); micro != 0 && micro%u == 0 && spanUnits[i].name != "w" {
			return strconv.FormatInt(micro/u, 10) + spanUnits[i].name
		}
	}
	return strconv.FormatInt(micro, 10) + "us"
}

// parseSize reads bytes. K, KB and KiB are all 1,024 bytes: memory and disk are
// told in binary units everywhere in this program.
func parseSize(s string) (int64, bool) {
	low := strings.ToLower(s)
	low = strings.TrimSuffix(low, "b")
	low = strings.TrimSuffix(low, "i")
	scale := 1.0
	if n := len(low); n > 0 {
		if i := strings.IndexByte("kmgtp", low[n-1]); i >= 0 {
			low, scale = low[:n-1], math.Pow(1024, float64(i+1))
		} else if strings.HasSuffix(strings.ToLower(s), "i") || strings.HasSuffix(strings.ToLower(s), "ib") {
			return 0, false
		}
	}
	v, ok := parseNumber(low)
	if !ok || v*scale > 1<<52 {
		return 0, false
	}
	return int64(math.Round(v * scale)), true
}

// parseNumber reads digits with at most one point.
func parseNumber(s string) (float64, bool) {
	if s == "" || strings.Trim(s, "0123456789.") != "" || s == "." {
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil
}
