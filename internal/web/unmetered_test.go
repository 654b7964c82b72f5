package web_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/section"
	"github.com/cimeter/cimeter/internal/web"
	"github.com/cimeter/cimeter/internal/webtest"
)

// A build that only its CI server told of is shown as far as that goes: no
// number of what it used is 0, and no chart is empty.
func TestUnmetered(t *testing.T) {
	u, skipped := webtest.Unmetered(), webtest.Skipped()
	h := pages(t, &webtest.Memory{Records: []*cimeter.Record{webtest.Example(), u, skipped}})
	code, body := get(t, h, key(u))
	if code != http.StatusOK {
		t.Fatalf("got %d", code)
	}
	wants(t, body, "No agent metered this build", "not metered", "8 m 00 s", "2 m 00 s", "no agent metered it", "runner_system_failure", "windows", `href="https://gitlab.example.com/group/app/-/jobs/9190"`)
	lacks(t, body, "data-trace", "uplot", `id="stages"`, `id="gaps"`, "0 s CPU", "0 MiB", "0 cores", "NaN", "as=text", "Nothing held")
	_, body = get(t, h, key(skipped))
	wants(t, body, "No agent metered this build")
	lacks(t, body, "data-trace", "292", "0.00 s", "NaN", "0001")
	_, body = get(t, h, "/builds?t=all")
	wants(t, body, "not metered")
	lacks(t, body, "292", "NaN", "0001-01-01")
	// The trace of none of them is an error.
	if code, _ := get(t, h, "/trace/"+skipped.Key); code != http.StatusOK {
		t.Errorf("trace: got %d", code)
	}
	for _, other := range []string{u.Key, skipped.Key} {
		_, body = get(t, h, "/compare?a="+url.QueryEscape(other)+"&b="+url.QueryEscape(webtest.Example().Key))
		wants(t, body, "What A used is not known: no agent metered it.")
		lacks(t, body, "B used", "NaN", "data-trace")
	}
}

// The sections of a job's log divide its stages, with how far off they may be.
func TestSections(t *testing.T) {
	r := webtest.Example()
	m := &webtest.Memory{Records: []*cimeter.Record{r}, Logs: map[string]section.Log{r.Key: webtest.Log(r)}}
	h := pages(t, m)
	_, body := get(t, h, key(r))
	lacks(t, body, "Inside the stages") // nobody asked: it may have to be fetched
	wants(t, body, `href="`+key(r)+`?sections=on#stages"`)
	_, body = get(t, h, key(r)+"?sections=on")
	parts, ok := section.Split(r, m.Logs[r.Key])
	if !ok {
		t.Fatal("no stage is divided")
	}
	_, table, _ := strings.Cut(body, "Inside the stages")
	table, _, _ = strings.Cut(table, "</section>")
	if n := strings.Count(table, `<th scope="row"`); n != len(parts.Parts) {
		t.Errorf("%d rows: want %d", n, len(parts.Parts))
	}
	wants(t, table, "compile", "codegen", "unit tests", "the rest", `class="inner"`, "a border lies at most 0.10 s from where it truly was")
	wants(t, body, `aria-label="Sections of the log"`, `aria-label="unit tests, 1 m 20 s, `)
	// What is kept is shown unasked, whoever is away.
	_, body = get(t, pages(t, &webtest.Memory{Records: m.Records, Logs: m.Logs, LogsKept: true}), key(r))
	wants(t, body, "Inside the stages", "unit tests", `aria-label="Sections of the log"`)
	lacks(t, body, "Divide by the sections")
	_, body = get(t, pages(t, &webtest.Memory{Records: m.Records}), key(r)+"?sections=on")
	lacks(t, body, "Inside the stages", "Sections of the log")
	wants(t, body, "no sections that divide a stage")
	// That the CI server is away costs the page nothing else.
	var reported error
	p, err := web.New(web.Options{Source: m, Report: func(_ string, err error) { reported = err }, Sections: func(context.Context, *cimeter.Record, bool) (section.Parts, error) {
		return section.Parts{}, errors.New("away")
	}})
	if err != nil {
		t.Fatal(err)
	}
	code, body := get(t, p, key(r)+"?sections=on")
	if code != http.StatusOK || reported == nil {
		t.Errorf("got %d, reported %v", code, reported)
	}
	wants(t, body, "could not be read:", "step_script")
}
