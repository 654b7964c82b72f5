package summary_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/summary"
)

// hostile are names that a build's author could choose against whoever reads them.
var hostile = []string{
	"\x1b[2J\x1b[31mowned", "line\nforged: 1", "over\rwrite", "\u009b2J", "\x7f\x00\x08", "user\u202egnp.exe", "\u2066x\u2069",
	"/merge", "\n/close\n", "`/approve`", "``` \n/merge", "a|b|c", `\`, `x\|`, "<script>alert(1)</script>", "![x](http://evil/x.png)",
	"[x](javascript:alert(1))", "@all", "#1", "!1", "~bug", "$x$", "$`x`$", "`", "``", " ", "\t", "=HYPERLINK(1)", "\xff\xfe",
	strings.Repeat("w", 5000), strings.Repeat("日本", 500), strings.Repeat("e\u0301\u0302\u0303", 300), "| --- |", "**total**", "a\u2028b", `"quoted" a=b`,
}

// named is a record in which every string that others choose is s.
func named(r *cimeter.Record, s string) *cimeter.Record {
	r.Build = cimeter.Build{Key: s, CI: s, Server: s, Project: s, Number: s, Name: s, Pipeline: s, PipelineStage: s, Ref: s, SHA: s, Event: s,
		URL: s, Machine: s, Runner: cimeter.Runner{ID: s, ShortToken: s, Name: s}}
	r.Result = s
	if r.Limits != nil {
		r.Limits.MemorySetBy = s
	}
	for i := range r.Stages {
		r.Stages[i].Name = s
	}
	for i := range r.Verdicts {
		r.Verdicts[i].Stage, r.Verdicts[i].Evidence = s, s
	}
	r.Verdicts = append(r.Verdicts, cimeter.Verdict{Kind: s, Stage: s, Evidence: s})
	r.Complete, r.Gaps = false, []cimeter.Gap{{Reason: s}}
	return r
}

// checkClean fails when out holds a byte below the space but a line break, or
// a character that moves, hides or reorders text.
func checkClean(t *testing.T, out string) {
	t.Helper()
	for _, r := range strings.ReplaceAll(out, "\n", "") {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' {
			t.Fatalf("%U in %q", r, out)
		}
	}
}

func checkOutputs(t *testing.T, make func() *cimeter.Record, s string) {
	t.Helper()
	plain := text(t, make(), summary.TextOptions{UTF8: true})
	for _, o := range []summary.TextOptions{{UTF8: true}, {}, {UTF8: true, Width: 120}} {
		got := text(t, named(make(), s), o)
		checkClean(t, got)
		for line := range strings.Lines(got) {
			line = strings.TrimSuffix(line, "\n")
			if w := display.Width(line); w > max(80, o.Width) {
				t.Fatalf("%q: %d columns: %s", s, w, line)
			}
			if !o.UTF8 && strings.ContainsFunc(line, func(r rune) bool { return r > '~' }) {
				t.Fatalf("%q: not ASCII: %s", s, line)
			}
			if !regexp.MustCompile(`^(cimeter: |stage |total |disk   |net    |queue |gaps   |note   |try    |  |\+ )`).MatchString(line) && !strings.HasPrefix(line, strings.TrimRight(display.Fit(s, 6, "…"), "…~")) && o.UTF8 {
				t.Fatalf("%q: a line of its own: %q", s, line)
			}
		}
		// gaps and the note are added by named; else not a line more
		if n, m := strings.Count(plain, "\n"), strings.Count(got, "\n"); m > n+5 {
			t.Fatalf("%q: %d lines: want about %d", s, m, n)
		}
	}
	for _, line := range []string{summary.Short(named(make(), s)), summary.Logfmt(named(make(), s))} {
		checkClean(t, line)
		if strings.Contains(line, "\n") {
			t.Fatalf("%q: more than a line: %q", s, line)
		}
	}
	var b bytes.Buffer
	if err := summary.JSON(&b, named(make(), s)); err != nil {
		t.Fatal(err)
	}
	checkClean(t, b.String())
	var r cimeter.Record
	if err := json.Unmarshal(b.Bytes(), &r); err != nil || utf8.ValidString(s) && r.Name != s {
		t.Fatalf("%q: got %q, %v", s, r.Name, err)
	}
	checkMarkdown(t, make(), s)
}

var codeSpan = regexp.MustCompile("`[^`]+`")

// checkMarkdown holds that, with code spans taken out, the note is word for
// word what it is without the hostile text: nothing breaks out of a span or a cell.
func checkMarkdown(t *testing.T, r *cimeter.Record, s string) {
	t.Helper()
	render := func(name string) string {
		c := *r
		c.Stages, c.Verdicts = append([]cimeter.Stage(nil), r.Stages...), append([]cimeter.Verdict(nil), r.Verdicts...)
		if r.Limits != nil {
			l := *r.Limits
			c.Limits = &l
		}
		var b strings.Builder
		if err := summary.Markdown(&b, named(&c, name)); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	got := render(s)
	checkClean(t, got)
	for line := range strings.Lines(got) {
		if line != "\n" && !strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "|-") && !strings.HasPrefix(line, "**cimeter** · ") {
			t.Fatalf("%q: line %q", s, line)
		}
	}
	bare := func(md string) string { return codeSpan.ReplaceAllString(md, "x") }
	want := bare(render("plain"))
	if bare(got) != want && strings.Trim(s, " \t") != "" {
		t.Fatalf("%q: without code spans\n%s\nwant\n%s", s, bare(got), want)
	}
}

func TestHostileNames(t *testing.T) {
	for name, make := range map[string]func() *cimeter.Record{"receipt": example, "oom": killed, "single": single, "absent": absent, "nothing": nothing} {
		for i, s := range hostile {
			t.Run(fmt.Sprintf("%s %d", name, i), func(t *testing.T) { checkOutputs(t, make, s) })
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { checkOutputs(t, killed, s); checkOutputs(t, single, s) })
}

// Whatever the numbers are, a receipt keeps to its columns.
func FuzzNumbers(f *testing.F) {
	f.Add(0.0, uint64(0))
	f.Add(1e9, uint64(1)<<63)
	f.Add(0.049, uint64(1023))
	f.Add(99999.96, uint64(1)<<40)
	f.Fuzz(func(t *testing.T, v float64, n uint64) {
		r := example()
		fill := func(u *cimeter.Usage) {
			u.WallSeconds, u.CPUSeconds.Total, u.CPUCores = v, cimeter.Some(v), stat(v, v, v)
			u.MemoryBytes.Peak = cimeter.Some(n)
			u.IOBytes, u.IOOperations = &cimeter.ReadWrite[uint64]{Read: n, Write: n}, &cimeter.ReadWrite[uint64]{Read: n}
			u.NetworkBytes = &cimeter.ReceiveTransmit[uint64]{Receive: n, Transmit: n}
		}
		fill(&r.Usage)
		for i := range r.Stages {
			fill(&r.Stages[i].Usage)
		}
		r.Limits.CPUCores, r.Limits.MemoryBytes = cimeter.Some(v), cimeter.Some(n)
		for _, r := range []*cimeter.Record{r, func() *cimeter.Record { c := *r; c.Stages = r.Stages[:1]; return &c }()} {
			for line := range strings.Lines(text(t, r, summary.TextOptions{})) {
				if w := display.Width(strings.TrimSuffix(line, "\n")); w > 80 {
					t.Errorf("%d columns: %s", w, line)
				}
				if strings.HasPrefix(line, "total") && len(strings.Fields(line)) != 9 {
					t.Errorf("columns run together: %s", line)
				}
			}
			summary.Short(r)
			summary.Logfmt(r)
			if err := summary.Markdown(io.Discard, r); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestText_Bounds(t *testing.T) {
	r := example()
	for range 100 {
		r.Stages = append(r.Stages, r.Stages[0])
	}
	got := text(t, r, summary.TextOptions{})
	if n := strings.Count(got, "\n"); n > 45 || !strings.Contains(got, "... and 78 more stages\n") {
		t.Errorf("%d lines:\n%s", n, got)
	}
}

func TestTries(t *testing.T) {
	periods := func(of, throttled uint64) func(*cimeter.Record) {
		return func(r *cimeter.Record) {
			r.Stages[3].Usage.CPUPeriods, r.Stages[3].Usage.CPUThrottledPeriods = cimeter.Some(of), cimeter.Some(throttled)
		}
	}
	full := func(share, anon float64) func(*cimeter.Record) {
		return func(r *cimeter.Record) {
			periods(100, 0)(r)
			r.Stages[3].Usage.MemoryBytes.Peak = cimeter.Some(uint64(share * 4096 * mib))
			r.Stages[3].Usage.MemoryAnonBytes = stat(0, anon*4096*mib, 0)
		}
	}
	for _, c := range []struct {
		name string
		set  func(*cimeter.Record)
		want string
	}{
		{"throttled at the threshold", periods(100, 5), ""},
		{"throttled above it", periods(100, 6), "try    step_script wanted more than 2 cores for 6 % of its time"},
		{"no period", periods(0, 0), ""},
		{"without a known limit", func(r *cimeter.Record) { r.Limits = nil }, "try    step_script wanted more CPU than it may use for 18 % of its time"},
		{"memory below the threshold", full(0.89, 0.8), ""},
		{"memory above it", full(0.95, 0.8), "try    more memory: step_script peaked at 95 % of 4.00 GiB"},
		{"a peak of page cache", full(1, 0.2), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := example()
			c.set(r)
			var got []string
			for line := range strings.Lines(text(t, r, summary.TextOptions{})) {
				if strings.HasPrefix(line, "try") {
					got = append(got, strings.TrimSpace(line))
				}
			}
			if strings.Join(got, "\n") != c.want {
				t.Errorf("got %q: want %q", got, c.want)
			}
		})
	}
}
