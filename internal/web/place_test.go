package web_test

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/webtest"
)

// crowded is a machine with n builds of forty jobs in its last day, and 40 that run.
func crowded(n int) *webtest.Memory {
	m := &webtest.Memory{Fleet: webtest.Machines()[6:7]}
	for i := range n {
		at := webtest.Now.Add(-time.Duration(i*23*60/n) * time.Minute).Add(-5 * time.Minute)
		r := webtest.Make(6000+i, at, 0.5)
		r.Name, r.Machine, r.Runner = fmt.Sprint("job-", i%40), "ci-7", cimeter.Runner{ID: "s_ci-7", Name: "docker-7"}
		m.Records = append(m.Records, r)
	}
	few := m.Fleet[0].Running
	for i := range 40 - len(few) {
		r := few[i%len(few)]
		r.Key, r.Number = fmt.Sprint("gitlab/x/", i), fmt.Sprint(i)
		m.Fleet[0].Running = append(m.Fleet[0].Running, r)
	}
	return m
}

// A machine full of builds is a page within the budget; with more builds than there are
// blocks for, they are counted.
func TestMachine_crowded(t *testing.T) {
	h := pages(t, crowded(500))
	for _, path := range []string{"/machine?name=ci-7", "/runner?key=s_ci-7"} {
		size, body, _ := zipped(t, h, path)
		n := len(element.FindAllString(body, -1))
		t.Logf("%s: %d bytes, %d elements", path, size, n)
		if size > 25*kib || n > 1500 {
			t.Errorf("%s: %d bytes, %d elements: want at most 25 KiB, 1,500", path, size, n)
		}
		blocks := 0
		for _, lane := range strings.Split(body, `data-builds="`)[1:] {
			text, _, _ := strings.Cut(lane, `"`)
			blocks += strings.Count(text, "\n") + 1
		}
		if blocks != 500 {
			t.Errorf("%s: %d blocks: want 500", path, blocks)
		}
	}
	_, body := get(t, h, "/machine?name=ci-7")
	wants(t, body, `of the CPU time of all builds in this time`, `<td class="share">3 %`, "The 10 jobs that used the most CPU time.", "and 34 more that use less CPU")
	_, body = get(t, pages(t, crowded(501)), "/machine?name=ci-7")
	wants(t, body, "Builds that ended each hour, 22 builds at most", `href="/builds?from=2026-11-30T12%3A00&amp;machine=ci-7&amp;to=2026-11-30T13%3A00" aria-label="22 builds ended from Nov 30 12:00 to 13:00 UTC"`)
	lacks(t, body, "data-builds", `tabindex="-1" aria`) // without script, the tab key leads to each
}

// asked waits until the page asks for an address that holds part.
func asked(t *testing.T, tab *webtest.Tab, part string) *url.URL {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		requests, _ := tab.Loaded()
		for _, r := range requests {
			if u, err := url.Parse(r); err == nil && strings.Contains(r, part) {
				return u
			}
		}
	}
	t.Fatalf("nothing with %q is asked for", part)
	return nil
}

// The block under the pointer is a link to its build, and a drag chooses a time. By
// keyboard all blocks are one stop, and the arrows lead to each.
func TestMachine_blocks(t *testing.T) {
	s := httptest.NewServer(pages(t, crowded(500)))
	t.Cleanup(s.Close)
	tab := webtest.Need(t, browser).Tab(t, webtest.Looks[0])
	t.Cleanup(func() { tab.Go("about:blank") }) // a page that is live holds the server up
	open := func() place {
		tab.Go(s.URL + "/machine?name=ci-7")
		return webtest.Eval[place](tab, `(() => { const e = document.querySelector(".occupancy .lane"), r = (e.scrollIntoView({block: "center"}), e.getBoundingClientRect()), [x, w] = e.querySelector("path").getAttribute("d").split("M")[3].split(" 13h").map(Number); return {X: r.x + r.width*(x + w/2)/2000, Y: r.y + r.height/2, Left: r.x, Width: r.width}; })()`)
	}
	told := func() string {
		return webtest.Eval[string](tab, `document.querySelector("[data-pointed]").textContent`)
	}
	p := open()
	tab.Shot(t, "machine-crowded")
	checkNodes(t, tab)
	if footer := webtest.Eval[string](tab, `document.querySelector("footer [data-timing]").textContent`); !strings.HasPrefix(footer, "server: read ") {
		t.Errorf("the footer says %q of the server's time", footer)
	}
	tab.Do(mouse(input.DispatchMouseEventTypeMouseMoved, p.X-1, p.Y, false), mouse(input.DispatchMouseEventTypeMouseMoved, p.X, p.Y, false))
	if told := told(); !strings.Contains(told, "group/app / job-") || !strings.Contains(told, ", success, ") {
		t.Errorf("the block says %q", told)
	}
	// Every block is reached once, in the order of time, from one end to the other.
	seen := webtest.Eval[[]string](tab, `(() => { const box = document.querySelector("[data-lanes-of]"), said = document.querySelector("[data-pointed]"), seen = [], press = key => box.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
		box.focus(); press("Home"); for (let i = 0; i < 500; i++) { seen.push(said.textContent); press("ArrowRight"); } return seen; })()`)
	unlike := map[string]bool{}
	for _, s := range seen {
		unlike[s] = true
	}
	if len(unlike) != 500 || seen[0] != "group/app / job-19 #6499, success, 2 m 07 s" || seen[499] != "group/app / job-0 #6000, success, 2 m 07 s" {
		t.Errorf("the arrows lead to %d of 500 blocks, from %q to %q", len(unlike), seen[0], seen[499])
	}
	if stops := webtest.Eval[int](tab, `[...document.querySelectorAll("[data-over] :is(.occupancy,.bars,[data-bars]), [data-over] :is(.occupancy,.bars) a")].filter(e => e.tabIndex >= 0 && (e.tagName !== "svg")).length`); stops != 2 {
		t.Errorf("%d stops of the tab key: want the lanes and the bars", stops)
	}
	tab.Do(chromedp.KeyEvent(kb.Home), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.Enter))
	asked(t, tab, "/builds/gitlab/gitlab.example.com/6498")

	p = open()
	tab.Do(mouse(input.DispatchMouseEventTypeMouseMoved, p.X-1, p.Y, false), mouse(input.DispatchMouseEventTypeMouseMoved, p.X, p.Y, false),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, p.X, p.Y, chromedp.ButtonLeft, chromedp.ClickCount(1)), chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, p.X, p.Y, chromedp.ButtonLeft, chromedp.ClickCount(1)))
	asked(t, tab, "/builds/gitlab/gitlab.example.com/6")

	p = open()
	drag(tab, p, 0.25, 0.5)
	at := asked(t, tab, "&to=")
	from, err1 := time.Parse("2006-01-02T15:04", at.Query().Get("from"))
	to, err2 := time.Parse("2006-01-02T15:04", at.Query().Get("to"))
	if want := webtest.Now.Add(-18 * time.Hour); err1 != nil || err2 != nil || from.Sub(want).Abs() > 10*time.Minute || to.Sub(want.Add(6*time.Hour)).Abs() > 10*time.Minute || at.Query().Get("name") != "ci-7" {
		t.Errorf("the drag leads to %s: want six hours from %v", at, want)
	}
	for _, problem := range tab.Problems() {
		t.Error(problem)
	}

	// The head of a list that fits stays in sight, right below the bar.
	tab.Go(s.URL + "/builds")
	if apart := webtest.Eval[float64](tab, `new Promise(done => { scrollTo(0, 700); requestAnimationFrame(() => done(document.querySelector(".builds thead th").getBoundingClientRect().top - document.querySelector(".top").getBoundingClientRect().bottom)); })`); apart < -1 || apart > 1 {
		t.Errorf("scrolled, the head of the list is %.0f px below the bar", apart)
	}
}

// The slots that a runner used, of those that its CI server tells, and what builds
// waited for it.
func TestRunner_busy(t *testing.T) {
	long := webtest.Make(7001, webtest.Now.Add(-12*time.Hour+15*time.Minute), 1)
	long.EndedAt = webtest.Now.Add(-6*time.Hour + 15*time.Minute) // half of two slots from 02:17 to 08:17
	long.QueuedAt = long.StartedAt.Add(-90 * time.Second)
	long.Runner, long.Machine = cimeter.Runner{ID: "s_1"}, "ci-7"
	m := &webtest.Memory{Records: []*cimeter.Record{long}, Fleet: webtest.Machines()}
	m.Waiting = queue.State{Servers: []queue.Server{{Name: "gitlab.example.com"}}, Workers: []queue.Worker{{Worker: cimeter.Worker{ID: "9", Slots: cimeter.Some(2), Runner: cimeter.Runner{ID: "s_1"}}}}}
	_, body := get(t, pages(t, m), "/runner?key=s_1")
	wants(t, body, "Busy share of 2 slots", "70 %: slots stand idle below it", "95 %: builds wait above it", "Wait of those that began", `id="d-cpu-h"`)
	lacks(t, body, "NaN", "not told")
	_, table, _ := strings.Cut(body, `id="busy-t"`)
	table, _, _ = strings.Cut(table, "</table>")
	for _, row := range []string{`<td>01:02</td><td class="n">0</td><td class="n">–</td>`, `<td>02:02</td><td class="n">25.0</td><td class="n">90.0</td><td class="n">90.0</td>`, `<td>02:32</td><td class="n">50.0</td><td class="n">–</td>`, `<td>07:32</td><td class="n">50.0</td>`, `<td>08:32</td><td class="n">0</td>`} {
		if !strings.Contains(table, row) {
			t.Errorf("the table lacks %s\n%s", row, table)
		}
	}
	// Nobody tells its slots, and two ran at once.
	other := webtest.Make(7002, webtest.Now.Add(-11*time.Hour), 1)
	other.EndedAt, other.Runner, other.Machine = webtest.Now.Add(-10*time.Hour), long.Runner, "ci-6"
	m.Records, m.Waiting = append(m.Records, other), queue.State{}
	_, body = get(t, pages(t, m), "/runner?key=s_1")
	wants(t, body, "How many slots it has is not told: 2 is the most", "Busy share of 2 slots", "Of its 2 machines together")
	wants(t, body, `<td>03:32</td><td class="n">100</td>`)
	// Of too many builds the totals tell it.
	crowd := crowded(501)
	_, body = get(t, pages(t, crowd), "/runner?key=s_ci-7")
	wants(t, body, "Busy share of ", "Builds that ended each hour")
	lacks(t, body, "Wait of those", "NaN")
}

// What builds waited on a machine stands beside what its limits held them up.
func TestMachine_pressure(t *testing.T) {
	pressed, plain := webtest.Example(), webtest.Absent()
	pressed.Usage.PressureSeconds = &cimeter.PressureSeconds{CPUSome: cimeter.Some(31.0), IOSome: cimeter.Some(12.5), MemoryFull: cimeter.Some(99.0)}
	plain.Name = "lint"
	_, body := get(t, pages(t, &webtest.Memory{Records: []*cimeter.Record{pressed, plain}}), "/machine?name=ci-7")
	_, who, _ := strings.Cut(body, `id="who-h"`)
	wants(t, who, "mean pressure <small>s</small>", `<td class="n">31.0</td>`)
	_, lint, _ := strings.Cut(who, "/ lint")
	wants(t, lint, `<td class="n">–</td>`)
	_, body = get(t, pages(t, fleet()), "/projects?t=7d")
	lacks(t, body, "mean pressure")
}
