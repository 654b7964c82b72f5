package httpapi_test

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	rows "github.com/cimeter/cimeter/internal/store"
)

// A list as CSV or NDJSON is all that the filter finds, over all pages, in order.
func TestBuilds_stream(t *testing.T) {
	api, _ := newServer(t, 450)
	for query, want := range map[string]int{"": 450, "&limit=250": 250, "&limit=1": 1, "&q=cpu%3E%3D400s": 50, "&project=nobody": 0, "&sort=cpu&order=asc": 450} {
		w := get(t, api, "/api/v1/builds?format=csv"+query)
		cells, err := csv.NewReader(w.Body).ReadAll()
		if err != nil || w.Code != http.StatusOK || len(cells) != 1+want || cells[0][0] != "key" {
			t.Fatalf("%s: %d, %d rows, %v: want a header and %d", query, w.Code, len(cells), err, want)
		}
		if kind := w.Header().Get("Content-Type"); kind != "text/csv; charset=utf-8; header=present" {
			t.Errorf("type %s", kind)
		}
		w = get(t, api, "/api/v1/builds?format=ndjson"+query)
		n := 0
		for lines := bufio.NewScanner(w.Body); lines.Scan(); n++ {
			var r cimeter.Record
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil || n >= want || r.Key != cells[1+n][0] {
				t.Fatalf("%s: line %d: %s, %v: want %s", query, n, r.Key, err, cells[min(1+n, want)][0])
			}
		}
		if n != want {
			t.Errorf("%s: %d lines: want %d", query, n, want)
		}
	}
	for query, part := range map[string]string{"format=xml": "want one of json, ndjson, csv", "format=csv&cursor=x": "cursor", "format=csv&limit=0": "limit", "format=ndjson&sort=x": "sort"} {
		if w := get(t, api, "/api/v1/builds?"+query); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), part) {
			t.Errorf("%s: %d %s: want 400 and %s", query, w.Code, w.Body, part)
		}
	}
	if w := get(t, api, "/api/v1/builds?format=csv", "Accept-Encoding", "gzip"); w.Header().Get("ETag") != "" {
		t.Error("a stream has an entity tag")
	}
}

// pages is a store of so many pages, made as they are asked for.
type pages struct {
	httpapi.Query
	n    int
	seen func(page int) error
}

var long = strings.Repeat("x", 1500)

func (p *pages) List(_ context.Context, q rows.Query) (rows.Page, error) {
	page, _ := strconv.Atoi(q.Cursor)
	if err := p.seen(page); err != nil {
		return rows.Page{}, err
	}
	var out rows.Page
	for i := range q.Limit {
		r := build(page*q.Limit + i)
		r.URL = long
		out.Records = append(out.Records, r)
	}
	if page+1 < p.n {
		out.Next = strconv.Itoa(page + 1)
	}
	return out, nil
}

func (p *pages) serve(t *testing.T) string {
	s := httptest.NewServer(httpapi.New(httpapi.Options{Query: p, Now: now}))
	t.Cleanup(s.Close)
	return s.URL
}

// What is streamed is not held: the memory in use is the same near the begin and
// at the end of 12,000 builds.
func TestBuilds_streamIsNotHeld(t *testing.T) {
	var early, late runtime.MemStats
	p := &pages{n: 120, seen: func(page int) error {
		switch page {
		case 20:
			runtime.GC()
			runtime.ReadMemStats(&early)
		case 119:
			runtime.GC()
			runtime.ReadMemStats(&late)
		}
		return nil
	}}
	resp, err := http.Get(p.serve(t) + "/api/v1/builds?format=ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil || n < 20<<20 {
		t.Fatalf("%d bytes, %v: want 20 MiB or more, or nothing is tested", n, err)
	}
	if grown := int64(late.HeapAlloc) - int64(early.HeapAlloc); grown > 4<<20 {
		t.Errorf("%d bytes more at the end of a stream of %d", grown, n)
	}
}

// A store that fails in the middle breaks the connection: a part is never taken
// for the whole.
func TestBuilds_streamIsCutOff(t *testing.T) {
	p := &pages{n: 5, seen: func(page int) error {
		if page == 3 {
			return errors.New("the disk is gone")
		}
		return nil
	}}
	for _, form := range []string{"csv", "ndjson"} {
		resp, err := http.Get(p.serve(t) + "/api/v1/builds?format=" + form)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err == nil {
			t.Errorf("%s: a part was taken for the whole", form)
		}
	}
	failing := &pages{n: 5, seen: func(int) error { return errors.New("the disk is gone") }}
	resp, err := http.Get(failing.serve(t) + "/api/v1/builds?format=csv")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusInternalServerError || strings.Contains(string(b), "disk") {
		t.Errorf("%d %s: want 500 and no detail", resp.StatusCode, b)
	}
}

// An agent's list is the same stream, with the filters that it knows.
func TestBuilds_streamOfAnAgent(t *testing.T) {
	api := httpapi.New(httpapi.Options{Store: &store{records: builds(250), scan: 70}})
	for target, want := range map[string]int{"/api/v1/builds?format=csv": 251, "/api/v1/builds?format=ndjson": 250, "/api/v1/builds?format=ndjson&limit=120": 120, "/api/v1/builds?format=csv&project=nobody": 1} {
		if w := get(t, api, target); w.Code != http.StatusOK || strings.Count(w.Body.String(), "\n") != want {
			t.Errorf("%s: %d, %d lines: want %d", target, w.Code, strings.Count(w.Body.String(), "\n"), want)
		}
	}
}
