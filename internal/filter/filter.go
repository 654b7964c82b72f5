package filter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
)

// Bounds of a filter. A person types a few words; more is an attack or a bug.
const (
	MaxBytes = 1024 // of the text of a filter
	MaxTerms = 32
)

// Field names what a term is about.
type Field string

// The fields of the language.
const (
	Text     Field = "" // a word: part of project, name or ref, the number, or the start of the key
	Key      Field = "key"
	Project  Field = "project"
	Ref      Field = "ref"
	Job      Field = "job" // the build's name
	Stage    Field = "stage"
	Runner   Field = "runner" // id, short token or name
	Machine  Field = "machine"
	CI       Field = "ci"
	Result   Field = "result"
	Event    Field = "event"
	Pipeline Field = "pipeline"
	Verdict  Field = "verdict"
	Tag      Field = "tag"     // that its worker had to have
	Metered  Field = "metered" // yes, or no: only a CI server told of it
	CPU      Field = "cpu"     // CPU time
	Wall     Field = "wall"    // duration
	Queue    Field = "queue"   // time from queued to started
	Memory   Field = "mem"     // peak, in bytes or as a share of the limit
	IO       Field = "io"      // bytes read and written
	Net      Field = "net"     // bytes received and sent
	Since    Field = "since"   // ended at or after
	Before   Field = "before"
)

// Op compares a build's value (left) with the term's (right).
type Op string

// The operators. Text fields know Eq only.
const (
	Eq Op = ":"
	Gt Op = ">"
	Ge Op = ">="
	Lt Op = "<"
	Le Op = "<="
)

// Term is one condition. Number is set for the fields that are numbers, in the
// unit that Unit tells; At and Ago for Since and Before; Text for the others.
type Term struct {
	Not    bool
	Field  Field
	Op     Op
	Text   string
	Prefix bool  // Text is the start of the value: written with a * behind
	Number int64 // microseconds, bytes, or thousandths of the limit
	Unit   Unit
	At     time.Time     // of Since and Before; zero: Ago counts back from now
	Ago    time.Duration // of Since and Before
}

// Unit is what a Term's Number counts.
type Unit uint8

// The units.
const (
	None         Unit = iota
	Microseconds      // of CPU, Wall, Queue
	Bytes             // of Memory, IO, Net
	Thousandths       // of the memory limit
)

// Filter is what a build must meet: every term of it.
type Filter []Term

// kind is how the value of a field is read.
type kind uint8

const (
	text kind = iota
	duration
	size
	sizeOrShare
	instant
)

var fields = map[Field]kind{
	Key: text, Project: text, Ref: text, Job: text, Stage: text, Runner: text, Machine: text, CI: text, Result: text,
	Event: text, Pipeline: text, Verdict: text, Tag: text, Metered: text, CPU: duration, Wall: duration, Queue: duration, Memory: sizeOrShare, IO: size,
	Net: size, Since: instant, Before: instant,
}

// aliases are other words for fields, as people type them.
var aliases = map[string]Field{
	"name": Job, "branch": Ref, "status": Result, "memory": Memory, "disk": IO, "network": Net, "time": Wall, "until": Before, "after": Since,
}

// Fields returns the names of all fields, sorted.
func Fields() []string {
	names := make([]string, 0, len(fields))
	for f := range fields {
		names = append(names, string(f))
	}
	slices.Sort(names)
	return names
}

// Error is a filter that cannot be read: the term at Bytes Start to End of the
// text, and what was wanted there. It wraps [cimeter.ErrInvalid].
type Error struct {
	Start, End int
	Term       string
	Want       string
}

func (e *Error) Error() string { return fmt.Sprintf("filter: %q: want %s", e.Term, e.Want) }

// Unwrap returns [cimeter.ErrInvalid].
func (e *Error) Unwrap() error { return cimeter.ErrInvalid }

// Is returns a term that asks for an exact value of a text field.
func Is(f Field, value string) Term { return Term{Field: f, Op: Eq, Text: value} }

// Resolve returns the filter with every time relative to now made absolute.
func (f Filter) Resolve(now time.Time) Filter {
	out := slices.Clone(f)
	for i, t := range out {
		if (t.Field == Since || t.Field == Before) && t.At.IsZero() {
			out[i].At, out[i].Ago = now.Add(-t.Ago).UTC(), 0
		}
	}
	return out
}

// String writes the filter so that Parse reads the same filter from it.
func (f Filter) String() string {
	var b strings.Builder
	for i, t := range f {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(t.String())
	}
	return b.String()
}

// String writes one term.
func (t Term) String() string {
	var b strings.Builder
	if t.Not {
		b.WriteByte('-')
	}
	if t.Field == Text {
		b.WriteString(quote(t.Text, true))
		return b.String()
	}
	b.WriteString(string(t.Field))
	b.WriteString(string(t.Op))
	switch {
	case fields[t.Field] == instant && t.At.IsZero():
		b.WriteString(formatSpan(t.Ago.Microseconds()))
	case fields[t.Field] == instant:
		b.WriteString(t.At.UTC().Format(time.RFC3339Nano))
	case t.Unit == Microseconds:
		b.WriteString(formatSpan(t.Number))
	case t.Unit == Bytes:
		b.WriteString(strconv.FormatInt(t.Number, 10))
	case t.Unit == Thousandths:
		fmt.Fprintf(&b, "%d.%d%%", t.Number/10, t.Number%10)
	case t.Prefix:
		if t.Text != "" {
			b.WriteString(quote(t.Text, false))
		}
		b.WriteByte('*')
	default:
		b.WriteString(quote(t.Text, false))
	}
	return b.String()
}

// quote writes a value so that it is read as one word and nothing else.
func quote(s string, word bool) string {
	special := " \t\r\n\"\\*"
	if word {
		special += ":<>"
	}
	if s != "" && !strings.ContainsAny(s, special) && (!word || s[0] != '-') && !hasSpace(s) && (word || !strings.ContainsAny(s[:1], "<>=:")) {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func hasSpace(s string) bool { return strings.IndexFunc(s, isSpace) >= 0 }
