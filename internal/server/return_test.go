package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/push"
	"github.com/cimeter/cimeter/internal/spool"
	"github.com/cimeter/cimeter/internal/tally"
	"github.com/cimeter/cimeter/internal/wire"
)

// returnMemory bounds what a server holds while 2,000 agents come back at once:
// docs/server.md says so.
const returnMemory = 256 << 20

// ownWay is the way of one agent, over a connection of its own. It notes when each
// batch was sent and how it was answered.
type ownWay struct {
	http.Transport
	addr string

	mu     sync.Mutex
	sent   []time.Time
	busy   []string // how it was turned away, and after how long it is to come again
	others []string // answers of another kind
	cut    int      // connections: a busy machine may take longer for a header than the server waits
}

// RoundTrip implements http.RoundTripper.
func (w *ownWay) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = w.addr
	at := time.Now()
	resp, err := w.Transport.RoundTrip(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	batch := r.URL.Path == wire.RecordsPath
	if batch {
		w.sent = append(w.sent, at)
	}
	switch {
	case err != nil:
		w.cut++
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusServiceUnavailable:
		if batch {
			w.busy = append(w.busy, fmt.Sprint(resp.StatusCode, " after ", resp.Header.Get("Retry-After")))
		}
	case resp.StatusCode/100 != 2:
		w.others = append(w.others, resp.Status)
	}
	return resp, err
}

// A server whose 2,000 agents begin at one instant, over a connection each, turns away
// what it has no room for within its bound of memory. Those come again one by one as
// they are told to, none waits for more than two minutes, and each record is there once (F21).
func TestServer_thunderingReturnToProcess(t *testing.T) {
	const agents, each = 2000, 2
	base, err := os.MkdirTemp("/dev/shm", "crowd") // the agents' syncs are not what is tested
	if err != nil {
		base = t.TempDir()
	}
	defer os.RemoveAll(base)
	p := startProcess(t, t.TempDir(), "")
	defer p.end(syscall.SIGKILL)
	ctx, cancel := context.WithCancel(t.Context())
	ways, queues := make([]*ownWay, agents), make([]*spool.Spool, agents)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	start := make(chan struct{})
	for i := range agents {
		if queues[i], err = spool.Open(spool.Options{Dir: filepath.Join(base, fmt.Sprint(i))}); err != nil {
			t.Fatal(err)
		}
		defer queues[i].Close()
		ways[i] = &ownWay{Transport: http.Transport{MaxIdleConnsPerHost: 1}, addr: p.addr}
		defer ways[i].CloseIdleConnections()
		sender, err := push.NewSender(push.SenderOptions{URL: "http://server.example.com", Transport: ways[i], Agent: queues[i].ID()})
		if err != nil {
			t.Fatal(err)
		}
		pusher := push.New(push.Options{Server: sender, Spool: queues[i], Tally: tally.New(tally.Options{}), Machine: fmt.Sprint("ci-", i)}, slog.New(slog.DiscardHandler))
		records := pusher.Before(nowhere{})
		for n := range each {
			if err := records.Put(large(i*each + n)); err != nil {
				t.Fatal(err)
			}
		}
		running.Go(func() {
			<-start
			pusher.Run(ctx)
		})
	}
	began := time.Now()
	close(start)
	waits := make([]time.Duration, 0, agents)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for waiting := slices.Clone(queues); len(waiting) > 0; <-tick.C {
		waiting = slices.DeleteFunc(waiting, func(q *spool.Spool) bool {
			served := q.Stats().Records == 0
			if served {
				waits = append(waits, time.Since(began))
			}
			return served
		})
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%d agents wait for two minutes", len(waiting))
		}
	}
	high := memoryPeak(t, p.cmd.Process.Pid)
	retries, again, cut := map[int]int{}, 0, 0 // those who came again, in each second
	answers := map[string]int{}
	for _, w := range ways {
		w.mu.Lock()
		for _, at := range w.sent[1:] {
			retries[int(at.Sub(began).Seconds())]++
			again++
		}
		for _, said := range w.busy {
			answers[said]++
		}
		for _, said := range w.others {
			t.Errorf("answered: %s", said)
		}
		cut += w.cut
		w.mu.Unlock()
	}
	most := 0
	for _, n := range retries {
		most = max(most, n)
	}
	if answers["429 after "]+answers["503 after "] > 0 || again > 200 && (len(answers) < 3 || most > again/2) {
		t.Errorf("turned away with %v, came again in each second %v: want them told when, and spread", answers, retries)
	}
	if high > returnMemory {
		t.Errorf("the server held %d MiB, want at most %d", high>>20, returnMemory>>20)
	}
	cancel()
	running.Wait()
	rows := stored(t, p.addr)
	for n := range agents * each {
		if rows[key(n)] != 1 {
			t.Fatalf("%s is there %d times", key(n), rows[key(n)])
		}
	}
	if len(rows) != agents*each {
		t.Errorf("%d rows, want %d", len(rows), agents*each)
	}
	t.Logf("%d agents: half served after %s, the last after %s; turned away: %v; at most %d of %d came again in one second; %d connections were cut; the server held at most %d MiB",
		agents, waits[agents/2].Round(time.Millisecond), waits[agents-1].Round(time.Millisecond), answers, most, again, cut, high>>20)
}

// memoryPeak is the most resident memory that a process had, in bytes.
func memoryPeak(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(b)
	if m == nil {
		t.Fatalf("no VmHWM in\n%s", b)
	}
	kib, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
