package web_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/web"
	"github.com/cimeter/cimeter/internal/webtest"
)

func queuePage(t *testing.T, st queue.State, target string) (int, string) {
	t.Helper()
	return get(t, pages(t, &webtest.Memory{Waiting: st}), target)
}

func wants(t *testing.T, body string, wanted ...string) {
	t.Helper()
	for _, s := range wanted {
		if !strings.Contains(body, s) {
			t.Errorf("lacks %q", s)
		}
	}
}

func lacks(t *testing.T, body string, bad ...string) {
	t.Helper()
	for _, s := range bad {
		if strings.Contains(body, s) {
			t.Errorf("says %q", s)
		}
	}
}

var rowKey = regexp.MustCompile(`<tr data-key="([^"]*)"`)

func TestQueue(t *testing.T) {
	st := webtest.Queue()
	code, body := queuePage(t, st, "/queue")
	if code != http.StatusOK {
		t.Fatalf("got %d", code)
	}
	wants(t, body, `<a href="/queue?show=blocked">2</a>`, `<a href="/queue">17</a>`, "15 m 00 s", // waiting on both, the oldest
		"no worker with its tags", "no free slot", `href="/queue?why=no_slot#queue-list"`,
		"drone.example.com answers 503 Service Unavailable, since 4 m. What is shown of it is 4 m 00 s old.",
		"in 1 m 35 s", "40.0 s to 4 m 20 s", "docker, large", "offline", "1 of 2", "Choose one above", `id="waits-h"`, `drone.example.com <b>`)
	lacks(t, body, "NaN", "Inf", "Nothing waits")
	// Those of the server that is away are greyed, and stay.
	if n := strings.Count(body, `class="stale"`); n != 1+3+1 {
		t.Errorf("%d greyed rows: want the server, its three builds and its worker", n)
	}
	// The longest wait is first, and only what waits is listed.
	var keys []string
	for _, m := range rowKey.FindAllStringSubmatch(body, -1) {
		if strings.Contains(m[1], "/50") || strings.Contains(m[1], "/51") {
			keys = append(keys, m[1])
		}
	}
	if len(keys) != 17 || keys[0] != "gitlab/gitlab.example.com/5000" {
		t.Errorf("lists %q", keys)
	}
}

func TestQueue_filter(t *testing.T) {
	st := webtest.Queue()
	_, body := queuePage(t, st, "/queue?why=no_worker")
	if n := strings.Count(body, `>no worker with its tags</td>`); n != 3 {
		t.Errorf("%d builds without a worker: want 3", n)
	}
	wants(t, body, "3 builds: no worker with its tags", "5003", `<a href="/queue">show all</a>`)
	lacks(t, body, "example.com/5000")
	_, body = queuePage(t, st, "/queue?show=running")
	wants(t, body, "machine starting", `href="/builds/gitlab/gitlab.example.com/5300"`, `href="https://gitlab.example.com/jobs/5302"`, `href="/machine?name=ci-1"`)
	for _, bad := range []string{"why=x", "show=x", "server=x", "t=x"} {
		code, body := queuePage(t, st, "/queue?"+bad)
		name, _, _ := strings.Cut(bad, "=")
		if code != http.StatusBadRequest || !strings.Contains(body, `role="alert">`+name+": ") {
			t.Errorf("%s: got %d", bad, code)
		}
	}
	// One server has its waits drawn; the one that is away is grey as a whole.
	_, body = queuePage(t, st, "/queue?server=drone.example.com")
	wants(t, body, `class="figures stale"`, `id="waits-h"`, ">3</a>")
}

// What no server told is unknown, and nothing is not the same.
func TestQueue_empty(t *testing.T) {
	_, body := queuePage(t, queue.State{}, "/queue")
	wants(t, body, "ci_servers:", "No CI server is asked yet")
	st := queue.State{Servers: []queue.Server{{Name: "gitlab.example.com", CI: "gitlab", Waiting: cimeter.Some(0), AgeSeconds: cimeter.Some(3.0),
		LongestDay: queue.Longest{Name: "e2e", Project: "group/app", Seconds: 41, At: webtest.Now.Add(-2 * time.Hour)}}}}
	_, body = queuePage(t, st, "/queue")
	wants(t, body, "Nothing waits. Longest wait in 24 h: 41.0 s (group/app / e2e, 2 h ago).", "Nothing was seen in this time.", `<a href="/queue">0</a>`, `<a href="/queue?show=running">–</a>`)
	st.Servers[0] = queue.Server{Name: "gitlab.example.com", Stale: true, Failure: "connection refused"}
	_, body = queuePage(t, st, "/queue")
	wants(t, body, "gitlab.example.com does not answer. Nothing was ever heard of it.", `<a href="/queue">–</a>`)
}

// A sum over servers is drawn only where all of them were seen.
func TestQueue_gaps(t *testing.T) {
	st := webtest.Queue()
	area := func(target string) string {
		_, body := queuePage(t, st, target)
		_, after, ok := strings.Cut(body, `<path class="fill other" d="`)
		if !ok {
			t.Fatal("no chart")
		}
		d, _, _ := strings.Cut(after, `"`)
		return d
	}
	if n := strings.Count(area("/queue?server=gitlab.example.com"), "M"); n != 2 {
		t.Errorf("area in %d pieces: want 2, with the gap between", n)
	}
	if n := strings.Count(area("/queue?t=1h"), "M"); n != 1 {
		t.Errorf("the last hour in %d pieces: want 1", n)
	}
}

// A queue of thousands is a page of the same size.
func TestQueue_many(t *testing.T) {
	st := webtest.Queue()
	for range 300 {
		st.Builds = append(st.Builds, st.Builds[:17]...)
		st.Workers = append(st.Workers, st.Workers[0])
	}
	code, body := queuePage(t, st, "/queue?page=3")
	if n := strings.Count(body, "<tr data-key"); code != http.StatusOK || n != 2+50+50 {
		t.Errorf("got %d with %d rows: want 102", code, n)
	}
	wants(t, body, "page=103", "workers=7")
}

func TestNow_waiting(t *testing.T) {
	_, body := get(t, pages(t, fleet()), "/")
	wants(t, body, `<a href="/queue">17 builds</a> <small><a href="/queue#queue-list">oldest 15 m 00 s</a>, <a href="/queue?why=no_slot#queue-list" title="the workers that have the build&#39;s tags are full">9 no free slot</a>`)
	_, body = get(t, pages(t, &webtest.Memory{Fleet: webtest.Machines()}), "/")
	lacks(t, body, "waiting")
	p, err := web.New(web.Options{Source: fleet()})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/queue", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("without a queue: got %d", w.Code)
	}
}

// The page follows: its regions are put in place as the queue changes, and not
// while it is paused or the pointer is in the table.
func TestQueue_live(t *testing.T) {
	var waiting atomic.Int64
	state := func() queue.State {
		st := webtest.Queue()
		st.Servers[0].Waiting = cimeter.Some(int(waiting.Load()))
		return st
	}
	p, err := web.New(web.Options{Source: fleet(), Queue: state, Tick: 20 * time.Millisecond, Now: func() time.Time { return webtest.Now }})
	if err != nil {
		t.Fatal(err)
	}
	var broken atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() && r.URL.Path == "/queue" {
			http.Error(w, "", http.StatusServiceUnavailable)
			return
		}
		p.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	t.Cleanup(p.Close)
	tab := webtest.Need(t, browser).Tab(t, webtest.Looks[0])
	waiting.Store(100)
	tab.Go(s.URL + "/queue")
	shows := func(want string) bool {
		return webtest.Eval[bool](tab, `new Promise(done => { const look = n => { const e = document.querySelector("#queue-now dd a"); if (e && e.textContent === "`+want+`") done(true); else if (n > 1000) done(false); else setTimeout(look, 20, n + 1); }; look(0); })`)
	}
	if !shows("103") {
		t.Fatal("does not show what waits")
	}
	waiting.Store(200)
	if !shows("203") {
		t.Error("does not follow")
	}
	webtest.Eval[any](tab, `document.querySelector("[data-pause]").click()`)
	waiting.Store(300)
	if said := webtest.Eval[string](tab, `new Promise(done => setTimeout(() => done(document.querySelector("#queue-now dd a").textContent + " " + document.querySelector("[data-live-state]").textContent), 200))`); said != "203 paused" {
		t.Errorf("paused, it says %q", said)
	}
	webtest.Eval[any](tab, `document.querySelector("[data-pause]").click()`)
	if !shows("303") {
		t.Error("does not follow again")
	}
	if p := tab.Problems(); len(p) > 0 {
		t.Error(p)
	}
	// What it shows when it is not answered any more has its age.
	broken.Store(true)
	const shown = `document.querySelector("#queue-now dd a").textContent + " " + document.querySelector("[data-live-state]").textContent`
	if said := webtest.Eval[string](tab, `new Promise(done => { const look = n => (`+shown+`).includes("ago") || n > 500 ? done(`+shown+`) : setTimeout(look, 10, n + 1); look(0); })`); !regexp.MustCompile(`^303 the server answered 503; showing the state of \d+ s ago$`).MatchString(said) {
		t.Errorf("away, it says %q", said)
	}
}

// The charts of a week are of tens of minutes, and end with the minutes of now.
func TestQueue_week(t *testing.T) {
	st := webtest.Queue()
	st.Servers = st.Servers[:1]
	s := &st.Servers[0]
	s.History = s.History[len(s.History)-5:]
	for i := range s.History {
		s.History[i].Waiting = 77
	}
	for i := range s.Week {
		s.Week[i].Waiting = 33
	}
	h := pages(t, &webtest.Memory{Waiting: st})
	_, week := get(t, h, "/queue?t=7d")
	wants(t, week, `title="the last 7 days" aria-current="true">7d</a>`, "<td class=\"n\">33.0</td>", "<td>Nov 23 14:02</td>")
	_, day := get(t, h, "/queue")
	lacks(t, day, "<td class=\"n\">33.0</td>")
	wants(t, day, `title="the last 24 hours" aria-current="true">24h</a>`, "waiting <b>77</b>")
	for i := range s.Week { // a server that was just set up
		s.Week[i].At -= 30 * 24 * 3600
	}
	if _, body := get(t, h, "/queue?t=7d"); strings.Contains(body, "NaN") {
		t.Error("NaN")
	}
}

// A process that was just started has seen no wait; the store has.
func TestQueue_longestKept(t *testing.T) {
	st := queue.State{Servers: []queue.Server{{Name: "gitlab.example.com", CI: "gitlab", Waiting: cimeter.Some(0), AgeSeconds: cimeter.Some(3.0)}}}
	r := webtest.Example()
	m := &webtest.Memory{Records: []*cimeter.Record{r, webtest.Nothing()}, Waiting: st}
	_, body := get(t, pages(t, m), "/queue")
	wants(t, body, "Nothing waits. Longest wait in 24 h: 3.1 s (group/app / build-and-test #4242, ")
	m.Records = m.Records[1:]
	_, body = get(t, pages(t, m), "/queue")
	wants(t, body, "Nothing waits, and nothing has waited in the last 24 hours that was seen.")
}
