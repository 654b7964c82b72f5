package main

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"runtime"
	"strconv"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
)

// endless is a store of so many pages, made as they are asked for.
type endless struct {
	pages int
	asked func(page int)
}

func (s *endless) Get(string) (*cimeter.Record, error) { return nil, cimeter.ErrNotFound }

func (s *endless) List(cursor string, limit int, _ func(*cimeter.Record) bool) ([]*cimeter.Record, string, error) {
	from, _ := strconv.Atoi(cursor)
	if from%pageSize == 0 {
		s.asked(from / pageSize)
	}
	var page []*cimeter.Record
	for i := range limit {
		page = append(page, &cimeter.Record{Build: cimeter.Build{Key: fmt.Sprintf("run/%d", from+i), CI: "run", URL: fmt.Sprintf("%01500d", from+i)}, Gaps: []cimeter.Gap{}, Stages: []cimeter.Stage{}})
	}
	next := ""
	if from+limit < s.pages*pageSize {
		next = strconv.Itoa(from + limit)
	}
	return page, next, nil
}

// counting counts lines and keeps none.
type counting struct{ lines, bytes int }

func (w *counting) Write(b []byte) (int, error) {
	w.lines += bytes.Count(b, []byte("\n"))
	w.bytes += len(b)
	return len(b), nil
}

// However many builds there are, one page is in memory: it is as much after 60
// pages as after 20.
func TestBuilds_All(t *testing.T) {
	const first, last = 20, 60
	for form, lines := range map[string]int{"ndjson": last * pageSize, "csv": last*pageSize + 1, "json": last*pageSize + 2, "table": last*pageSize + 1} {
		var early, late runtime.MemStats
		store := &endless{pages: last, asked: func(page int) {
			switch page {
			case first:
				runtime.GC()
				runtime.ReadMemStats(&early)
			case last - 1:
				runtime.GC()
				runtime.ReadMemStats(&late)
			}
		}}
		server := httptest.NewServer(httpapi.New(httpapi.Options{Store: store}))
		c := &buildsCmd{serverFlags: serverFlags{Server: server.URL}, Format: form, All: true}
		out := &counting{}
		err := c.Run(&env{stdout: out, getenv: func(string) string { return "" }})
		server.Close()
		if err != nil || out.lines != lines {
			t.Errorf("%s: %d lines, %v: want %d", form, out.lines, err, lines)
		}
		if grown := int64(late.HeapAlloc) - int64(early.HeapAlloc); grown > 4<<20 {
			t.Errorf("%s: %d bytes more at the end of %d", form, grown, out.bytes)
		}
	}
}
