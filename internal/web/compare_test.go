package web_test

import (
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/webtest"
)

// What was not the same around two builds is told, with what ran beside them and what
// they waited for.
func TestCompare_context(t *testing.T) {
	f := &failing{Memory: fleet(), at: -1}
	f.Records[0].Usage.PressureSeconds.CPUSome = cimeter.Some(f.Records[0].Usage.WallSeconds / 2)
	p, _ := f.pages(t)
	_, body := get(t, p, "/compare?"+together)
	wants(t, body, "<th scope=\"row\">beside it on its machine</th><td>6 builds, 2.34 at once</td><td>none</td>", "<th scope=\"row\">pressure</th><td>CPU 1 %, memory 0 %, disk 1 %</td><td>CPU 50 %, memory 0 %, disk 1 %</td>")
	// Of a median nothing is told that is of one build.
	_, body = get(t, p, "/compare?a=median%3A20&b="+example)
	lacks(t, body, "beside it on its machine")
}

// A side that a word means has its charts, and its word is looked for once.
func TestCompare_words(t *testing.T) {
	for word, of := range map[string]func(*cimeter.Record) bool{
		"last-green": func(r *cimeter.Record) bool { return r.Result == "success" },
		"main":       func(r *cimeter.Record) bool { return r.Ref == "main" },
	} {
		m := fleet()
		b := webtest.Example()
		var want *cimeter.Record
		for _, r := range m.Records {
			if r.Project == b.Project && r.Name == b.Name && r.EndedAt.Before(b.EndedAt) && of(r) && (want == nil || r.EndedAt.After(want.EndedAt)) {
				want = r
			}
		}
		code, body := get(t, pages(t, m), "/compare?a="+word+"&b="+b.Key)
		if code != 200 || want == nil || !strings.Contains(body, `href="/builds/`+want.Key+`"`) || !strings.Contains(body, "data-trace") {
			t.Errorf("%s: %d, want %v and charts in\n%s", word, code, want, body)
		}
		if code, _ := get(t, pages(t, m), "/trace?a="+word+"&b="+b.Key); code != 200 {
			t.Errorf("%s: its trace answers %d", word, code)
		}
	}
	h := pages(t, fleet())
	for target, says := range map[string]string{
		"a=median%3A1&b=" + example: "want median:2 to median:100",
		"a=nothing&b=none":          "no build nothing",
		"a=nowhere&b=" + example:    "no build before it for nowhere",
		"a=last-green&b=none":       "no build last-green",
		"a=+&b=" + example:          "want a build&#39;s key",
	} {
		if code, body := get(t, h, "/compare?"+target); code != 404 || !strings.Contains(body, says) {
			t.Errorf("%s: %d, want %q", target, code, says)
		}
	}
}
