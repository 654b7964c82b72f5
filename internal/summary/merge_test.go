package summary_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	source "github.com/yuin/goldmark/text"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/summary"
)

// noted is a pipeline of a job that costs more, one that was killed, one as usual and
// one that nothing is known of.
func noted() summary.Note {
	before := func(r func() *cimeter.Record) (b []*cimeter.Record) {
		for i := range 20 {
			x := r()
			x.Usage.CPUSeconds.Total.Value *= 0.97 + float64(i%4)/100
			b = append(b, x)
		}
		return b
	}
	dearer, usual := example(), example()
	dearer.Usage.CPUSeconds.Total = cimeter.Some(500.0)
	for _, r := range []*cimeter.Record{dearer, usual} { // nothing to advise
		r.Stages[3].Usage.CPUPeriods, r.Stages[3].Usage.CPUThrottledPeriods = cimeter.Some[uint64](100), cimeter.Some[uint64](0)
	}
	usual.Name = "lint"
	page := "https://cimeter.example.com/builds/gitlab/gitlab.example.com/4242"
	return summary.Note{
		Pipeline: "991", URL: "https://gitlab.example.com/group/app/-/pipelines/991", Target: "main", Finished: true,
		At: time.Date(2026, 11, 30, 14, 2, 59, 0, time.UTC), Help: "https://cimeter.example.com/help",
		Jobs: []summary.NoteJob{{dearer, page, before(example)}, {killed(), page, nil}, {usual, page, before(example)}, {nothing(), "", nil}},
	}
}

func write(t testing.TB, n summary.Note) string {
	t.Helper()
	var b strings.Builder
	if err := n.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestNote(t *testing.T) {
	n := noted()
	golden(t, "note.md", write(t, n))
	same := n
	same.Jobs = n.Jobs[2:]
	golden(t, "note-as-usual.md", write(t, same))
	same.Always, same.Finished = true, false
	golden(t, "note-always.md", write(t, same))
	first := n
	first.Jobs = []summary.NoteJob{{Record: n.Jobs[2].Record, URL: n.Jobs[2].URL}}
	for _, first.Always = range []bool{false, true} {
		if text := write(t, first); strings.Contains(text, "as usual") || !strings.Contains(text, " · nothing yet to compare with\n") ||
			strings.Contains(text, "<summary>1 with nothing yet to compare with</summary>") != first.Always {
			t.Errorf("the first build of a job:\n%s", text)
		}
	}
	for _, n := range []summary.Note{n, same, {}} {
		golden(t, fmt.Sprintf("note-status-%d.txt", len(n.Jobs)), summary.PipelineStatus(n)+"\n")
	}
}

// nodes are the kinds of what a note is made of, in order, with the links' addresses.
func nodes(t *testing.T, md string) []string {
	t.Helper()
	raw := []byte(md)
	doc := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(source.NewReader(raw))
	var all []string
	err := ast.Walk(doc, func(n ast.Node, enter bool) (ast.WalkStatus, error) {
		if !enter {
			return ast.WalkContinue, nil
		}
		kind := n.Kind().String()
		switch n := n.(type) {
		case *ast.Text:
			return ast.WalkContinue, nil // how a text is cut says nothing
		case *ast.Link:
			kind += " " + string(n.Destination)
		case *ast.RawHTML:
			for i := range n.Segments.Len() {
				seg := n.Segments.At(i)
				kind += " " + string(seg.Value(raw))
			}
		case *ast.HTMLBlock:
			for i := range n.Lines().Len() {
				seg := n.Lines().At(i)
				kind += " " + string(seg.Value(raw))
			}
		}
		all = append(all, kind)
		return ast.WalkContinue, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// namedNote is a note in which everything that others choose is s.
func namedNote(s string) summary.Note {
	n := noted()
	for i := range n.Jobs {
		named(n.Jobs[i].Record, s)
	}
	n.Target, n.Pipeline = s, s
	n.Always = true
	return n
}

func checkNote(t *testing.T, s string) {
	t.Helper()
	got := write(t, namedNote(s))
	checkClean(t, got)
	for line := range strings.Lines(got) {
		ok := line == "\n"
		for _, ours := range []string{"| ", "|-", "**cimeter** · ", "<details><summary>", "</details>", "<sub>As of ", summary.NoteMarker} {
			ok = ok || strings.HasPrefix(line, ours)
		}
		if !ok || strings.HasPrefix(strings.TrimLeft(line, "| "), "/") {
			t.Fatalf("%q: line %q", s, line)
		}
	}
	if strings.Trim(s, " \t\n") == "" {
		return
	}
	want := nodes(t, write(t, namedNote("plain")))
	if got := nodes(t, got); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("%q makes a note of\n%s\nwant\n%s", s, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestNote_HostileNames(t *testing.T) {
	for _, s := range hostile {
		checkNote(t, s)
	}
}

func FuzzNote(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ContainsFunc(s, func(r rune) bool { return r > ' ' && r < 0x7f && r != '`' && r != '|' }) {
			checkNote(t, s)
		}
	})
}

// An address that could be anything but an address is none.
func TestNote_Addresses(t *testing.T) {
	for _, a := range []string{"javascript:alert(1)", "https://x/>)![x](http://evil", "https://x\n/merge", "http://x/ y", "ftp://x", "", "https://" + strings.Repeat("x", 2000), "https://x/`", "https://x/|"} {
		n := noted()
		n.URL, n.Help = a, a
		for i := range n.Jobs {
			n.Jobs[i].URL = a
		}
		if got := write(t, n); strings.Contains(got, "](") {
			t.Errorf("%q is a link in\n%s", a, got)
		}
	}
}

// However many jobs there are, a note is one that a forge takes.
func TestNote_Bounds(t *testing.T) {
	n := namedNote(strings.Repeat("日本", 200))
	for len(n.Jobs) < 2000 {
		n.Jobs = append(n.Jobs, n.Jobs[:4]...)
	}
	got := write(t, n)
	if len(got) > 64<<10 || !strings.Contains(got, " more | |") || !strings.HasSuffix(got, summary.NoteMarker+"\n") {
		t.Errorf("%d bytes: %s", len(got), got[max(0, len(got)-300):])
	}
}
