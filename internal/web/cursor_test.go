package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/web"
	"github.com/cimeter/cimeter/internal/webtest"
)

// said are the values in the legends of the first group of charts, and span what it shows.
const (
	said = `[...document.querySelector("[data-lines]").querySelectorAll(".legend b")].map(b => b.textContent)`
	span = `[...cimeter.plots.values()][0].charts.map(c => [c.u.scales.x.min, c.u.scales.x.max])`
	// drawn waits until a group is drawn by the script.
	drawn = `new Promise(done => { const look = n => cimeter.plots && cimeter.plots.size ? requestAnimationFrame(() => requestAnimationFrame(() => done(true))) : n > 1000 ? done(false) : setTimeout(look, 10, n + 1); look(0); })`
)

func plotted(tab *webtest.Tab) place {
	return webtest.Eval[place](tab, `(() => { const e = document.querySelector("[data-lines] .plot"); e.scrollIntoView({block: "center"}); const r = e.getBoundingClientRect(); return {X: r.x + r.width/2, Y: r.y + r.height/2, Left: r.x, Width: r.width}; })()`)
}

func drag(tab *webtest.Tab, p place, from, to float64) {
	a, b := p.Left+from*p.Width, p.Left+to*p.Width
	tab.Do(mouse(input.DispatchMouseEventTypeMouseMoved, a, p.Y, false), mouse(input.DispatchMouseEventTypeMousePressed, a, p.Y, true), mouse(input.DispatchMouseEventTypeMouseMoved, (a+b)/2, p.Y, true),
		mouse(input.DispatchMouseEventTypeMouseMoved, b, p.Y, true), mouse(input.DispatchMouseEventTypeMouseReleased, b, p.Y, true))
}

// One cursor and one span are on all charts of a group, by pointer, by buttons and by
// keys; the legends say the values under the cursor, and those of now without it. The
// page of the queue reads what draws them when a chart is touched, not before.
func TestLines(t *testing.T) {
	m := fleet()
	m.Waiting.Servers = m.Waiting.Servers[:1] // so that waits are drawn, too
	s := httptest.NewServer(pages(t, m))
	t.Cleanup(s.Close)
	tab := webtest.Need(t, browser).Tab(t, webtest.Looks[0])
	t.Cleanup(func() { tab.Go("about:blank") }) // a page that is live holds the server up
	for path, charts := range map[string]int{"/queue": 2, "/machine?name=ci-7": 5} {
		tab.Go(s.URL + path)
		touched := path == "/queue"
		if got := webtest.Eval[bool](tab, `!cimeter.plots && !self.uPlot`); got != touched {
			t.Errorf("%s: untouched %v: want %v", path, got, touched)
		}
		now := webtest.Eval[[]string](tab, said)
		p := plotted(tab)
		at := func(share float64) {
			tab.Do(mouse(input.DispatchMouseEventTypeMouseMoved, p.Left+share*p.Width-3, p.Y, false), mouse(input.DispatchMouseEventTypeMouseMoved, p.Left+share*p.Width, p.Y, false))
		}
		at(0.5)
		if !webtest.Eval[bool](tab, drawn) {
			t.Fatalf("%s: not drawn: %v", path, tab.Problems())
		}
		webtest.Eval[bool](tab, `(() => { const b = document.querySelector("[data-pause]"); if (b && b.textContent === "Pause") b.click(); return true; })()`) // a refresh may come between
		at(0.4)
		// What is said is what the page gave for the reading under the cursor.
		want := webtest.Eval[[]string](tab, `[...cimeter.plots.values()][0].charts.flatMap(c => c.c.ys.map(y => { const v = y[c.u.cursor.idx]; return v === null ? "–" : cimeter.charts.sig3(v); }))`)
		if got := webtest.Eval[[]string](tab, said); fmt.Sprint(got) != fmt.Sprint(want) || fmt.Sprint(got) == fmt.Sprint(now) {
			t.Errorf("%s: legends say %q: want %q", path, got, want)
		}
		if n := webtest.Eval[int](tab, `[...cimeter.plots.values()][0].charts.filter(c => c.u.cursor.left >= 0 && !c.at.hidden).length`); n != charts {
			t.Errorf("%s: the cursor is on %d charts: want %d", path, n, charts)
		}
		tab.Do(mouse(input.DispatchMouseEventTypeMouseMoved, 5, 5, false))
		if got := webtest.Eval[[]string](tab, said); fmt.Sprint(got) != fmt.Sprint(now) {
			t.Errorf("%s: after the cursor: %q: want %q", path, got, now)
		}

		whole := webtest.Eval[[][2]float64](tab, span)[0]
		shows := func(how string, from, to float64) {
			t.Helper()
			length := whole[1] - whole[0]
			for _, got := range webtest.Eval[[][2]float64](tab, `new Promise(done => requestAnimationFrame(() => done(`+span+`)))`) {
				if a, b := (got[0]-whole[0])/length, (got[1]-whole[0])/length; a < from-0.02 || a > from+0.02 || b < to-0.02 || b > to+0.02 {
					t.Errorf("%s: %s shows %.2f to %.2f: want %.2f to %.2f", path, how, a, b, from, to)
				}
			}
		}
		p = plotted(tab)
		drag(tab, p, 0.25, 0.5)
		shows("a drag", 0.25, 0.5)
		url := webtest.Eval[string](tab, `location.href`)
		if !strings.Contains(url, "z=") {
			t.Errorf("%s: the URL is %s", path, url)
		}
		webtest.Eval[any](tab, `document.querySelector("[data-lines] [data-by=right]").click()`)
		shows("later", 0.375, 0.625)
		webtest.Eval[any](tab, `document.querySelector("[data-lines] [data-by=out]").click()`)
		shows("out", 0.25, 0.75)
		webtest.Eval[any](tab, `document.querySelector("[data-lines] [data-by=whole]").click()`)
		shows("the whole", 0, 1)
		if search := webtest.Eval[string](tab, "location.search"); strings.Contains(search, "z=") {
			t.Errorf("%s: the URL still says %q", path, search)
		}

		// The same by what is written into the inputs, which say what is shown.
		webtest.Eval[any](tab, `(() => { const f = document.querySelector("[data-lines] [data-between]"), [a, b] = f.querySelectorAll("input"), g = cimeter.plots.get(f.closest("[data-lines]").dataset.lines), time = s => new Date(1000 * s).toISOString().slice(0, 19).replace("T", " ");
			f.dataset.was = a.value === time(g.from) && b.value === time(g.to); a.value = time(g.from + (g.to - g.from) / 4); b.value = time(g.from + (g.to - g.from) / 2); f.requestSubmit(); })()`)
		shows("inputs", 0.25, 0.5)
		if was := webtest.Eval[string](tab, `document.querySelector("[data-lines] [data-between]").dataset.was`); was != "true" {
			t.Errorf("%s: the inputs did not say the whole time, in the browser's zone, UTC", path)
		}
		webtest.Eval[any](tab, `document.querySelector("[data-lines] [data-by=whole]").click()`)
		// A line is hidden by its button in the legend, and stays so in the URL.
		webtest.Eval[any](tab, `document.querySelector("[data-lines] .legend button").click()`)
		const first = `(() => { const b = document.querySelector("[data-lines] .legend button"), c = [...cimeter.plots.values()][0].charts[0]; return [b.getAttribute("aria-pressed"), String(c.u.series[1].show), new URLSearchParams(location.search).get("hide"), b.textContent.includes(c.c.labels[0])].join(" "); })()`
		id := webtest.Eval[string](tab, `document.querySelector("[data-lines] figure").getAttribute("aria-labelledby").slice(0, -2)`)
		if got := webtest.Eval[string](tab, first); got != "false false "+id+".0 true" {
			t.Errorf("%s: a hidden line is %q", path, got)
		}
		hiding := webtest.Eval[string](tab, `location.href`)
		webtest.Eval[any](tab, `document.querySelector("[data-lines] .legend button").click()`)
		if got := webtest.Eval[string](tab, first); got != "true true  true" {
			t.Errorf("%s: a line that is shown again is %q", path, got)
		}
		small := webtest.Eval[int](tab, `[...document.querySelectorAll(".legend button")].filter(b => b.offsetWidth < 24 || b.offsetHeight < 24).length`)
		if small > 0 {
			t.Errorf("%s: %d buttons of legends are smaller than 24 × 24", path, small)
		}

		webtest.Eval[bool](tab, `(() => { document.querySelector("[data-lines] .plot").focus(); return true; })()`)
		tab.Do(chromedp.KeyEvent(kb.End), chromedp.KeyEvent(kb.ArrowLeft))
		if i, n := webtest.Eval[int](tab, `[...cimeter.plots.values()][0].charts[0].u.cursor.idx`), webtest.Eval[int](tab, `[...cimeter.plots.values()][0].charts[0].c.xs.length`); i != n-2 {
			t.Errorf("%s: after End and left: at %d of %d", path, i, n)
		}
		if heard := webtest.Eval[string](tab, `new Promise(done => setTimeout(() => done(document.getElementById("status").textContent), 400))`); !strings.Contains(heard, ": ") || !strings.Contains(heard, ", ") {
			t.Errorf("%s: a screen reader hears %q", path, heard)
		}
		tab.Do(chromedp.KeyEvent("+"))
		shows("+", 0.25, 0.75)
		tab.Do(chromedp.KeyEvent("0"), chromedp.KeyEvent(kb.Escape))
		shows("0", 0, 1)
		if got := webtest.Eval[[]string](tab, said); fmt.Sprint(got) != fmt.Sprint(now) {
			t.Errorf("%s: after Escape: %q: want %q", path, got, now)
		}

		tab.Go(url) // who is sent the address sees the same
		if !webtest.Eval[bool](tab, drawn) {
			t.Fatalf("%s: not drawn", url)
		}
		shows("the URL", 0.25, 0.5)
		tab.Go(hiding)
		if got := webtest.Eval[bool](tab, drawn); !got || webtest.Eval[string](tab, first) != "false false "+id+".0 true" {
			t.Errorf("%s: shows %q", hiding, webtest.Eval[string](tab, first))
		}
		for _, problem := range tab.Problems() {
			t.Errorf("%s: %s", path, problem)
		}
	}
}

// A page that follows draws what it reads again, and leaves the rest as it is zoomed; a
// zoom of what is read again pauses it.
func TestLines_live(t *testing.T) {
	m := fleet()
	p, err := web.New(web.Options{Source: m, Totals: m, Fleet: m, Past: m.Past, Tick: 50 * time.Millisecond, Now: func() time.Time { return webtest.Now }})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	t.Cleanup(p.Close)
	tab := webtest.Need(t, browser).Tab(t, webtest.Looks[0])
	tab.Go(s.URL + "/machine?name=ci-7")
	// state is the span of the last day, of its axis the first text, the nodes of the page, and what is said of following.
	const state = `JSON.stringify([cimeter.plots.get("day").charts[0].u.scales.x.min, document.querySelector("#d-cpu-h").closest("figure").querySelector(".xaxis text").textContent, document.querySelectorAll("*").length, document.querySelectorAll(".live").length, document.querySelector("[data-live-state]").textContent])`
	webtest.Eval[any](tab, `document.querySelector("[data-lines=day] [data-by=in]").click()`)
	// follows waits until the charts of the last minutes were drawn anew.
	const follows = `new Promise(done => { const was = cimeter.plots.get("lately"); const look = n => cimeter.plots.get("lately") !== was ? requestAnimationFrame(() => done(true)) : n > 500 ? done(false) : setTimeout(look, 10, n + 1); look(0); })`
	if !webtest.Eval[bool](tab, follows) {
		t.Fatal("does not follow")
	}
	before := webtest.Eval[string](tab, state)
	for range 3 {
		if !webtest.Eval[bool](tab, follows) {
			t.Fatal("does not follow any more")
		}
	}
	if after := webtest.Eval[string](tab, state); after != before || !strings.Contains(after, `,11,"live"]`) {
		t.Errorf("after a while: %s: was %s", after, before)
	}
	webtest.Eval[any](tab, `document.querySelector("[data-lines=lately] [data-by=in]").click()`)
	if said := webtest.Eval[string](tab, `document.querySelector("[data-live-state]").textContent`); !strings.HasPrefix(said, "paused while zoomed") {
		t.Errorf("zoomed, it says %q", said)
	}
	webtest.Eval[any](tab, `document.querySelector("[data-lines=lately] [data-by=whole]").click()`)
	if !webtest.Eval[bool](tab, follows) {
		t.Error("does not follow again")
	}
	for _, problem := range tab.Problems() {
		t.Error(problem)
	}
}

// A drag over a trend chooses its time for the whole page.
func TestTrends_drag(t *testing.T) {
	s := httptest.NewServer(pages(t, fleet()))
	t.Cleanup(s.Close)
	tab := webtest.Need(t, browser).Tab(t, webtest.Looks[0])
	for _, path := range []string{"/job?project=group%2Fapp&name=build-and-test&t=7d", "/project?name=group%2Fapp&t=7d"} {
		tab.Go(s.URL + path)
		p := webtest.Eval[place](tab, `(() => { const e = document.querySelectorAll("[data-brush] .area")[1]; e.scrollIntoView({block: "center"}); const r = e.getBoundingClientRect(); return {X: r.x + r.width/2, Y: r.y + r.height/2, Left: r.x, Width: r.width}; })()`)
		drag(tab, p, 0.25, 0.75)
		at := asked(t, tab, "&to=").Query()
		q := []string{at.Get("from"), at.Get("to"), at.Get("t")}
		for i, share := range []float64{0.25, 0.75} {
			want := webtest.Now.Add(-time.Duration((1 - share) * float64(7*24*time.Hour)))
			if got, err := time.Parse("2006-01-02T15:04", q[i]); err != nil || got.Sub(want).Abs() > 40*time.Minute {
				t.Errorf("%s: chooses %q: want about %s", path, q, want)
			}
		}
		if q[2] != "" {
			t.Errorf("%s: keeps the range %q", path, q[2])
		}
	}
}

// The page of a build that runs follows it, in figures and in charts, until it is paused;
// the cursor is over the lanes that came in place of the first ones, too.
func TestBuild_live(t *testing.T) {
	var shown atomic.Pointer[web.Pages]
	var broken atomic.Bool // traces are not to be had
	show := func(cpu float64, stages int) {
		r := webtest.Running()
		r.Usage.CPUSeconds.Total = cimeter.Some(cpu)
		r.Stages = r.Stages[:stages]
		m := &webtest.Memory{Records: []*cimeter.Record{r}, Running: map[string]bool{r.Key: true}}
		p, err := web.New(web.Options{Source: m, Tick: 20 * time.Millisecond, Now: func() time.Time { return webtest.Now }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		shown.Store(p)
	}
	show(101, 3)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() && strings.HasPrefix(r.URL.Path, "/trace/") {
			http.Error(w, "", http.StatusServiceUnavailable)
			return
		}
		shown.Load().ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	tab := webtest.Need(t, browser).Tab(t, webtest.Looks[0])
	tab.Go(s.URL + key(webtest.Running()))
	t.Cleanup(func() { tab.Go("about:blank") })
	// says waits for the CPU time, the stages of the table, of the lanes and of the charts.
	const state = `[document.querySelector("#figures .cpu .value").textContent, document.querySelectorAll("#stages tbody tr").length, document.querySelectorAll("#lanes a.stage").length, cimeter.build.shared.bands.length, document.querySelectorAll(".legend button").length].join(" ")`
	says := func(want string) {
		t.Helper()
		if got := webtest.Eval[string](tab, `new Promise(done => { const look = n => `+state+` === "`+want+`" || n > 500 ? done(`+state+`) : setTimeout(look, 10, n + 1); look(0); })`); got != want {
			t.Errorf("shows %q: want %q", got, want)
		}
	}
	says("101 s 3 3 3 8")
	show(202, 4)
	says("202 s 4 4 4 8")
	p := plotOf(tab, "cpu")
	tab.Do(mouse(input.DispatchMouseEventTypeMouseMoved, p.X-3, p.Y, false), mouse(input.DispatchMouseEventTypeMouseMoved, p.X, p.Y, false))
	if !webtest.Eval[bool](tab, `new Promise(done => { const look = n => { const l = document.querySelector("#lanes .cursor-line"); if (l && !l.hidden || n > 100) done(n <= 100); else setTimeout(look, 10, n + 1); }; look(0); })`) {
		t.Error("no cursor over the lanes")
	}
	if !webtest.Eval[bool](tab, `new Promise(done => { const was = cimeter.build.charts()[0].u; const look = n => { const u = cimeter.build.charts()[0].u; if (u !== was || n > 500) setTimeout(() => done(u !== was && u.cursor.left > 0), 0); else setTimeout(look, 1, n + 1); }; look(0); })`) {
		t.Error("charts that were drawn anew have lost the cursor")
	}
	webtest.Eval[any](tab, `document.querySelector("[data-pause]").click()`)
	show(303, 4)
	if got := webtest.Eval[string](tab, `new Promise(done => setTimeout(() => done(document.querySelector("#figures .cpu .value").textContent + " " + document.querySelector("[data-live-state]").textContent), 300))`); got != "202 s paused" {
		t.Errorf("paused, it says %q", got)
	}
	for _, problem := range tab.Problems() {
		t.Error(problem)
	}
	// Without its trace the page is as the server drew it, and offers to read it again.
	broken.Store(true)
	tab.Go(s.URL + key(webtest.Running()))
	webtest.Eval[any](tab, `document.querySelector("[data-pause]").click()`)
	const note = `(document.querySelector(".reading") || {textContent: ""}).textContent`
	if said := webtest.Eval[string](tab, note); !strings.Contains(said, "the server answered 503. Retry") {
		t.Errorf("without a trace it says %q", said)
	}
	broken.Store(false)
	webtest.Eval[any](tab, `document.querySelector(".reading button").click()`)
	if got := webtest.Eval[string](tab, `new Promise(done => { const look = n => cimeter.build.charts().length === 4 || n > 500 ? done(`+note+` + cimeter.build.charts().length) : setTimeout(look, 10, n + 1); look(0); })`); got != "4" {
		t.Errorf("after a retry: %q: want 4 charts, and no note", got)
	}
}
