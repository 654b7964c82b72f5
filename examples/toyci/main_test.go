package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The toy serves builds and tells of them as the README of the library says: the
// queue drawn at /debug/vars while they run, the counters at /metrics and to
// StatsD when they are done.
func TestToy(t *testing.T) {
	statsd, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer statsd.Close()
	var posts atomic.Int32
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/metrics" {
			posts.Add(1)
		}
		_, _ = io.Copy(io.Discard, r.Body) // an error is the connection's
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer collector.Close()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, []string{"-listen", "127.0.0.1:0", "-workers", "1", "-work", "200ms", "-statsd", statsd.LocalAddr().String(), "-otlp", collector.URL}, w)
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
	for i, fails := range []string{"", "yes", ""} {
		res, err := http.PostForm(base+"/builds", url.Values{"repo": {"octocat/hello"}, "branch": {"main"}, "commit": {"7e4d"}, "fails": {fails}})
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusAccepted {
			t.Fatalf("build %d: %s", i, res.Status)
		}
	}
	eventually(t, base+"/debug/vars", `"worker0":{"repo":"octocat/hello","branch":"main","commit":"7e4d"}`)
	vars := eventually(t, base+"/debug/vars", `"queueLen":0`)
	var q struct{ Queue struct{ WorkerCount int } }
	if err := json.Unmarshal([]byte(vars), &q); err != nil || q.Queue.WorkerCount != 1 {
		t.Errorf("%v: %s", err, vars)
	}
	page := eventually(t, base+"/metrics", `cimeter_builds_running{ci="toy",project="octocat/hello"} 0`)
	for _, want := range []string{
		`cimeter_builds_total{ci="toy",project="octocat/hello",result="success"} 2`,
		`cimeter_builds_total{ci="toy",project="octocat/hello",result="failed"} 1`,
		`cimeter_build_queue_seconds_count{ci="toy",project="octocat/hello"} 3`,
		`cimeter_queue_builds{server="toyci",status="waiting"} 0`,
		`cimeter_workers{server="toyci",state="idle"} 1`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	var got bytes.Buffer
	b := make([]byte, 65536)
	for {
		_ = statsd.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		n, _, err := statsd.ReadFrom(b)
		if err != nil {
			break // all that came is here: the toy has ended
		}
		got.Write(b[:n])
		got.WriteByte('\n')
	}
	if posts.Load() == 0 {
		t.Error("the receiver of OTLP was sent nothing")
	}
	if !strings.Contains(got.String(), "cimeter_builds_total.") {
		t.Errorf("StatsD was sent:\n%s", &got)
	}
}

// eventually asks until the answer holds want.
func eventually(t *testing.T, address, want string) string {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		res, err := http.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(body), want) {
			return string(body)
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s within a minute in\n%s", want, body)
		}
	}
}
