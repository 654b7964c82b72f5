package web_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/web"
	"github.com/cimeter/cimeter/internal/webtest"
)

// What a machine tells is on its page, and what it does not tell is absent
// there, not 0.
func TestMachine_figures(t *testing.T) {
	h := pages(t, fleet())
	code, body := get(t, h, "/machine?name=ci-2")
	for _, want := range []string{"Debian GNU/Linux 12 (bookworm)", "spot", "6.8.0-49", "Last ten minutes", "CPU by owner", "the rest <b>", "cimeter <b>", "CPUs <b>", "Memory", "Pressure", "time that some task waited", "6.10 ms CPU a second", "31.0 MiB", `data-live="/machine?name=ci-2&amp;part=now"`} {
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%d: page of ci-2 lacks %q", code, want)
		}
	}
	code, body = get(t, h, "/machine?name=ci-8") // the agent of the version before
	for _, bad := range []string{"Last ten minutes", "0 cores", "0 MiB", "coverage", "NaN"} {
		if code != http.StatusOK || strings.Contains(body, bad) {
			t.Errorf("%d: page of ci-8 says %q of what nobody told", code, bad)
		}
	}
	// A page that follows reads the part that changes, without asking the store.
	code, part := get(t, h, "/machine?name=ci-2&part=now")
	if code != http.StatusOK || !strings.Contains(part, `id="place-now"`) || !strings.Contains(part, "Last ten minutes") || strings.Contains(part, "lanes-h") {
		t.Errorf("%d: %s", code, part)
	}
}

// The last day is from the store: whose CPU time it was, and where coverage was low.
func TestMachine_day(t *testing.T) {
	h := pages(t, fleet())
	_, body := get(t, h, "/machine?name=ci-7")
	wants(t, body, ">Last day</h2>", `id="d-cpu-h"`, `id="d-mem-h"`, `id="d-disk-h"`, `id="d-net-h"`, `id="d-psi-h"`, `id="d-cover-h"`, "CPUs <b>16.0</b>", "Coverage was lowest at 06:50 UTC: 71 %.")
	lacks(t, body, "NaN")
	_, day, _ := strings.Cut(body, `id="day-t"`)
	day, _, _ = strings.Cut(day, "</table>")
	_, line, _ := strings.Cut(body, `id="d-cpu-h"`)
	_, line, _ = strings.Cut(line, `class="plot"`)
	_, line, _ = strings.Cut(line, `<path class="line cpu" d="`)
	line, _, _ = strings.Cut(line, `"`)
	if n := strings.Count(line, "M"); n != 2 {
		t.Errorf("the line of the day has %d pieces: want a gap where the machine was away", n)
	}
	if n := strings.Count(day, "<tr>"); n < 20 || n > 25 {
		t.Errorf("%d rows of the day", n)
	}
	_, body = get(t, h, "/machine?name=ci-2") // of which nothing is kept
	lacks(t, body, "Last day", "Coverage was lowest")
}

// A machine that is silent stays with its age; what became of its builds is
// not known, and they do not count as running.
func TestNow_silent(t *testing.T) {
	running := web.Running{Row: web.Row{Build: cimeter.Build{Key: "gitlab/x/1", Project: "group/app", Name: "lint"}, StartedAt: webtest.Now.Add(-time.Minute), Running: true}, Stage: "step_script", CPUNow: cimeter.Some(1.5)}
	m := web.Machine{Name: "ci-1", LastSeen: webtest.Now.Add(-16 * time.Second), Interval: 5 * time.Second, CPUs: 4, CPUBuilds: cimeter.Some(1.5), Running: []web.Running{running}}
	for _, c := range []struct {
		since       time.Duration
		want, lacks []string
	}{
		{14 * time.Second, []string{"step_script", "1 build running", "1.50 of 4"}, []string{"last seen", "unknown"}},
		{16 * time.Second, []string{"last seen 16 s ago", "1 silent", "none running", "1 build unknown", ">unknown<"}, []string{"step_script", "1 build running"}},
	} {
		m.LastSeen = webtest.Now.Add(-c.since)
		_, body := get(t, pages(t, &webtest.Memory{Fleet: []web.Machine{m}, Gone: 3}), "/")
		for _, s := range c.want {
			if !strings.Contains(body, s) {
				t.Errorf("silent for %v: lacks %q\n%s", c.since, s, body)
			}
		}
		for _, s := range c.lacks {
			if strings.Contains(body, s) {
				t.Errorf("silent for %v: says %q", c.since, s)
			}
		}
		if !strings.Contains(body, "3 machines not seen for ten minutes") {
			t.Error("those that are gone are not counted")
		}
	}
}

// A share of next to nothing is no reason to warn.
func TestNow_coverage(t *testing.T) {
	for other, warned := range map[float64]bool{0.02: false, 1.5: true} {
		m := web.Machine{Name: "ci-1", LastSeen: webtest.Now, CPUs: 4, CPUBuilds: cimeter.Some(0.01), CPUOther: cimeter.Some(other), Coverage: cimeter.Some(0.4)}
		_, body := get(t, pages(t, &webtest.Memory{Fleet: []web.Machine{m}}), "/")
		if strings.Contains(body, `class="n warned" data-label="coverage %">40.0`) != warned {
			t.Errorf("%g cores of the rest: warned %v", other, !warned)
		}
	}
}

// Every number over the machines leads to what it counts, and the machines are those, in
// the order, that the address says.
func TestNow_links(t *testing.T) {
	h := pages(t, fleet())
	_, body := get(t, h, "/")
	_, status, _ := strings.Cut(body, `id="now-status"`)
	status, _, _ = strings.Cut(status, "</dl>")
	wants(t, status, `<a href="/machines">9 machines</a>`, `href="/machines?state=silent"`, `<a href="/?show=running">19 builds running</a>`, `href="/?show=silent" title="they ran when their machines were last heard of">4 builds unknown`,
		`<a href="/?sort=-cpu">29.6 of 112 cores</a>`, `>71.0 %</a> <small><a href="/machine?name=ci-6"`, ">3 s old</a>")
	names := regexp.MustCompile(`<th scope="rowgroup"><a href="/machine\?name=([^"]*)"`)
	for target, want := range map[string]string{
		"/": "ci-5 ci-9 ci-1 ci-6 ci-7 ci-3 ci-2 ci-4 ci-8", "/?show=silent": "ci-5", "/?show=running&sort=name": "ci-1 ci-2 ci-3 ci-4 ci-6 ci-7 ci-8 ci-9",
		"/?sort=-name": "ci-5 ci-9 ci-8 ci-7 ci-6 ci-4 ci-3 ci-2 ci-1", "/?sort=coverage": "ci-5 ci-6 ci-2 ci-4 ci-3 ci-7 ci-1 ci-9 ci-8", "/?sort=cpu": "ci-5 ci-4 ci-2 ci-3 ci-7 ci-6 ci-1 ci-9 ci-8",
	} {
		code, body := get(t, h, target)
		var got []string
		for _, m := range names.FindAllStringSubmatch(body, -1) {
			got = append(got, m[1])
		}
		if code != http.StatusOK || strings.Join(got, " ") != want {
			t.Errorf("%s: %d %q: want %q", target, code, got, want)
		}
		lacks(t, body, `class="problem"`)
	}
	_, body = get(t, h, "/?show=silent")
	wants(t, body, `1 machine: silent machines. <a href="/">Show all</a>`, "19 builds running")
	for target, want := range map[string]string{"/?sort=x": "sort: want name, cpu", "/?show=x": "show: want running or silent"} {
		_, body := get(t, h, target)
		wants(t, body, `role="alert"`, want, "ci-9")
	}
}

// A column of a table has one unit, which stands at its head and, where a row is a card,
// beside each value.
func TestNow_units(t *testing.T) {
	small := web.Running{Row: web.Row{Build: cimeter.Build{Key: "gitlab/x/1", Name: "lint"}, StartedAt: webtest.Now.Add(-time.Minute), Running: true}, MemoryNow: cimeter.Some[uint64](40 << 20), DiskNow: cimeter.Some(512.0 * 1024)}
	m := web.Machine{Name: "ci-1", LastSeen: webtest.Now, CPUs: 4, MemoryBytes: 64 << 30, MemoryUsed: cimeter.Some[uint64](512 << 20), DiskRate: cimeter.Some(3.0 * 1024 * 1024), Running: []web.Running{small}}
	for _, target := range []string{"/", "/machine?name=ci-1"} {
		_, body := get(t, pages(t, &webtest.Memory{Fleet: []web.Machine{m}}), target)
		wants(t, body, "memory <small>GiB</small>", "disk <small>MiB/s</small>", `data-label="memory GiB">0.039<`, `data-label="disk MiB/s">0.50<`, `data-label="net MiB/s">–<`)
	}
	_, body := get(t, pages(t, &webtest.Memory{Fleet: []web.Machine{m}}), "/")
	wants(t, body, `data-label="memory GiB">0.50 of 64.0<`)
}
