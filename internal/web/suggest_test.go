package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/cimeter/cimeter/internal/web"
	"github.com/cimeter/cimeter/internal/webtest"
)

func TestSuggest(t *testing.T) {
	h := pages(t, fleet())
	for target, want := range map[string]struct {
		status int
		has    string
	}{
		"/suggest?kind=project&part=APP": {200, `{"names":["group/app"`}, "/suggest?kind=machine&part=nothing-of-this": {200, `{"names":[]}`},
		"/suggest?kind=secret&part=a": {400, "kind: want project"}, "/suggest": {400, "kind"}, "/suggest?kind=job&part=" + strings.Repeat("a", 201): {400, "at most 200 bytes"},
		"/suggest?kind=job&part=%ff": {400, "UTF-8"},
	} {
		code, body := get(t, h, target)
		if code != want.status || !strings.Contains(body, want.has) {
			t.Errorf("%s: %d %.300s: want %d and %q", target, code, body, want.status, want.has)
		}
	}
	// Without names there is no such page, and no form that asks for it.
	m := fleet()
	plain, err := web.New(web.Options{Source: m})
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := get(t, plain, "/suggest?kind=job&part=a"); code != http.StatusNotFound {
		t.Errorf("without names: %d", code)
	}
	_, body := get(t, plain, "/builds?t=7d")
	lacks(t, body, "data-suggest")
	wants(t, body, `<input id="q" type="search" name="q"`)
	// What cannot be shown as it is is no suggestion.
	hostile, err := web.New(web.Options{Source: m, Names: func(context.Context, string, string, int) ([]string, error) {
		return []string{"good", "ev\x1bil", "\u202ereversed", ""}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, body = get(t, hostile, "/suggest?kind=job&part=")
	var answer struct{ Names []string }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer.Names) != 1 || answer.Names[0] != "good" {
		t.Errorf("%v: %s", err, body)
	}
	away, err := web.New(web.Options{Source: m, Names: func(context.Context, string, string, int) ([]string, error) { return nil, errors.New("disk") }})
	if err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, away, "/suggest?kind=job&part="); code != 500 || strings.Contains(body, "disk") {
		t.Errorf("%d %s", code, body)
	}
}

// The filter is filled by keys alone: words, then names; a name with a space comes in
// quotes; what is typed past the last is aborted.
func TestSuggest_Keys(t *testing.T) {
	m := fleet()
	m.Records[0].Name = `unit "fast" tests`
	s := httptest.NewServer(pages(t, m))
	defer s.Close()
	tab := webtest.Need(t, browser).Tab(t, webtest.Looks[0])
	tab.Go(s.URL + "/builds?t=all")
	webtest.Eval[bool](tab, `(() => { document.getElementById("q").focus(); return true; })()`)
	options := func(want string) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; {
			got := webtest.Eval[[]string](tab, `[...document.querySelectorAll("#suggestions:not([hidden]) [role=option]")].map(o => o.textContent)`)
			if len(got) > 0 && strings.Contains(strings.Join(got, "|"), want) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("suggests %q: want %q", got, want)
			}
		}
	}
	keys := func(texts ...string) {
		for _, k := range texts {
			tab.Do(chromedp.KeyEvent(k))
		}
	}
	value := func() string { return webtest.Eval[string](tab, `document.getElementById("q").value`) }
	keys("p", "r")
	options("project:")
	keys(kb.ArrowDown, kb.Enter)
	options("group/app")
	webtest.Eval[any](tab, axe+";null")
	checkAxe(t, tab, `["wcag2a","wcag2aa","wcag21a","wcag21aa","wcag22aa","best-practice"]`)
	tab.Shot(t, "suggest-1440-light")
	keys("a", "p", "p")
	options("group/app")
	if n := webtest.Eval[string](tab, `document.getElementById("q").getAttribute("aria-expanded")`); n != "true" {
		t.Errorf("aria-expanded %q", n)
	}
	keys(kb.ArrowDown, kb.Enter)
	if v := value(); v != "project:group/app " {
		t.Fatalf("value %q", v)
	}
	keys("-", "j", "o", "b", ":", "f", "a", "s", "t")
	options(`unit "fast" tests`)
	keys(kb.ArrowDown, kb.Enter)
	const whole = `project:group/app -job:"unit \"fast\" tests" `
	if v := value(); v != whole {
		t.Errorf("value %q: want %q", v, whole)
	}
	keys("r", "e", "s", "u", "l", "t", ":")
	options("failed")
	keys(kb.Escape)
	if n := webtest.Eval[bool](tab, `document.getElementById("suggestions").hidden`); !n || value() != whole+"result:" {
		t.Errorf("after Escape: hidden %v, %q", n, value())
	}
	keys("f", "a", "i")
	options("failed")
	keys(kb.ArrowDown, kb.Enter, kb.Enter)
	for end := time.Now().Add(20 * time.Second); ; {
		at, err := url.Parse(webtest.Eval[string](tab, `location.href`))
		if err == nil && strings.TrimSpace(at.Query().Get("q")) == strings.TrimSpace(whole)+" result:failed" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("at %v", at)
		}
	}
	for _, problem := range tab.Problems() {
		t.Error(problem)
	}
}
