package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// readers are people and programs that look at the server.
type readers struct {
	p    *process
	http *http.Client

	mu     sync.Mutex
	times  map[string][]time.Duration // by what is read
	failed int
	why    error
}

// walked is what the walker reads in turn: every page and every list.
var walked = []string{
	"/", "/builds", "/builds?q=result:failed", "/builds?sort=cpu", "/builds?q=group-1&t=7d", "/builds/gitlab/gitlab.example.com/42", "/trace/gitlab/gitlab.example.com/42",
	"/compare?a=gitlab/gitlab.example.com/42&b=gitlab/gitlab.example.com/252", "/projects", "/project?name=group-1/app-1", "/job?project=group-1/app-1&name=test",
	"/machines", "/machine?name=ci-7", "/runner?key=s_ci-7", "/help",
	"/api/v1/builds", "/api/v1/builds?limit=500", "/api/v1/builds?sort=cpu&result=failed", "/api/v1/builds?q=group-1", "/api/v1/builds/gitlab/gitlab.example.com/42",
	"/api/v1/traces/gitlab/gitlab.example.com/42", "/api/v1/summary", "/api/v1/projects", "/api/v1/jobs", "/api/v1/stages", "/api/v1/machines", "/api/v1/runners",
	"/api/v1/totals", "/api/v1/compare?a=gitlab/gitlab.example.com/42&b=gitlab/gitlab.example.com/252", "/api/v1/names?kind=project&part=app", "/api/v1/agents",
	"/api/v1/running", "/api/v1/openapi.json", "/metrics", "/healthz",
}

func newReaders(p *process) *readers {
	return &readers{p: p, times: map[string][]time.Duration{}, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: 30 * time.Second}}
}

func (r *readers) get(ctx context.Context, path, as string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.p.base+path, nil)
	if err != nil {
		r.fail(err)
		return
	}
	begun := time.Now()
	resp, err := r.http.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("GET %s: %s", path, resp.Status)
		}
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.fail(err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times[as] = append(r.times[as], time.Since(begun))
}

func (r *readers) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed++
	r.why = err
}

// walk reads everything in turn, without haste.
func (r *readers) walk(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		path := walked[i%len(walked)]
		r.get(ctx, path, path)
	}
}

// watch keeps the page of what runs now open as a browser does: at each event
// of the stream it reads the page again.
func (r *readers) watch(ctx context.Context) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.p.base+"/live", nil)
		if err != nil {
			r.fail(err)
			return
		}
		resp, err := client.Do(req)
		if err != nil {
			if ctx.Err() == nil {
				r.fail(err)
			}
			continue
		}
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "data:") {
				r.get(ctx, "/", "/ live")
			}
		}
		resp.Body.Close()
		if ctx.Err() == nil {
			r.fail(fmt.Errorf("a live page's stream ended"))
		}
	}
}

func (r *readers) report(t *table) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var pages, lists []time.Duration
	worst, slowest := "", time.Duration(0)
	for path, times := range r.times {
		switch {
		case path == "/healthz":
			continue
		case path == "/metrics" || strings.HasPrefix(path, "/api/"):
			lists = append(lists, times...)
		default:
			pages = append(pages, times...)
		}
		if p99 := quantile(times, 0.99); p99 > slowest {
			worst, slowest = path, p99
		}
	}
	bare := r.times["/healthz"]
	times := func(d []time.Duration) string {
		return fmt.Sprintf("%d answers, median %.1f ms, %.0f times /healthz's median", len(d), milliseconds(quantile(d, 0.5)), float64(quantile(d, 0.5))/float64(max(1, quantile(bare, 0.5))))
	}
	t.bound("p99 of pages", 100, milliseconds(quantile(pages, 0.99)), " ms", times(pages))
	t.bound("p99 of API lists", 100, milliseconds(quantile(lists, 0.99)), " ms", times(lists))
	t.note("p99 of /healthz, which does nothing", fmt.Sprintf("%.1f ms", milliseconds(quantile(bare, 0.99))))
	t.note("the slowest p99", fmt.Sprintf("%.1f ms: %s", milliseconds(slowest), worst))
	detail := ""
	if r.why != nil {
		detail = r.why.Error()
	}
	t.bound("answers that failed", 0, float64(r.failed), "", detail)
}
