package display_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/cimeter/cimeter/internal/display"
)

func TestClean(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"group/app", "group/app"},
		{"naïve 日本 ✓", "naïve 日本 ✓"},
		{"a\x1b[31mred\x1b[0m", `a\x1b[31mred\x1b[0m`},
		{"over\rwrite\nline\ttab\x7f", `over\x0dwrite\x0aline\x09tab\x7f`},
		{"csi\u009b2J", `csi\x9b2J`},
		{"user\u202egnp.exe\u2066", `user\u202egnp.exe\u2066`},
		{"zero\u200bwidth\ufeff", `zero\u200bwidth\ufeff`},
		{"sep\u2028", `sep\u2028`},
		{"tag\U000e0041", `tag\U000e0041`},
		{"bad\xff\xc3(", `bad\xff\xc3(`},
		{"real \uFFFD", "real \uFFFD"},
		{"nbsp\u00a0", `nbsp\xa0`},
	} {
		if got := display.Clean(c.in); got != c.want {
			t.Errorf("%q: got %q: want %q", c.in, got, c.want)
		}
	}
	if got, want := display.ASCII("é日\x1b"), `\xe9\u65e5\x1b`; got != want {
		t.Errorf("got %q: want %q", got, want)
	}
}

func TestWidth(t *testing.T) {
	for s, want := range map[string]int{"": 0, "abc": 3, "日本": 4, "e\u0301": 1, "ＡＢ": 4, "🚀": 2, "한국": 4, "é": 1} {
		if got := display.Width(s); got != want {
			t.Errorf("%q: got %d: want %d", s, got, want)
		}
	}
}

func TestFit(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		mark  string
		want  string
	}{
		{"abc", 3, "…", "abc"}, {"abcd", 3, "…", "ab…"}, {"abcd", 3, "~", "ab~"},
		{"日本語", 5, "…", "日本…"}, {"日本語", 4, "…", "日…"}, {"日本語", 6, "…", "日本語"},
		{"abc", 0, "…", ""}, {"\x1b", 8, "~", `\x1b`}, {"\x1b", 3, "~", `\x~`}, {"abcd", 1, "…", "…"},
	} {
		if got := display.Fit(c.in, c.width, c.mark); got != c.want {
			t.Errorf("%q in %d: got %q: want %q", c.in, c.width, got, c.want)
		}
	}
	if got, want := display.Pad("日", 4, "…"), "日  "; got != want {
		t.Errorf("got %q: want %q", got, want)
	}
	if got := display.Fit("e"+strings.Repeat("\u0301", 10000), 8, "…"); len(got) > 100 {
		t.Errorf("%d bytes of combining marks: want them bounded", len(got))
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "a", "\x1b[2J", "\u202e", "日本", "\xff", "e\u0301", strings.Repeat("x", 1000)} {
		f.Add(s, 10)
	}
	f.Fuzz(func(t *testing.T, s string, width int) {
		got := display.Clean(s)
		if !utf8.ValidString(got) || display.Clean(got) != got {
			t.Errorf("%q: %q is not stable", s, got)
		}
		for _, r := range got {
			if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Bidi_Control, r) {
				t.Errorf("%q: %q holds %U", s, got, r)
			}
		}
		width = max(-1, width%200)
		for _, mark := range []string{"…", "~"} {
			if w := display.Width(display.Fit(s, width, mark)); w > max(0, width) {
				t.Errorf("%q: %d columns: want at most %d", s, w, width)
			}
		}
		for _, r := range display.ASCII(s) {
			if r < ' ' || r > '~' {
				t.Errorf("%q: %U in ASCII", s, r)
			}
		}
	})
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{"", "a\u009b\x7f", "\u202e\U000e0041", "日本\n\t\"\\", "\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "\uFFFD")
		doc, err := json.MarshalIndent(map[string]string{"k": s}, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		safe := display.JSON(doc)
		var got map[string]string
		if err := json.Unmarshal(safe, &got); err != nil || got["k"] != s {
			t.Errorf("%q: got %q, %v", s, got["k"], err)
		}
		if display.Clean(strings.ReplaceAll(string(safe), "\n", "")) != strings.ReplaceAll(string(safe), "\n", "") {
			t.Errorf("%q: %q is not clean", s, safe)
		}
	})
}
