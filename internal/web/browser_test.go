package web_test

import (
	_ "embed"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/section"
	"github.com/cimeter/cimeter/internal/web"
	"github.com/cimeter/cimeter/internal/webtest"
)

//go:embed testdata/axe/axe.min.js
var axe string

// fleet is what the pages are tested with.
func fleet() *webtest.Memory {
	m := &webtest.Memory{Records: append(webtest.History(200), webtest.Nothing(), webtest.Running(), webtest.Unmetered(), webtest.Skipped()), Fleet: webtest.Machines(), Gone: 2, Waiting: webtest.Queue()}
	m.Running = map[string]bool{webtest.Running().Key: true}
	m.Logs = map[string]section.Log{webtest.OOM().Key: webtest.Log(webtest.OOM())}
	return m
}

type shown struct{ name, path string }

func key(r *cimeter.Record) string { return "/builds/" + r.Key }

// everyPage is every page in every state that looks different.
func everyPage() []shown {
	job := "?project=group%2Fapp&name=build-and-test"
	return []shown{
		{"now", "/"}, {"builds", "/builds?t=7d"}, {"builds-filtered", "/builds?from=2026-11-23&to=2026-12-01&q=result%3Afailed+cpu%3E100s&sort=-cpu&cols=runner%2Ccpu%2Ccores%2Cmem"}, {"builds-empty", "/builds?q=project%3Anone"},
		{"builds-wrong", "/builds?q=lint+colour%3Ared+x"},
		{"build", key(webtest.Example())}, {"oom", key(webtest.OOM()) + "?sections=on"}, {"incomplete", key(webtest.Incomplete())}, {"absent", key(webtest.Absent())},
		{"single", key(webtest.Single())}, {"nothing", key(webtest.Nothing())}, {"running", key(webtest.Running())},
		{"unmetered", key(webtest.Unmetered())}, {"skipped", key(webtest.Skipped())}, {"builds-unmetered", "/builds?q=9190"},
		{"zoomed", key(webtest.Example()) + "?from=20&to=80&table=mem&stages=-cpu&mem=kinds&disk=ops"},
		{"help", "/help"}, {"missing", "/builds/gitlab/none/1"},
		{"projects", "/projects?t=7d"}, {"project", "/project?name=group%2Fapp&t=7d"}, {"job", "/job" + job + "&t=7d"},
		{"machines", "/machines"}, {"machine", "/machine?name=ci-7"}, {"runner", "/runner?key=s_ci-7&t=7d"},
		{"queue", "/queue"}, {"queue-away", "/queue?server=drone.example.com&t=6h"}, {"queue-running", "/queue?show=running&server=gitlab.example.com"}, {"queue-wrong", "/queue?why=x"},
		{"compare", "/compare?a=" + url.QueryEscape(webtest.OOM().Key) + "&b=" + url.QueryEscape(webtest.Example().Key)},
		{"compare-stages", "/compare?align=stages&table=mem&a=" + url.QueryEscape(webtest.OOM().Key) + "&b=" + url.QueryEscape(webtest.Example().Key)},
		{"compare-unmetered", "/compare?a=" + url.QueryEscape(webtest.Unmetered().Key) + "&b=" + url.QueryEscape(webtest.Example().Key)},
		{"compare-median", "/compare?a=median%3A20&b=" + url.QueryEscape(webtest.Example().Key)},
	}
}

func TestPagesInBrowser(t *testing.T) {
	s := httptest.NewServer(pages(t, fleet()))
	t.Cleanup(s.Close)
	b := webtest.Need(t, browser)
	const tabs = 2
	all := everyPage()
	for first := range tabs {
		t.Run(fmt.Sprint("tab ", first), func(t *testing.T) {
			t.Parallel()
			tab := b.Tab(t, webtest.Looks[0])
			for i := first; i < len(all); i += tabs {
				t.Run(all[i].name, func(t *testing.T) { lookAt(t, tab, s.URL, all[i]) })
			}
		})
	}
}

// lookAt opens a page once and looks at it in all looks. All of axe's rules run
// on the first; then those that a theme, or a width, can break: a theme changes
// colours only, and a width the place of things.
func lookAt(t *testing.T, tab *webtest.Tab, base string, p shown) {
	tab.Look(webtest.Looks[0])
	tab.Go(base + p.path)
	webtest.Eval[any](tab, axe+";null")
	for _, l := range webtest.Looks {
		tab.Look(l)
		webtest.Eval[bool](tab, `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
		tab.Shot(t, p.name+"-"+l.String())
		switch {
		case !l.Dark && l.Width > 1000:
			checkAxe(t, tab, `["wcag2a","wcag2aa","wcag21a","wcag21aa","wcag22aa","best-practice"]`)
		case !l.Dark:
			checkAxe(t, tab, `{type: "rule", values: ["scrollable-region-focusable", "target-size"]}`)
		case l.Width > 1000:
			checkAxe(t, tab, `{type: "rule", values: ["color-contrast"]}`)
		}
		if !l.Dark {
			checkNodes(t, tab)
			checkWidth(t, tab, l.Width)
			checkTargets(t, tab)
		}
	}
	for _, problem := range tab.Problems() {
		if !strings.Contains(problem, "404 (Not Found)") && !strings.Contains(problem, "400 (Bad Request)") { // of the page itself, where that is what is looked at
			t.Error(problem)
		}
	}
}

// checkNodes holds that the page with what its script adds is within its budget.
func checkNodes(t *testing.T, tab *webtest.Tab) {
	t.Helper()
	if n := webtest.Eval[int](tab, `document.querySelectorAll("*").length`); n > 1500 {
		t.Errorf("%d nodes: want at most 1,500", n)
	}
}

// checkWidth holds that the page never scrolls sideways.
func checkWidth(t *testing.T, tab *webtest.Tab, width int64) {
	t.Helper()
	if w := webtest.Eval[int64](tab, "document.documentElement.scrollWidth"); w > width {
		t.Errorf("page is %d wide: want at most %d: %q", w, width, webtest.Eval[[]string](tab, `[...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll")).slice(0, 4).map(e => e.outerHTML.slice(0, 120))`))
	}
}

// checkAxe runs axe-core: no violation of WCAG 2.2 AA that is serious.
func checkAxe(t *testing.T, tab *webtest.Tab, only string) {
	t.Helper()
	found := webtest.Eval[[]string](tab, `axe.run(document, {resultTypes: ["violations"], runOnly: `+only+`}).then(r => r.violations.filter(v => v.impact !== "minor").map(v => v.impact + " " + v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 160) + " (" + (n.any[0] || n.all[0] || {message: ""}).message + ")").join(" | ")))`)
	for _, f := range found {
		t.Error(f)
	}
}

// checkTargets holds that what can be pressed is large enough: 24 by 24, or
// text in a sentence, or another way to the same is (WCAG 2.5.8).
func checkTargets(t *testing.T, tab *webtest.Tab) {
	t.Helper()
	small := webtest.Eval[[]string](tab, `[...document.querySelectorAll("a[href],button,input:not([type=hidden]),summary")].filter(e => {
		const r = e.getBoundingClientRect();
		return r.width > 1 && (r.width < 23.5 || r.height < 23.5) && e.tabIndex >= 0 && !e.closest("p,figcaption p,[data-lanes],.skip") && getComputedStyle(e).visibility !== "hidden";
	}).slice(0, 5).map(e => { const r = e.getBoundingClientRect(); return e.outerHTML.slice(0, 120) + " is " + r.width.toFixed(1) + " × " + r.height.toFixed(1); })`)
	for _, s := range small {
		t.Error(s)
	}
}

// The hostile names as every name, on every page: no dialog, no violation of
// the policy, no error.
func TestHostileNamesInBrowser(t *testing.T) {
	b := webtest.Need(t, browser)
	// The lists show all names at once.
	every := &webtest.Memory{}
	for i, s := range webtest.Hostile {
		r := webtest.Named(webtest.Example(), s)
		r.Key += fmt.Sprintf("-%d", i)
		every.Records = append(every.Records, r)
		m := webtest.Machines()[0]
		webtest.NameMachine(&m, s)
		every.Fleet = append(every.Fleet, m)
		st := webtest.Queue()
		webtest.NameQueue(&st, s)
		every.Waiting.Servers, every.Waiting.Builds, every.Waiting.Workers = append(every.Waiting.Servers, st.Servers[1]), append(every.Waiting.Builds, st.Builds[0], st.Builds[20]), append(every.Waiting.Workers, st.Workers[0])
	}
	t.Run("lists", func(t *testing.T) {
		t.Parallel()
		newHarm(t, b).look(every, "/", "/builds?t=all", "/projects?t=all", "/machines", "/queue?show=all", "/queue?show=all&page=2&workers=2")
	})
	const tabs = 2
	for first := range tabs {
		t.Run(fmt.Sprint("tab ", first), func(t *testing.T) {
			t.Parallel()
			h := newHarm(t, b)
			for i := first; i < len(webtest.Hostile); i += tabs {
				s := webtest.Hostile[i]
				m := &webtest.Memory{Records: []*cimeter.Record{webtest.Named(webtest.Example(), s), webtest.Named(webtest.OOM(), s)}, Fleet: webtest.Machines()[:2]}
				m.Records[1].Key += "-2"
				for j := range m.Fleet {
					webtest.NameMachine(&m.Fleet[j], s)
				}
				q := url.QueryEscape(s)
				log := webtest.Log(webtest.Example())
				for j := range log.Sections {
					log.Sections[j].Name = s
				}
				m.Logs = map[string]section.Log{m.Records[0].Key: log}
				h.look(m, "/builds?q="+q+"&project="+q, "/builds/"+m.Records[0].Key+"?sections=on", "/project?t=all&name="+q, "/job?t=all&project="+q+"&name="+q,
					"/machine?t=all&name="+q, "/runner?t=all&key="+q, "/compare?a="+url.QueryEscape(m.Records[0].Key)+"&b="+url.QueryEscape(m.Records[1].Key))
			}
		})
	}
}

// harm looks in one tab, at one server, for what a page must never do. The
// server shows another fleet each time, so that the browser keeps the assets.
type harm struct {
	t     *testing.T
	tab   *webtest.Tab
	url   string
	pages atomic.Pointer[web.Pages]
}

func newHarm(t *testing.T, b *webtest.Browser) *harm {
	h := &harm{t: t, tab: b.Tab(t, webtest.Looks[0])}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.pages.Load().ServeHTTP(w, r) }))
	t.Cleanup(s.Close)
	t.Cleanup(func() { h.tab.Go("about:blank") }) // a page that is live holds the server up
	h.url = s.URL
	return h
}

func (h *harm) look(m *webtest.Memory, paths ...string) {
	h.t.Helper()
	h.pages.Store(pages(h.t, m))
	for _, path := range paths {
		h.tab.Go(h.url + path)
		for _, problem := range h.tab.Problems() {
			// A name can make the address of no build (.., 5,000 letters): then the page says so.
			if !strings.Contains(problem, "400 (Bad Request)") && !(strings.Contains(problem, "404 (Not Found)") && !strings.Contains(problem, "/static/")) {
				h.t.Errorf("%.300s: %s", path, problem)
			}
		}
		requests, _ := h.tab.Loaded()
		for _, r := range requests {
			if !strings.HasPrefix(r, h.url) {
				h.t.Errorf("%.300s: asked %s", path, r)
			}
		}
		if n := webtest.Eval[int](h.tab, `document.querySelectorAll("script:not([src]),iframe,base,meta[http-equiv],img,[onload],[onerror],[onmouseover],[onfocus],[style],style").length - document.querySelectorAll(".live [style],html[style]").length`); n != 0 {
			h.t.Errorf("%.300s: %d elements that no template has", path, n)
		}
	}
}

func mouse(typ input.DispatchMouseEventType, x, y float64, button bool) chromedp.Action[chromedp.Void] {
	if button {
		return chromedp.MouseEvent(typ, x, y, chromedp.ButtonLeft, chromedp.ClickCount(1))
	}
	return chromedp.MouseEvent(typ, x, y)
}

// place is the middle of a chart's plot, and its width.
type place struct{ X, Y, Left, Width float64 }

func plotOf(tab *webtest.Tab, chart string) place {
	return webtest.Eval[place](tab, `(() => { const e = document.querySelector("[data-chart=`+chart+`] .u-over"); e.scrollIntoView({block: "center"}); const r = e.getBoundingClientRect(); return {X: r.x + r.width/2, Y: r.y + r.height/2, Left: r.x, Width: r.width}; })()`)
}

const legends = `[...document.querySelectorAll(".legend output")].map(o => o.textContent)`

func TestBuild_Cursor(t *testing.T) {
	s := httptest.NewServer(pages(t, fleet()))
	defer s.Close()
	tab := webtest.Need(t, browser).Tab(t, webtest.Looks[0])
	tab.Go(s.URL + key(webtest.Example()))
	still := webtest.Eval[[]string](tab, legends)
	p := plotOf(tab, "cpu")
	tab.Do(mouse(input.DispatchMouseEventTypeMouseMoved, p.X-3, p.Y, false), mouse(input.DispatchMouseEventTypeMouseMoved, p.X, p.Y, false))
	got := webtest.Eval[[]string](tab, `new Promise(done => requestAnimationFrame(() => done(`+legends+`)))`)
	tr := webtest.Example().Trace
	i := webtest.Eval[int](tab, `cimeter.build.charts()[0].u.cursor.idx`)
	want := fmt.Sprintf("%.2f", float64(tr.CPUMillicores[i].Value)/1000)
	if got[0] != want || len(got) != 8 {
		t.Errorf("legends say %q: want %s first", got, want)
	}
	changed := 0
	for j := range got {
		if got[j] != still[j] {
			changed++
		}
	}
	if changed < 7 {
		t.Errorf("cursor on one chart: %q became %q: want the values of all charts", still, got)
	}
	if n := webtest.Eval[int](tab, `cimeter.build.charts().filter(c => c.u.cursor.idx === `+fmt.Sprint(i)+`).length`); n != 4 {
		t.Errorf("cursor stands on %d charts: want 4", n)
	}
	if at := webtest.Eval[string](tab, `document.querySelector(".clock").textContent`); !strings.Contains(at, "step_script") {
		t.Errorf("clock says %q: want the stage", at)
	}
	tab.Do(mouse(input.DispatchMouseEventTypeMouseMoved, 5, 5, false))
	if got := webtest.Eval[[]string](tab, `new Promise(done => requestAnimationFrame(() => done(`+legends+`)))`); fmt.Sprint(got) != fmt.Sprint(still) {
		t.Errorf("after the cursor: %q: want %q", got, still)
	}
	// A button of the legend hides its line; so does the URL that it leaves.
	const second = `(() => { const b = document.querySelectorAll("[data-chart=mem] .legend button")[1]; return [b.getAttribute("aria-pressed"), cimeter.build.charts()[1].u.series[2].show, b.offsetWidth >= 24 && b.offsetHeight >= 24, location.search].join(" "); })()`
	webtest.Eval[any](tab, `document.querySelectorAll("[data-chart=mem] .legend button")[1].click()`)
	if got := webtest.Eval[string](tab, second); got != "false false true ?hide=mem.1" {
		t.Errorf("hidden, the working set is %q", got)
	}
	tab.Go(s.URL + key(webtest.Example()) + "?table=cpu")
	checkChartTree(t, tab, "CPU cores", "trace-table")
	tab.Go(s.URL + key(webtest.Example()) + "?hide=mem.1&mem=kinds&disk=ops")
	if got := webtest.Eval[string](tab, second); got != "false false true ?hide=mem.1&mem=kinds&disk=ops" {
		t.Errorf("by the URL, it is %q", got)
	}
	// Kinds of memory and operations are those of the stages: here of step_script and what ran beside it.
	sums := webtest.Eval[[]float64](tab, `[1, 2].flatMap(i => cimeter.build.charts()[i].c.ys.map(y => y[60]))`)
	script, beside := webtest.Example().Stages[3].Usage, webtest.Example().Stages[7].Usage
	for i, want := range []float64{script.MemoryAnonBytes.Avg + beside.MemoryAnonBytes.Avg, script.MemoryBytes.Avg + beside.MemoryBytes.Avg - script.MemoryAnonBytes.Avg - beside.MemoryAnonBytes.Avg,
		script.IOOperationsPerSecond.Read.Avg + beside.IOOperationsPerSecond.Read.Avg, -script.IOOperationsPerSecond.Write.Avg - beside.IOOperationsPerSecond.Write.Avg} {
		if i >= len(sums) || math.Abs(sums[i]-want) > 0.001*math.Abs(want) {
			t.Errorf("in the middle, line %d is at %v: want %.6g", i, sums, want)
		}
	}
	if words := webtest.Eval[string](tab, `cimeter.build.charts().slice(1, 3).map(c => c.c.labels.join("+") + " " + c.c.value(Math.abs(c.c.ys[0][60]))).join(", ")`); words != "anonymous+files and kernel 1.92 GiB, read+written 51.0/s" {
		t.Errorf("it says %q", words)
	}
	perMove := webtest.Eval[float64](tab, `(() => { const u = cimeter.build.charts()[0].u; const t = performance.now(); for (let i = 0; i < 200; i++) u.setCursor({left: 200 + i, top: 50}); return (performance.now() - t) / 200; })()`)
	t.Logf("a move takes %.2f ms", perMove)
}

const scales = `cimeter.build.charts().map(c => [c.u.scales.x.min, c.u.scales.x.max])`

func TestBuild_Zoom(t *testing.T) {
	s := httptest.NewServer(pages(t, fleet()))
	defer s.Close()
	b := webtest.Need(t, browser)
	open := func(t *testing.T, query string) *webtest.Tab {
		tab := b.Tab(t, webtest.Looks[0])
		tab.Go(s.URL + key(webtest.Example()) + query)
		return tab
	}
	same := func(t *testing.T, tab *webtest.Tab, from, to, within float64) {
		t.Helper()
		got := webtest.Eval[[][2]float64](tab, `new Promise(done => requestAnimationFrame(() => done(`+scales+`)))`)
		if len(got) != 4 {
			t.Fatalf("%d charts: want 4", len(got))
		}
		for _, g := range got {
			if g[0] < from-within || g[0] > from+within || g[1] < to-within || g[1] > to+within {
				t.Errorf("chart shows %.1f to %.1f: want %.1f to %.1f", g[0], g[1], from, to)
			}
		}
		problems := tab.Problems()
		if len(problems) > 0 {
			t.Error(problems)
		}
	}
	whole := 256.6
	t.Run("by drag, and back by double click", func(t *testing.T) {
		tab := open(t, "")
		p := plotOf(tab, "disk")
		from, to := p.Left+0.25*p.Width, p.Left+0.5*p.Width
		tab.Do(mouse(input.DispatchMouseEventTypeMouseMoved, from, p.Y, false), mouse(input.DispatchMouseEventTypeMousePressed, from, p.Y, true), mouse(input.DispatchMouseEventTypeMouseMoved, from+40, p.Y, true), mouse(input.DispatchMouseEventTypeMouseMoved, to, p.Y, true), mouse(input.DispatchMouseEventTypeMouseReleased, to, p.Y, true))
		same(t, tab, 0.25*whole-3.1, 0.5*whole-3.1, 1.5)
		if search := webtest.Eval[string](tab, "location.search"); !strings.Contains(search, "from=6") || !strings.Contains(search, "to=12") {
			t.Errorf("URL says %q", search)
		}
		tab.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, p.X, p.Y, chromedp.ButtonLeft, chromedp.ClickCount(1)), chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, p.X, p.Y, chromedp.ButtonLeft, chromedp.ClickCount(1)),
			chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, p.X, p.Y, chromedp.ButtonLeft, chromedp.ClickCount(2)), chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, p.X, p.Y, chromedp.ButtonLeft, chromedp.ClickCount(2)))
		same(t, tab, -3.1, 253.5, 0.1)
		if search := webtest.Eval[string](tab, "location.search"); search != "" {
			t.Errorf("URL says %q: want nothing", search)
		}
	})
	t.Run("by clicks only", func(t *testing.T) {
		tab := open(t, "")
		webtest.Eval[any](tab, `document.querySelector("[data-lanes] a.most").dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true}))`)
		same(t, tab, 16.9, 231.5, 0.1)
		webtest.Eval[any](tab, `document.querySelector("[data-zoom=in]").click()`)
		same(t, tab, 16.9+53.65, 231.5-53.65, 0.1)
		webtest.Eval[any](tab, `document.querySelector("[data-zoom=reset]").click()`)
		same(t, tab, -3.1, 253.5, 0.1)
		webtest.Eval[any](tab, `document.querySelector(".answer a").click()`)
		same(t, tab, 16.9, 231.5, 0.1)
		webtest.Eval[any](tab, `history.back()`)
		same(t, tab, -3.1, 253.5, 0.1)
	})
	t.Run("by the URL", func(t *testing.T) {
		same(t, open(t, "?from=20&to=80"), 20, 80, 0.01)
		tab := open(t, "?from=abc&to=80")
		same(t, tab, -3.1, 253.5, 0.1)
		if told := webtest.Eval[string](tab, `document.querySelector(".problem").textContent`); !strings.Contains(told, "from: want seconds") {
			t.Errorf("told %q", told)
		}
	})
	t.Run("by keyboard alone", func(t *testing.T) {
		tab := open(t, "")
		webtest.Eval[any](tab, `document.querySelector("[data-chart=mem] [data-plot]").focus()`)
		tab.Do(chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight, chromedp.KeyModifiers(chromedp.ModifierShift)), chromedp.KeyEvent(" "),
			chromedp.KeyEvent(kb.ArrowRight, chromedp.KeyModifiers(chromedp.ModifierShift)), chromedp.KeyEvent(kb.ArrowRight, chromedp.KeyModifiers(chromedp.ModifierShift)))
		said := webtest.Eval[string](tab, `new Promise(done => setTimeout(() => done(document.getElementById("status").textContent), 400))`)
		if !strings.Contains(said, "step_script: total") || !strings.Contains(said, "GiB") {
			t.Errorf("announced %q", said)
		}
		tab.Do(chromedp.KeyEvent(kb.Enter))
		step := webtest.Example().Trace.StepSeconds
		same(t, tab, 10*step, 31*step, 0.1)
		tab.Do(chromedp.KeyEvent("0"))
		same(t, tab, -3.1, 253.5, 0.1)
		webtest.Eval[any](tab, `document.activeElement.blur()`)
		tab.Do(chromedp.KeyEvent("."), chromedp.KeyEvent("."))
		same(t, tab, 0.9, 5.1, 0.01)
		tab.Do(chromedp.KeyEvent("f"))
		same(t, tab, -3.1, 253.5, 0.1)
		webtest.Eval[any](tab, `localStorage.setItem("keys", "off")`) // as the help page does
		tab.Do(chromedp.KeyEvent("."))
		same(t, tab, -3.1, 253.5, 0.1)
	})
}

// Tab goes through everything that can be pressed, and the focus is always seen.
func TestTabOrder(t *testing.T) {
	s := httptest.NewServer(pages(t, fleet()))
	defer s.Close()
	b := webtest.Need(t, browser)
	for _, p := range []shown{{"build", key(webtest.OOM())}, {"now", "/"}, {"queue", "/queue"}} {
		t.Run(p.name, func(t *testing.T) {
			tab := b.Tab(t, webtest.Looks[0])
			tab.Go(s.URL + p.path)
			if p.name == "queue" { // its charts are drawn when one is touched, and have buttons then
				webtest.Eval[any](tab, `document.querySelector("[data-lines] .plot").dispatchEvent(new PointerEvent("pointerover", {bubbles: true}))`)
				webtest.Eval[bool](tab, drawn)
			}
			want := webtest.Eval[int](tab, `[...document.querySelectorAll("a[href],button,input:not([type=hidden]),summary,[tabindex='0']")].filter(e => e.tabIndex >= 0 && !e.disabled && e.getClientRects().length).length`)
			seen := 0
			for range want + 5 {
				tab.Do(chromedp.KeyEvent(kb.Tab))
				hidden := webtest.Eval[string](tab, `(() => { const e = document.activeElement; if (e === document.body) return "end"; if (e.dataset.seen) return "again"; e.dataset.seen = 1;
					const r = e.getBoundingClientRect(), top = document.querySelector(".top").getBoundingClientRect(); return !e.closest(".top,.skip") && r.bottom <= top.bottom && getComputedStyle(document.querySelector(".top")).position === "sticky" ? e.outerHTML.slice(0, 100) : ""; })()`)
				if hidden == "end" || hidden == "again" {
					break
				}
				if seen++; hidden != "" {
					t.Errorf("focus is behind the top bar: %s", hidden)
				}
			}
			if seen < want-2 || seen > want {
				t.Errorf("tab reached %d of %d", seen, want)
			}
		})
	}
}

func TestTheme(t *testing.T) {
	s := httptest.NewServer(pages(t, fleet()))
	defer s.Close()
	tab := webtest.Need(t, browser).Tab(t, webtest.Looks[0])
	tab.Go(s.URL + key(webtest.Example()))
	background := func() string {
		return webtest.Eval[string](tab, `getComputedStyle(document.body).backgroundColor`)
	}
	if got := background(); got != "rgb(255, 255, 255)" {
		t.Errorf("light: %s", got)
	}
	webtest.Eval[any](tab, `document.querySelector("[data-theme-toggle]").click()`)
	if got := background(); got != "rgb(13, 17, 23)" {
		t.Errorf("switched: %s", got)
	}
	tab.Go(s.URL + "/builds") // the server knows it now: no flash of the other
	if got := webtest.Eval[string](tab, `document.documentElement.dataset.theme`); got != "dark" || background() != "rgb(13, 17, 23)" {
		t.Errorf("next page: %s, %s", got, background())
	}
}

// The system's colours, chosen while a page is open, are those of its charts, too: a
// canvas does not follow by itself.
func TestForcedColours(t *testing.T) {
	s := httptest.NewServer(pages(t, fleet()))
	defer s.Close()
	tab := webtest.Need(t, browser).Tab(t, webtest.Looks[0])
	tab.Go(s.URL + key(webtest.OOM()))
	// inked are the canvases of charts that have a colour, as the page's element has it.
	inked := func(of string) (n int) {
		return webtest.Eval[int](tab, `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => {
			const want = (`+of+`).match(/\d+/g).map(Number), has = c => { const x = new OffscreenCanvas(c.width, c.height).getContext("2d", {willReadFrequently: true}); x.drawImage(c, 0, 0); const d = x.getImageData(0, 0, c.width, c.height).data;
				for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 250 && want.every((w, k) => Math.abs(d[i + k] - w) < 3)) return true; return false; };
			done([...document.querySelectorAll(".live canvas")].filter(has).length); })))`)
	}
	const text, blue = `getComputedStyle(document.body).color`, `"0 114 178"`
	if n := inked(blue); n != 1 {
		t.Fatalf("%d charts are blue: want that of CPU", n)
	}
	tab.Look(webtest.Look{Width: 1440, Height: 900, Features: map[string]string{"forced-colors": "active"}})
	if n, m := inked(blue), inked(text); n != 0 || m != 4 {
		t.Errorf("in forced colours %d charts are blue, %d have the colour %s: want 0 and 4", n, m, webtest.Eval[string](tab, text))
	}
	tab.Shot(t, "forced-colours")
	tab.Look(webtest.Looks[0])
	if n := inked(blue); n != 1 {
		t.Errorf("back again, %d charts are blue: want that of CPU", n)
	}
	if p := tab.Problems(); len(p) > 0 {
		t.Error(p)
	}
}

// Without script every page is whole.
func TestWithoutScript(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(pages(t, fleet()))
	defer s.Close()
	tab := webtest.Need(t, browser).Tab(t, webtest.Looks[0])
	tab.WithoutScript()
	for _, p := range everyPage() {
		tab.GoPlain(s.URL + p.path)
		tab.Shot(t, "noscript-"+p.name)
	}
}

// browser is the one of all tests here, started when the first wants it.
var browser, closeBrowser = shared()

func shared() (launch func() (*webtest.Browser, error), end func()) {
	var b *webtest.Browser
	launch = sync.OnceValues(func() (*webtest.Browser, error) {
		var err error
		b, err = webtest.Launch()
		return b, err
	})
	return launch, func() {
		if b != nil {
			b.Close()
		}
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	closeBrowser()
	os.Exit(code)
}
