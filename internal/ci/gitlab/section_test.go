package gitlab_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/ci/gitlab"
	"github.com/cimeter/cimeter/internal/section"
)

const clear = "\r\x1b[0K"

func sectionsOf(t testing.TB, pieces ...string) section.Log {
	t.Helper()
	var s gitlab.Sections
	for _, p := range pieces {
		if n, err := s.Write([]byte(p)); n != len(p) || err != nil {
			t.Fatalf("took %d of %d: %v", n, len(p), err)
		}
	}
	return s.Log()
}

// spans writes sections in a line each: name from-to, in seconds.
func spans(log section.Log) string {
	var lines []string
	for _, s := range log.Sections {
		from := func(t time.Time) string {
			if t.IsZero() {
				return ""
			}
			return fmt.Sprint(float64(t.UnixMicro()-1e15) / 1e6)
		}
		line := s.Name + " " + from(s.From) + "-" + from(s.To)
		if s.Stage {
			line += " stage"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, ", ")
}

func start(at int, name string) string {
	return fmt.Sprintf("section_start:%d:%s%s", 1e9+at, name, clear)
}
func end(at int, name string) string { return fmt.Sprintf("section_end:%d:%s%s", 1e9+at, name, clear) }

func TestSections(t *testing.T) {
	for name, c := range map[string]struct{ log, want string }{
		"none":                  {"hello\nsection_start\n", ""},
		"one":                   {start(1, "a") + "Header\ntext\n" + end(5, "a") + "\n", "a 1-5"},
		"options":               {start(1, "a[collapsed=true,hide_duration=true]") + "H\n" + end(5, "a"), "a 1-5"},
		"nested":                {start(1, "a") + start(2, "b") + end(3, "b") + end(5, "a"), "a 1-5, b 2-3"},
		"same name in itself":   {start(1, "a") + start(2, "a") + end(3, "a") + end(5, "a"), "a 1-5, a 2-3"},
		"twice":                 {start(1, "a") + end(2, "a") + start(3, "a") + end(4, "a"), "a 1-2, a 3-4"},
		"broken off":            {start(1, "a") + "text", "a 1-"},
		"outer ends first":      {start(1, "a") + start(2, "b") + end(3, "a") + end(5, "b"), "a 1-3, b 2-3"},
		"end without a start":   {end(1, "a") + start(2, "b") + end(3, "b"), "b 2-3"},
		"ends before it begins": {start(5, "a") + end(1, "a"), "a 5-5"},
		"in the middle":         {"\x1b[0;m" + start(1, "a") + "x" + end(2, "a") + "y", "a 1-2"},
		"stages": {start(1, "get_sources") + "Getting\n" + end(3, "get_sources") + start(3, "step_script") + start(4, "mine") + end(5, "mine") + end(9, "step_script"),
			"get_sources 1-3 stage, step_script 3-9 stage, mine 4-5"},
		"a forged end of a stage": {start(3, "step_script") + "$ echo\n" + end(4, "step_script") + "more\n" + start(5, "mine") + end(6, "mine") + end(9, "step_script"),
			"step_script 3-9 stage, mine 5-6"},
		"fractions (yarn)":     {"section_start:1560896352.123:a" + clear + end(5, "a"), ""},
		"a letter for a digit": {"section_start:156O896352:a" + clear, ""},
		"[OK for [0K":          {"section_start:1000000001:a\r\x1b[OK", ""},
		"no clearing (FAKE)":   {"section_start:1000000001:a\nsection_end:1000000005:a\n", ""},
		"a name with a space":  {"section_start:1000000001:a b" + clear, ""},
		"no name":              {"section_start:1000000001:" + clear, ""},
		"a name of markup":     {"section_start:1000000001:<b>" + clear, ""},
		"options without end":  {"section_start:1000000001:a[x" + clear + start(2, "b") + end(3, "b"), "b 2-3"},
		"1970":                 {"section_start:1:a" + clear, ""},
		"far too large":        {"section_start:999999999999999999:a" + clear, ""},
		"half a marker before": {"section_section_start:section_" + start(1, "a") + end(2, "a"), "a 1-2"},
		"a long line":          {strings.Repeat("x", 100000) + start(1, "a") + strings.Repeat("section_", 9000) + end(2, "a"), "a 1-2"},
		"with times": {"2001-09-09T01:46:41.020010Z 01O section_start:123:foo" + clear + "\n2001-09-09T01:46:51.520010Z 01O+section_end:123:foo" + clear + "\n",
			"foo 1.02001-11.52001"},
		"with times, a marker in two lines": {"2001-09-09T01:46:41.000000Z 01O section_st\n2001-09-09T01:46:42.000000Z 02E other\n" +
			"2001-09-09T01:46:43.000000Z 01O+art:123:foo" + clear + "\n2001-09-09T01:46:44.000000Z 01O section_end:123:foo" + clear, "foo 3-4"},
		"with times, not continued": {"2001-09-09T01:46:41.000000Z 01O section_st\n2001-09-09T01:46:43.000000Z 01O art:123:foo" + clear + "\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			whole := sectionsOf(t, c.log)
			if got := spans(whole); got != c.want {
				t.Errorf("got %q\nwant %q", got, c.want)
			}
			if whole.Stamped != (strings.HasPrefix(name, "with times") && c.want != "") {
				t.Errorf("stamped %v", whole.Stamped)
			}
			if got := sectionsOf(t, strings.Split(c.log, "")...); !reflect.DeepEqual(got, whole) {
				t.Errorf("byte by byte %q", spans(got))
			}
		})
	}
}

// A log of many sections keeps the first, and says how many there were more.
func TestSections_Bounds(t *testing.T) {
	var s gitlab.Sections
	for i := range 100000 {
		fmt.Fprint(&s, start(i, fmt.Sprint("s", i))+end(i+1, fmt.Sprint("s", i))+"\n")
	}
	if log := s.Log(); len(log.Sections) != section.MaxSections || log.Dropped != 100000-section.MaxSections {
		t.Errorf("%d sections, %d dropped", len(log.Sections), log.Dropped)
	}
	var deep gitlab.Sections
	for i := range 1000 {
		fmt.Fprint(&deep, start(i, "d"))
	}
	if b, err := json.Marshal(deep.Log()); err != nil || len(b) > 32<<10 {
		t.Errorf("%d bytes of JSON, %v", len(b), err)
	}
}

// However a log is cut into pieces, the sections are the same; only names of the
// allowed letters are kept.
func FuzzSections(f *testing.F) {
	f.Add([]byte(start(1, "a[collapsed=true]")+"Header\n"+end(2, "a")), uint8(3))
	f.Add([]byte("2001-09-09T01:46:41.020010Z 01O section_start:123:foo"+clear+"\n2001-09-09T01:46:51.520010Z 01O+section_end:123:foo"+clear+"\n"), uint8(7))
	f.Add([]byte("section_section_start:1000000001:x[\r\x1b[0K"), uint8(1))
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		whole := sectionsOf(t, string(text))
		var pieces []string
		for rest := string(text); rest != ""; {
			n := min(len(rest), int(size)+1)
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		if got := sectionsOf(t, pieces...); len(text) < 8<<10 && !reflect.DeepEqual(got, whole) {
			t.Fatalf("whole %q, in pieces %q", spans(whole), spans(got))
		}
		for _, s := range whole.Sections {
			if s.Name == "" || len(s.Name) > section.MaxName || strings.Trim(s.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "" ||
				!s.To.IsZero() && s.To.Before(s.From) {
				t.Fatalf("%+v", s)
			}
		}
	})
}

func BenchmarkSections(b *testing.B) {
	text := []byte(strings.Repeat("2001-09-09T01:46:41.020010Z 01O some line of a log, of the usual length, with words\n", 1000))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		var s gitlab.Sections
		s.Write(text)
	}
}
