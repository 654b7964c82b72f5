package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
)

// store is a Store in memory, newest first; the cursor is an index.
type store struct {
	records []*cimeter.Record
	err     error
	failAt  string // cursor at which List fails with err
	scan    int    // records that one List looks at; 0 is all
}

func (s *store) Get(key string) (*cimeter.Record, error) {
	if s.err != nil {
		return nil, s.err
	}
	for _, r := range s.records {
		if r.Key == key {
			return r, nil
		}
	}
	return nil, fmt.Errorf("get record %s: %w", key, cimeter.ErrNotFound)
}

func (s *store) List(cursor string, limit int, wanted func(*cimeter.Record) bool) (found []*cimeter.Record, next string, err error) {
	if s.err != nil && cursor == s.failAt {
		return nil, "", s.err
	}
	at := 0
	if cursor != "" {
		if _, err := fmt.Sscanf(cursor, "c%d", &at); err != nil {
			return nil, "", fmt.Errorf("list records: cursor %q: %w", cursor, cimeter.ErrInvalid)
		}
	}
	for looked := 0; at < len(s.records); looked++ {
		if len(found) == limit || s.scan > 0 && looked == s.scan {
			return found, fmt.Sprintf("c%d", at), nil
		}
		if r := s.records[at]; wanted == nil || wanted(r) {
			found = append(found, r)
		}
		at++
	}
	return found, "", nil
}

// build is record n of a store that numbers from 0 at the newest.
func build(n int) *cimeter.Record {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).Add(-time.Duration(n) * time.Minute)
	r := &cimeter.Record{Schema: 1, StartedAt: at.Add(-time.Minute), EndedAt: at, Complete: true, Result: []string{"success", "failed"}[n%2]}
	r.Build = cimeter.Build{Key: cimeter.BuildKey("gitlab", "gitlab.example.com", fmt.Sprint(n)), CI: "gitlab", Project: "group/app", Name: "test",
		Number: fmt.Sprint(n), Machine: fmt.Sprintf("ci-%d", n%3), Runner: cimeter.Runner{ID: "s_1", ShortToken: "tok", Name: "docker-1"}}
	r.Stages = []cimeter.Stage{{Name: "step_script"}}
	return r
}

func builds(n int) (rs []*cimeter.Record) {
	for i := range n {
		rs = append(rs, build(i))
	}
	return rs
}

func get(t *testing.T, h http.Handler, target string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

type page struct {
	Builds []cimeter.Record `json:"builds"`
	Next   string           `json:"next"`
}

func decode(t *testing.T, w *httptest.ResponseRecorder) (p page) {
	t.Helper()
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%d %s: %s", w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return p
}

type answer struct {
	Title, Detail, Parameter string
	Status                   int
	Reasons                  []string
}

func problemOf(t *testing.T, w *httptest.ResponseRecorder) (p answer) {
	t.Helper()
	if ct := w.Header().Get("Content-Type"); ct != "application/problem+json" {
		t.Fatalf("%d %s: %s: want a problem", w.Code, ct, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	if p.Status != w.Code || p.Title != http.StatusText(w.Code) {
		t.Errorf("status %d, title %q: want those of %d", p.Status, p.Title, w.Code)
	}
	return p
}

func TestAPI_Builds(t *testing.T) {
	h := httpapi.New(httpapi.Options{Store: &store{records: builds(120)}})
	t.Run("newest first, 50 unless asked otherwise", func(t *testing.T) {
		p := decode(t, get(t, h, "/api/v1/builds"))
		if len(p.Builds) != 50 || p.Builds[0].Number != "0" || p.Builds[49].Number != "49" || p.Next == "" {
			t.Errorf("%d builds, next %q", len(p.Builds), p.Next)
		}
	})
	for _, limit := range []int{1, 16, 17, 50, 120, 500} {
		t.Run(fmt.Sprintf("all in pages of %d", limit), func(t *testing.T) {
			var numbers []string
			target := fmt.Sprintf("/api/v1/builds?limit=%d", limit)
			for cursor := ""; ; {
				p := decode(t, get(t, h, target+"&cursor="+url.QueryEscape(cursor)))
				for _, b := range p.Builds {
					numbers = append(numbers, b.Number)
				}
				if len(p.Builds) > limit {
					t.Fatalf("%d builds", len(p.Builds))
				}
				if cursor = p.Next; cursor == "" {
					break
				}
			}
			if len(numbers) != 120 || len(slices.Compact(slices.Clone(numbers))) != 120 {
				t.Errorf("got %v", numbers)
			}
		})
	}
	for query, want := range map[string]int{
		"project=group/app": 120, "project=group": 0, "ci=gitlab": 120, "ci=drone": 0, "name=test": 120, "machine=ci-1": 40,
		"result=failed": 60, "machine=ci-1&result=failed": 20, "runner=s_1": 120, "runner=tok": 120, "runner=docker-1": 120, "runner=x": 0,
		"stage=step_script": 120, "stage=x": 0, "project=": 0,
	} {
		t.Run(query, func(t *testing.T) {
			if p := decode(t, get(t, h, "/api/v1/builds?limit=500&"+query)); len(p.Builds) != want || p.Next != "" {
				t.Errorf("%d builds, next %q: want %d", len(p.Builds), p.Next, want)
			}
		})
	}
	t.Run("none is an empty list", func(t *testing.T) {
		if body := get(t, httpapi.New(httpapi.Options{Store: &store{}}), "/api/v1/builds").Body.String(); body != "{\"builds\":[]}\n" {
			t.Errorf("got %q", body)
		}
	})
	t.Run("a short page has a next where the store stopped looking", func(t *testing.T) {
		h := httpapi.New(httpapi.Options{Store: &store{records: builds(120), scan: 10}})
		if p := decode(t, get(t, h, "/api/v1/builds?machine=ci-1")); len(p.Builds) != 3 || p.Next == "" {
			t.Errorf("%d builds, next %q: want 3 and a next", len(p.Builds), p.Next)
		}
	})
}

func TestAPI_Builds_Failure(t *testing.T) {
	h := httpapi.New(httpapi.Options{Store: &store{records: builds(3)}})
	for query, parameter := range map[string]string{
		"limit=0": "limit", "limit=501": "limit", "limit=x": "limit", "limit=": "limit", "colour=red": "colour",
		"project=a&project=b": "project", "%00=1": `\x00`, "cursor=x": "", "a%zz": "", "a;b": "",
	} {
		t.Run(query, func(t *testing.T) {
			w := get(t, h, "/api/v1/builds?"+query)
			p := problemOf(t, w)
			if w.Code != http.StatusBadRequest || p.Parameter != parameter || !strings.Contains(p.Detail, parameter) {
				t.Errorf("%d %+v: want 400 about %q", w.Code, p, parameter)
			}
		})
	}
	t.Run("a page that breaks off is no page", func(t *testing.T) {
		var reported error
		h := httpapi.New(httpapi.Options{Store: &store{records: builds(40), err: errors.New("disk"), failAt: "c16"}, Report: func(_ string, err error) { reported = err }})
		srv := httptest.NewServer(h)
		defer srv.Close()
		resp, err := http.Get(srv.URL + "/api/v1/builds")
		if err == nil {
			defer resp.Body.Close()
			err = json.NewDecoder(resp.Body).Decode(&page{})
		}
		if err == nil || reported == nil {
			t.Errorf("got %v, reported %v: want both", err, reported)
		}
	})
}

func TestAPI_Build(t *testing.T) {
	odd := build(0)
	odd.Key = cimeter.BuildKey("run", "ci 7", "a b;c,d?#/x")
	odd.Name = "<b>\u202e\x1b[2J"
	h := httpapi.New(httpapi.Options{Store: &store{records: append(builds(3), odd)}})
	t.Run("json", func(t *testing.T) {
		for _, accept := range []string{"", "*/*", "application/json", "text/html, application/json;q=0.9, */*;q=0.1"} {
			w := get(t, h, "/api/v1/builds/gitlab/gitlab.example.com/1", "Accept", accept)
			var r cimeter.Record
			if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || r.Number != "1" || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%q: %v, %d %s", accept, err, w.Code, w.Body)
			}
		}
	})
	t.Run("text and markdown", func(t *testing.T) {
		for accept, want := range map[string]string{"text/plain": "cimeter: ", "text/*": "cimeter: ", "text/markdown": "**cimeter** · ",
			"text/plain;q=0.5, text/markdown": "**cimeter** · ", "application/json;q=0, */*": "cimeter: "} {
			w := get(t, h, "/api/v1/builds/gitlab/gitlab.example.com/1", "Accept", accept)
			if !strings.HasPrefix(w.Body.String(), want) || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/") {
				t.Errorf("%s: %s: %s", accept, w.Header().Get("Content-Type"), w.Body)
			}
		}
	})
	t.Run("a key that needs escapes, and a hostile name", func(t *testing.T) {
		w := get(t, h, "/api/v1/builds/"+odd.Key)
		var r cimeter.Record
		if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || r.Key != odd.Key || r.Name != odd.Name {
			t.Fatalf("%v, %d %s", err, w.Code, w.Body)
		}
		if strings.ContainsAny(w.Body.String(), "<\u202e\x1b") {
			t.Errorf("raw: %q", w.Body)
		}
	})
	t.Run("what cannot be answered", func(t *testing.T) {
		for _, c := range []struct {
			target, accept string
			status         int
		}{
			{"/api/v1/builds/gitlab/x", "", 404}, {"/api/v1/builds/", "", 404}, {"/api/v1/builds/gitlab/gitlab.example.com/1?a=b", "", 400},
			{"/api/v1/builds/gitlab/gitlab.example.com/1", "image/png", 406}, {"/api/v1/builds/gitlab/gitlab.example.com/1", "*/*;q=0", 406},
			{"/api/v1", "", 404}, {"/", "", 404}, {"/healthz/x", "", 404}, {"/api/v1/running", "", 404}, {"/metrics", "", 404}, {"/debug/pprof/", "", 404},
			{"/api/v1/builds/..%2f..%2fetc/passwd", "", 404},
		} {
			w := get(t, h, c.target, "Accept", c.accept)
			if problemOf(t, w); w.Code != c.status {
				t.Errorf("%s (%s): %d: want %d", c.target, c.accept, w.Code, c.status)
			}
		}
	})
}

func TestAPI_Errors(t *testing.T) {
	for _, c := range []struct {
		err      error
		status   int
		told     bool // the client is told the text
		reported bool
	}{
		{cimeter.ErrNotFound, 404, true, false}, {cimeter.ErrInvalid, 400, true, false}, {cimeter.ErrConflict, 409, true, false},
		{cimeter.ErrUnauthorized, 401, false, false}, {cimeter.ErrUnavailable, 503, false, true}, {cimeter.ErrUnsupported, 501, true, false},
		{errors.New("disk /dev/sda"), 500, false, true},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			var reported []string
			h := httpapi.New(httpapi.Options{Store: &store{err: fmt.Errorf("get secret-path: %w", c.err)},
				Report: func(route string, err error) { reported = append(reported, route) }})
			w := get(t, h, "/api/v1/builds/x")
			p := problemOf(t, w)
			if w.Code != c.status || strings.Contains(p.Detail, "secret-path") != c.told {
				t.Errorf("%d %q: want %d, told %t", w.Code, p.Detail, c.status, c.told)
			}
			if (len(reported) == 1 && reported[0] == "/api/v1/builds/") != c.reported {
				t.Errorf("reported %v: want %t", reported, c.reported)
			}
		})
	}
}

func TestAPI_Panic(t *testing.T) {
	var reported []string
	h := httpapi.New(httpapi.Options{
		Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") }),
		Report:  func(_ string, err error) { reported = append(reported, err.Error()) },
	})
	w := get(t, h, "/metrics")
	if p := problemOf(t, w); w.Code != 500 || p.Detail != "" {
		t.Errorf("%d %+v: want 500 without detail", w.Code, p)
	}
	if h.Panics() != 1 || len(reported) != 1 || !strings.Contains(reported[0], "boom") || !strings.Contains(reported[0], "api_test.go") {
		t.Errorf("%d panics, %q: want one with its stack", h.Panics(), reported)
	}
}

func TestAPI_State(t *testing.T) {
	var reasons []string
	h := httpapi.New(httpapi.Options{
		Ready:   func() []string { return reasons },
		Version: httpapi.Version{Version: "1.2.3", Revision: "abc", Go: "go1.26"},
		Running: func() []*cimeter.Record { return nil },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("m 1\n")) }),
	})
	for target, want := range map[string]string{
		"/healthz": "ok\n", "/readyz": "ready\n", "/metrics": "m 1\n", "/api/v1/running": "{\"builds\":[]}\n",
		"/version": `{"version":"1.2.3","revision":"abc","go":"go1.26"}` + "\n",
	} {
		if w := get(t, h, target); w.Code != 200 || w.Body.String() != want {
			t.Errorf("%s: %d %q: want %q", target, w.Code, w.Body, want)
		}
	}
	reasons = []string{"docker: not reachable since 12:00", "records: disk full"}
	w := get(t, h, "/readyz")
	if p := problemOf(t, w); w.Code != 503 || !slices.Equal(p.Reasons, reasons) {
		t.Errorf("%d %+v: want 503 and the reasons", w.Code, p)
	}
	if w := get(t, h, "/healthz"); w.Code != 200 {
		t.Errorf("/healthz %d while not ready: want 200", w.Code)
	}
}

// Every route refuses to write and sends the headers that keep browsers safe.
func TestAPI_EveryRoute(t *testing.T) {
	h := httpapi.New(httpapi.Options{Store: &store{records: builds(1)}, Running: func() []*cimeter.Record { return nil },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("m 1\n")) })})
	if len(h.Routes()) != 7 {
		t.Errorf("%d routes: want 7", len(h.Routes()))
	}
	for _, path := range h.Routes() {
		if path == "/api/v1/builds/" {
			path += "gitlab/gitlab.example.com/0"
		}
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "X"} {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), method, "http://x"+path, nil)
			r.URL.Path = path
			h.ServeHTTP(w, r)
			if reads := method == "GET" || method == "HEAD"; reads != (w.Code == 200) {
				t.Errorf("%s %s: %d", method, path, w.Code)
			} else if !reads && (w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD") {
				t.Errorf("%s %s: %d, Allow %q: want 405", method, path, w.Code, w.Header().Get("Allow"))
			}
			for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
				"Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin", "Referrer-Policy": "same-origin", "Access-Control-Allow-Origin": ""} {
				if got := w.Header().Get(name); got != want {
					t.Errorf("%s %s: %s: %q: want %q", method, path, name, got, want)
				}
			}
		}
	}
}

func FuzzQuery(f *testing.F) {
	for _, q := range []string{"", "limit=3", "cursor=c2&project=group/app", "a=b", "%zz", "limit=1&limit=2", ";", "limit=-0"} {
		f.Add(q, "text/plain;q=0.5,*/*")
	}
	h := httpapi.New(httpapi.Options{Store: &store{records: builds(5)}})
	f.Fuzz(func(t *testing.T, query, accept string) {
		for _, path := range []string{"/api/v1/builds", "/api/v1/builds/gitlab/gitlab.example.com/1"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			r.URL.RawQuery = query
			r.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != 200 && w.Code != 400 && w.Code != 406 {
				t.Errorf("%q, %q: %d", query, accept, w.Code)
			}
			if ct := w.Header().Get("Content-Type"); strings.HasSuffix(ct, "json") && !json.Valid(w.Body.Bytes()) {
				t.Errorf("%q: %q", query, w.Body)
			}
		}
	})
}
