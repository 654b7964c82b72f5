package hooks_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/hooks"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/tally"
)

const name = "gitlab.example.com"

// signed is a hook as most CI servers send it: an HMAC over the body, an id, and JSON.
type signed struct{ secret string }

func (h signed) sign(body []byte) string {
	m := hmac.New(sha256.New, []byte(h.secret))
	m.Write(body)
	return hex.EncodeToString(m.Sum(nil))
}

func (h signed) Verify(header http.Header, body []byte, _ time.Time) error {
	if !hmac.Equal([]byte(header.Get("X-Signature")), []byte(h.sign(body))) {
		return fmt.Errorf("signature: %w", cimeter.ErrUnauthorized)
	}
	return nil
}

func (h signed) Parse(header http.Header, body []byte) (queue.Report, string, error) {
	switch header.Get("X-Event") {
	case "push":
		return queue.Report{}, "", fmt.Errorf("event push: %w", cimeter.ErrUnsupported)
	case "panic":
		panic("index out of range")
	}
	var j cimeter.Job
	if err := json.Unmarshal(body, &j); err != nil {
		return queue.Report{}, "", fmt.Errorf("decode: %w", cimeter.ErrInvalid)
	}
	return queue.Report{Jobs: []cimeter.Job{j}, WholeJobs: true}, header.Get("X-Id"), nil
}

func job(n int, status cimeter.JobStatus) cimeter.Job {
	return cimeter.Job{Build: cimeter.Build{Key: cimeter.BuildKey("gitlab", name, fmt.Sprint(n)), CI: "gitlab", Server: name, Project: "group/app"}, Status: status}
}

// hook is one delivery.
type hook struct {
	header http.Header
	body   []byte
}

func delivery(id string, j cimeter.Job, secret string) hook {
	body, err := json.Marshal(j)
	if err != nil {
		panic(err)
	}
	h := http.Header{"X-Signature": {signed{secret}.sign(body)}}
	if id != "" {
		h.Set("X-Id", id)
	}
	return hook{h, body}
}

// taken are the reports that were handed on.
type taken struct {
	mu      sync.Mutex
	reports []queue.Report
	servers []string
	hold    chan struct{}
}

func (k *taken) take(server string, r queue.Report) {
	if k.hold != nil {
		<-k.hold
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reports, k.servers = append(k.reports, r), append(k.servers, server)
}

func newReceiver(take func(string, queue.Report), now func() time.Time) (*hooks.Receiver, *tally.Table) {
	counts := tally.New(tally.Options{})
	return hooks.New(hooks.Options{Take: take, Tally: counts, Now: now, Servers: []hooks.Server{
		{Name: name, CI: "gitlab", Hook: signed{"one"}}, {Name: "other.example.com", CI: "gitlab", Hook: signed{"two"}}, {Name: "drone.example.com", CI: "drone", Hook: signed{"one"}},
	}}, slog.New(slog.NewTextHandler(io.Discard, nil))), counts
}

// run runs the receiver; stop ends it when all that waits is handed on.
func run(t testing.TB, r *hooks.Receiver) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func count(t *tally.Table, ci, result string) float64 {
	v, _ := t.Value(catalog.ServerHooks, ci, result).Get()
	return v
}

func TestReceiver(t *testing.T) {
	var got taken
	clock := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	r, counts := newReceiver(got.take, func() time.Time { return clock })
	ask := func(ci string, h hook, set ...string) error {
		for i := 0; i < len(set); i += 2 {
			h.header.Set(set[i], set[i+1])
		}
		return r.Receive(ci, h.header, h.body)
	}
	forged := delivery("f", job(1, cimeter.JobFailed), "three")
	changed := delivery("g", job(1, cimeter.JobFailed), "one")
	changed.body = bytes.Replace(changed.body, []byte("failed"), []byte("success"), 1)
	for _, c := range []struct {
		what, ci string
		h        hook
		set      []string
		want     error
		result   string
	}{
		{"good", "gitlab", delivery("a", job(1, cimeter.JobWaiting), "one"), nil, nil, "taken"},
		{"of the other server", "gitlab", delivery("a", job(2, cimeter.JobWaiting), "two"), nil, nil, "taken"},
		{"replayed", "gitlab", delivery("a", job(1, cimeter.JobWaiting), "one"), nil, nil, "duplicate"},
		{"without an id", "gitlab", delivery("", job(1, cimeter.JobWaiting), "one"), nil, nil, "taken"},
		{"without an id again", "gitlab", delivery("", job(1, cimeter.JobWaiting), "one"), nil, nil, "taken"},
		{"forged", "gitlab", forged, nil, cimeter.ErrUnauthorized, "unverified"},
		{"changed", "gitlab", changed, nil, cimeter.ErrUnauthorized, "unverified"},
		{"of another kind", "drone", delivery("b", job(1, cimeter.JobWaiting), "two"), nil, cimeter.ErrUnauthorized, "unverified"},
		{"of a kind that is not set up", "svn", delivery("b", job(1, cimeter.JobWaiting), "one"), nil, cimeter.ErrNotFound, ""},
		{"an event of no interest", "gitlab", delivery("c", job(1, cimeter.JobWaiting), "one"), []string{"X-Event", "push"}, nil, "ignored"},
		{"garbage", "gitlab", hook{http.Header{"X-Signature": {signed{"one"}.sign([]byte("<html>"))}}, []byte("<html>")}, nil, cimeter.ErrInvalid, "unreadable"},
		{"what the parser is not ready for", "gitlab", delivery("d", job(1, cimeter.JobWaiting), "one"), []string{"X-Event", "panic"}, cimeter.ErrInvalid, "unreadable"},
	} {
		before := 0.0
		if c.result != "" {
			before = count(counts, c.ci, c.result)
		}
		if err := ask(c.ci, c.h, c.set...); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v: want %v", c.what, err, c.want)
		}
		if c.result != "" && count(counts, c.ci, c.result) != before+1 {
			t.Errorf("%s: not counted as %s", c.what, c.result)
		}
	}
	if n := len(counts.Values(catalog.ServerHooks)); n != 6 {
		t.Errorf("%d series: want none for a kind that somebody made up", n)
	}
	run(t, r)()
	if want := []string{name, "other.example.com", name, name}; !slices.Equal(got.servers, want) {
		t.Errorf("%q: want %q", got.servers, want)
	}
	if one := got.reports[0]; one.WholeJobs || !one.At.Equal(clock) {
		t.Errorf("%+v: want the time that it came, and not that it is all there is", one)
	}
	// An id is known for a day at least, whatever came meanwhile in that time.
	clock = clock.Add(24 * time.Hour)
	if _ = ask("gitlab", delivery("a", job(1, cimeter.JobWaiting), "one")); count(counts, "gitlab", "duplicate") != 2 {
		t.Error("forgotten within a day")
	}
	clock = clock.Add(time.Second) // the period is over
	for _, h := range []hook{delivery("e", job(3, cimeter.JobWaiting), "one"), delivery("a", job(1, cimeter.JobWaiting), "one")} {
		_ = ask("gitlab", h)
	}
	if n := count(counts, "gitlab", "duplicate"); n != 3 {
		t.Errorf("%g duplicates: want that ids of the last period are known", n)
	}
}

// When too much waits the sender is told to come again, and what it sends then is
// taken.
func TestReceiver_busy(t *testing.T) {
	got := taken{hold: make(chan struct{})}
	r, counts := newReceiver(got.take, nil)
	full := 0
	for n := range 9000 {
		h := delivery(fmt.Sprint(n), job(n, cimeter.JobWaiting), "one")
		if err := r.Receive("gitlab", h.header, h.body); errors.Is(err, httpapi.ErrBusy) {
			full++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if full == 0 || float64(full) != count(counts, "gitlab", "busy") {
		t.Errorf("%d were told that it is busy, %g counted", full, count(counts, "gitlab", "busy"))
	}
	close(got.hold)
	run(t, r)()
	for n := range 9000 {
		h := delivery(fmt.Sprint(n), job(n, cimeter.JobWaiting), "one")
		if err := r.Receive("gitlab", h.header, h.body); err != nil {
			t.Fatal(err)
		}
	}
	run(t, r)()
	if len(got.reports) != 9000 {
		t.Errorf("%d taken: want each once", len(got.reports))
	}
}

// burst is what 1,250 builds send in their lives, 5,000 deliveries and more, out of
// order, a tenth of them twice; and how many wait and run in the end.
func burst(r *rand.Rand) (sent []hook, waiting, running, ended int) {
	id := 0
	statuses := []cimeter.JobStatus{cimeter.JobBlocked, cimeter.JobWaiting, cimeter.JobRunning, cimeter.JobSuccess}
	for n := 0; len(sent) < 5000; n++ {
		far := 1 + r.IntN(3)
		for _, status := range statuses[:far+1] {
			h := delivery(fmt.Sprint(id), job(n, status), "one")
			id++
			sent = append(sent, h)
			if r.IntN(9) == 0 {
				sent = append(sent, h)
			}
		}
		switch far {
		case 1:
			waiting++
		case 2:
			running++
		case 3:
			ended++
		}
	}
	r.Shuffle(len(sent), func(i, j int) { sent[i], sent[j] = sent[j], sent[i] })
	return sent, waiting, running, ended
}

// serve is the server's end as it is: the API, the receiver and a board.
func serve(t testing.TB) (url string, board *queue.Board, counts *tally.Table, stop func()) {
	t.Helper()
	board = queue.NewBoard(queue.Options{Servers: []queue.Source{{Name: name, CI: "gitlab"}}})
	r, counts := newReceiver(func(server string, r queue.Report) { board.Add(server, false, r) }, nil)
	end := run(t, r)
	srv := httptest.NewServer(httpapi.New(httpapi.Options{Hooks: r}))
	return srv.URL + httpapi.HooksPath + "gitlab", board, counts, func() { srv.Close(); end() }
}

func send(t testing.TB, c *http.Client, url string, h hook) (took time.Duration) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(h.body))
	if err != nil {
		t.Error(err)
		return 0
	}
	req.Header = h.header.Clone()
	began := time.Now()
	answer, err := c.Do(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	took = time.Since(began)
	io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("answered %d", answer.StatusCode)
	}
	return took
}

// Five thousand webhooks from twenty senders at once, out of order, a tenth of them
// twice: the counts are exact.
func TestReceiver_burst(t *testing.T) {
	sent, waiting, running, ended := burst(rand.New(rand.NewPCG(4, 2)))
	url, board, counts, stop := serve(t)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 20}}
	defer client.CloseIdleConnections()
	work := make(chan hook)
	var senders sync.WaitGroup
	for range 20 {
		senders.Go(func() {
			for h := range work {
				send(t, client, url, h)
			}
		})
	}
	for _, h := range sent {
		work <- h
	}
	close(work)
	senders.Wait()
	stop()
	over := len(board.Look(time.Now(), nil))
	s := board.State(time.Now()).Servers[0]
	if s.Waiting.Value != waiting || s.Running.Value != running || s.Blocked.Value != 0 || over != ended {
		t.Errorf("%d waiting, %d running, %d blocked, %d ended of %d webhooks: want %d, %d, 0, %d", s.Waiting.Value, s.Running.Value, s.Blocked.Value, over, len(sent), waiting, running, ended)
	}
	twice := 0
	seen := map[string]bool{}
	for _, h := range sent {
		if id := h.header.Get("X-Id"); seen[id] {
			twice++
		} else {
			seen[id] = true
		}
	}
	if got := count(counts, "gitlab", "duplicate"); got != float64(twice) || count(counts, "gitlab", "taken") != float64(len(sent)-twice) {
		t.Errorf("%g duplicates: want %d", got, twice)
	}
}

// BenchmarkReceiver_burst sends some 5,000 webhooks evenly over ten seconds and tells
// how long the slowest hundredth waited for its answer.
func BenchmarkReceiver_burst(b *testing.B) {
	for b.Loop() {
		sent, _, _, _ := burst(rand.New(rand.NewPCG(4, 2)))
		url, _, _, stop := serve(b)
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
		took := make([]time.Duration, len(sent))
		tick := time.NewTicker(10 * time.Second / time.Duration(len(sent)))
		var senders sync.WaitGroup
		for i, h := range sent {
			<-tick.C
			senders.Go(func() { took[i] = send(b, client, url, h) })
		}
		senders.Wait()
		tick.Stop()
		client.CloseIdleConnections()
		stop()
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
		b.ReportMetric(float64(len(sent)), "webhooks")
	}
}
