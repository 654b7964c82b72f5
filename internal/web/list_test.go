package web_test

import (
	"context"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/web"
	"github.com/cimeter/cimeter/internal/webtest"
)

// The columns of the list are those of the address, whichever way it names them; what
// is no column is named, and links have the one form.
func TestBuilds_columns(t *testing.T) {
	h := pages(t, &webtest.Memory{Records: webtest.History(60)})
	const usual = `data-label="ref" data-label="machine" data-label="started" data-label="queue s" data-label="time s" data-label="CPU s" data-label="over time" data-label="memory GiB" data-label="disk GiB" data-label="net GiB"`
	labels := regexp.MustCompile(`data-label="[^"]*"`)
	heads := regexp.MustCompile(`<th scope="col"`)
	for _, c := range []struct {
		cols, labels string
		heads        int
		say          string
	}{
		{"", usual, 13, ""},
		{"cols=cpu,mem,runner", `data-label="runner" data-label="CPU s" data-label="memory GiB"`, 4, ""},
		{"cols=build&cols=mem&cols=cpu&cols=runner", `data-label="runner" data-label="CPU s" data-label="memory GiB"`, 4, ""},
		{"cols=build", "", 1, ""},
		{"cols=", usual, 13, ""},
		{"cols=ended,cores,colour", `data-label="ended" data-label="cores"`, 3, "cols: there is no column colour: want build, result"},
		{"cols=colour", usual, 13, "cols: there is no column colour"},
	} {
		code, body := get(t, h, "/builds?t=7d&"+c.cols)
		_, row, _ := strings.Cut(body, `<tbody id="rows">`)
		row, _, _ = strings.Cut(row, "</tr>")
		head, _, _ := strings.Cut(body, "</thead>")
		if got := strings.Join(labels.FindAllString(row, -1), " "); code != http.StatusOK || got != c.labels {
			t.Errorf("%s: %d, columns %s: want %s", c.cols, code, got, c.labels)
		}
		if n := len(heads.FindAllString(head, -1)); n != c.heads {
			t.Errorf("%s: %d headings: want %d", c.cols, n, c.heads)
		}
		if said := strings.Contains(body, `class="problem"`); said != (c.say != "") || !strings.Contains(body, c.say) {
			t.Errorf("%s: does not say %q, or says something else", c.cols, c.say)
		}
	}
	_, body := get(t, h, "/builds?t=7d&project=group%2Fapp&cols=mem&cols=build&cols=cpu&cols=runner")
	wants(t, body, `href="/builds?cols=build%2Crunner%2Ccpu%2Cmem&amp;project=group%2Fapp&amp;sort=-cpu&amp;t=7d"`, `value="runner" checked`, `value="net">`, `href="/builds?project=group%2Fapp&amp;t=7d">The usual ones`)
	_, form, _ := strings.Cut(body, "data-filter")
	form, _, _ = strings.Cut(form, "</form>")
	wants(t, form, `<input type="hidden" name="cols" value="build,runner,cpu,mem">`, `<input type="hidden" name="project" value="group/app">`, `<input type="hidden" name="t" value="7d">`)
}

// A time is chosen by two inputs, which leave all else as it is.
func TestBuilds_span(t *testing.T) {
	h := pages(t, fleet())
	for path, keeps := range map[string]string{"/builds?t=7d&q=lint&sort=-cpu&cursor=1": `<input type="hidden" name="q" value="lint"><input type="hidden" name="sort" value="-cpu"><label>`,
		"/machines?t=7d&page=2": `action="/machines"><label>`, "/projects?t=7d": `action="/projects"><label>`, "/machine?name=ci-7&t=7d": `<input type="hidden" name="name" value="ci-7"><label>`} {
		_, body := get(t, h, path)
		_, form, _ := strings.Cut(body, `<form class="span"`)
		form, _, _ = strings.Cut(form, "</form>")
		wants(t, form, keeps, `name="from" value="2026-11-23T14:02"`, `name="to" value="2026-11-30T14:02"`)
	}
	_, body := get(t, h, "/builds?from=2026-11-30T13:00&to=2026-11-30T14:01")
	wants(t, body, "#4242", `name="from" value="2026-11-30T13:00"`)
	lacks(t, body, "#4224", `aria-current="true"`)
	for q, want := range map[string]string{"from=2026-11-30&to=2026-11-29": "from: want a time before to", "to=yesterday": "to: want a date such as"} {
		for _, path := range []string{"/builds", "/machines", "/projects"} {
			_, body := get(t, h, path+"?"+q)
			wants(t, body, `role="alert"`, want)
		}
	}
}

// The links of the export ask the API for what the list shows, in its own parameters:
// it refuses all others.
func TestBuilds_export(t *testing.T) {
	h := pages(t, fleet())
	links := regexp.MustCompile(`href="(/api/v1/builds\?[^"]*)" download`)
	for path, want := range map[string]string{
		"/builds":                             "format=F&since=2026-11-29T14:02:11Z",
		"/builds?t=all&sort=cpu&cols=cpu&z=1": "format=F&order=asc&sort=cpu",
		"/builds?t=7d&sort=-mem&job=build-and-test&q=-result:failed+cpu%3E1s":                 "format=F&name=build-and-test&q=-result:failed cpu>1s&since=2026-11-23T14:02:11Z&sort=mem",
		"/builds?q=since:7d&project=group%2Fapp":                                              "format=F&project=group/app&q=since:7d",
		"/builds?from=2026-11-29T10:00&to=2026-11-30&project=group%2Fapp&project=group%2Fapp": "before=2026-11-30T00:00:00Z&format=F&project=group/app&q=project:group/app&since=2026-11-29T10:00:00Z",
	} {
		_, body := get(t, h, path)
		found := links.FindAllStringSubmatch(body, -1)
		if len(found) != 2 {
			t.Fatalf("%s: %d links", path, len(found))
		}
		for i, format := range []string{"csv", "ndjson"} {
			got, err := url.QueryUnescape(html.UnescapeString(found[i][1]))
			if want := "/api/v1/builds?" + strings.Replace(want, "=F", "="+format, 1); err != nil || got != want {
				t.Errorf("%s: exports %s: want %s", path, got, want)
			}
		}
	}
}

// An empty list names what hides every build, and leads to what it hides.
func TestBuilds_empty(t *testing.T) {
	h := pages(t, fleet())
	_, body := get(t, h, "/builds?q=result:skipped&cols=cpu")
	wants(t, body, "No build matches <code>result:skipped</code>.", `href="/builds?cols=build%2Ccpu&amp;t=24h">`, " builds without result:skipped</a>")
	_, body = get(t, h, "/builds?q=result:failed+x9&t=1h")
	wants(t, body, "No build matches <code>result:failed</code>, <code>x9</code>.", " builds without the filter</a>")
}

// Machines are of a state and in an order that the address says, and what it says wrong
// is named.
func TestMachines_list(t *testing.T) {
	h := pages(t, fleet())
	names := regexp.MustCompile(`<th scope="row"><a href="/machine\?name=([^"]*)"`)
	for query, want := range map[string]string{
		"":                         "ci-5 ci-9 ci-1 ci-6 ci-7 ci-3 ci-2 ci-4 ci-8",
		"state=silent":             "ci-5",
		"state=away":               "",
		"state=reports&sort=-name": "ci-9 ci-8 ci-7 ci-6 ci-4 ci-3 ci-2 ci-1",
		"sort=coverage":            "ci-6 ci-2 ci-4 ci-3 ci-7 ci-1 ci-9 ci-5 ci-8", // of which nobody tells it is last
		"sort=-coverage":           "ci-5 ci-9 ci-1 ci-7 ci-3 ci-4 ci-2 ci-6 ci-8",
		"sort=-cpu":                "ci-6 ci-7 ci-4 ci-3 ci-9 ci-8 ci-5 ci-1 ci-2",
	} {
		code, body := get(t, h, "/machines?"+query)
		var got []string
		for _, m := range names.FindAllStringSubmatch(body, -1) {
			got = append(got, m[1])
		}
		if code != http.StatusOK || strings.Join(got, " ") != want {
			t.Errorf("%s: %d %q: want %q", query, code, strings.Join(got, " "), want)
		}
		lacks(t, body, `class="problem"`)
	}
	_, body := get(t, h, "/machines")
	wants(t, body, "all 10<", "reporting 8<", "silent 1<", "not reporting now 1<", "memory <small>GiB</small>", ">64.0<", "CPU <small>h</small>", "coverage <small>%</small>", `href="/machines?sort=-coverage"`)
	for query, want := range map[string]string{"state=x": "state: want reports, silent or away", "sort=x": "sort: want name, running"} {
		_, body := get(t, h, "/machines?"+query)
		wants(t, body, `role="alert"`, want)
	}
	_, body = get(t, pages(t, &webtest.Memory{Fleet: webtest.Machines()[:1]}), "/machines?state=silent")
	wants(t, body, "No machine is so now.", `<a href="/machines">Show all machines</a>`)
}

// A page says how long it took to read and to write, to programs and to people.
func TestServerTiming(t *testing.T) {
	h := pages(t, fleet())
	both := regexp.MustCompile(`^read;dur=\d+\.\d{2}, write;dur=\d+\.\d{2}$`)
	for _, p := range everyPage() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, p.path, nil))
		if got := w.Header().Get("Server-Timing"); !both.MatchString(got) {
			t.Errorf("%s: Server-Timing %q", p.path, got)
		}
		read, _, _ := strings.Cut(strings.TrimPrefix(w.Header().Get("Server-Timing"), "read;dur="), ",")
		wants(t, w.Body.String(), `data-timing title="`, ">read in "+read+" ms<")
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/suggest?kind=job&part=l", nil)); !strings.HasPrefix(w.Header().Get("Server-Timing"), "read;dur=") {
		t.Errorf("suggestions: Server-Timing %q", w.Header().Get("Server-Timing"))
	}
}

// looking is a source whose first page holds nothing, though there is a next.
type looking struct{ *webtest.Memory }

func (l looking) Builds(ctx context.Context, q web.Query) (web.Page, error) {
	if q.Limit > 0 && q.Cursor == "" {
		return web.Page{Next: "0"}, nil
	}
	return l.Memory.Builds(ctx, q)
}

// That nothing was found so far is not said to be all, and leads on.
func TestBuilds_lookOn(t *testing.T) {
	p, err := web.New(web.Options{Source: looking{fleet()}, Now: func() time.Time { return webtest.Now }})
	if err != nil {
		t.Fatal(err)
	}
	_, body := get(t, p, "/builds?q=lint")
	wants(t, body, "looked at so far", `href="/builds?cursor=0&amp;q=lint"`)
	lacks(t, body, "No build matches", "cimeter agent")
	_, body = get(t, p, "/builds?cursor=0&q=lint")
	wants(t, body, "group/app / lint")
}
