package web_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/cimeter/cimeter/internal/webtest"
)

// said are the values in the legends of the first group of charts.
const said = `[...document.querySelector(".trends").querySelectorAll("figure[data-cursor] .legend b")].map(b => b.textContent)`

// The cursor on one of the charts that the server drew is on all of them, by pointer and
// by keys, with the values of their tables; when it leaves, those of now are back.
func TestLines_Cursor(t *testing.T) {
	m := fleet()
	m.Waiting.Servers = m.Waiting.Servers[:1] // so that waits are drawn, too
	s := httptest.NewServer(pages(t, m))
	defer s.Close()
	tab := webtest.Need(t, browser).Tab(t, webtest.Looks[0])
	for path, charts := range map[string]int{"/queue": 2, "/machine?name=ci-7": 5} {
		tab.Go(s.URL + path)
		webtest.Eval[bool](tab, `(() => { const b = document.querySelector("[data-pause]"); if (b) b.click(); return true; })()`) // a refresh moves nothing, but may come between
		now := webtest.Eval[[]string](tab, said)
		p := webtest.Eval[place](tab, `(() => { const e = document.querySelector("figure[data-cursor] .plot"); e.scrollIntoView({block: "center"}); const r = e.getBoundingClientRect(); return {X: r.x + r.width/2, Y: r.y + r.height/2, Left: r.x, Width: r.width}; })()`)
		tab.Do(mouse(input.DispatchMouseEventTypeMouseMoved, p.X-3, p.Y, false), mouse(input.DispatchMouseEventTypeMouseMoved, p.X, p.Y, false))
		if n := webtest.Eval[int](tab, `document.querySelectorAll(".plot .cursor:not([hidden])").length`); n != charts {
			t.Errorf("%s: the cursor is on %d charts: want %d", path, n, charts)
		}
		// What is said is the row of the table under the middle.
		want := webtest.Eval[[]string](tab, `[...document.querySelector(".trends").querySelectorAll("figure[data-cursor]")].flatMap(f => { const rows = [...f.querySelectorAll("tbody tr")]; return [...rows[Math.floor(rows.length / 2)].children].slice(1).map(c => c.textContent); })`)
		if got := webtest.Eval[[]string](tab, said); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: legends say %q: want %q", path, got, want)
		}
		tab.Do(mouse(input.DispatchMouseEventTypeMouseMoved, 5, 5, false))
		if got := webtest.Eval[[]string](tab, said); fmt.Sprint(got) != fmt.Sprint(now) {
			t.Errorf("%s: after the cursor: %q: want %q", path, got, now)
		}
		webtest.Eval[bool](tab, `(() => { document.querySelector("figure[data-cursor] .plot").focus(); return true; })()`)
		tab.Do(chromedp.KeyEvent(kb.End), chromedp.KeyEvent(kb.ArrowLeft))
		first := webtest.Eval[string](tab, `(() => { const rows = [...document.querySelector("figure[data-cursor]").querySelectorAll("tbody tr")]; return rows[rows.length - 2].textContent; })()`)
		if got := webtest.Eval[string](tab, `document.querySelector(".legend .at").textContent`); got == "" || !strings.HasPrefix(first, strings.TrimSuffix(got, " UTC")) {
			t.Errorf("%s: after End and left: %q: want the time of %q", path, got, first)
		}
		if heard := webtest.Eval[string](tab, `new Promise(done => setTimeout(() => done(document.getElementById("status").textContent), 400))`); !strings.Contains(heard, " UTC: ") {
			t.Errorf("%s: a screen reader hears %q", path, heard)
		}
		tab.Do(chromedp.KeyEvent(kb.Escape))
		if got := webtest.Eval[[]string](tab, said); fmt.Sprint(got) != fmt.Sprint(now) {
			t.Errorf("%s: after Escape: %q: want %q", path, got, now)
		}
	}
	for _, problem := range tab.Problems() {
		t.Error(problem)
	}
}
