package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/sqlite"
)

// pastServer tells of builds, ten a page, and fails as it is told to.
type pastServer struct {
	builds int
	end    time.Time
	asked  int
	fail   map[int]error // by the number of the request
	end2   func(n int)   // called at each request
}

func (p *pastServer) Builds(ctx context.Context, since time.Time, cursor string) (jobs []cimeter.Job, next string, err error) {
	p.asked++
	if p.end2 != nil {
		p.end2(p.asked)
	}
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	if err := p.fail[p.asked]; err != nil {
		return nil, "", err
	}
	from := 0
	if cursor != "" {
		if from, err = strconv.Atoi(cursor); err != nil {
			return nil, "", fmt.Errorf("cursor %q: %w", cursor, cimeter.ErrInvalid)
		}
	}
	for n := from; n < min(from+10, p.builds); n++ {
		end := p.end.Add(-time.Duration(n) * time.Hour)
		if end.Before(since) {
			return jobs, "", nil
		}
		jobs = append(jobs, cimeter.Job{Build: cimeter.Build{Key: "gitlab/x/" + strconv.Itoa(n), CI: "gitlab", Project: "g/a"}, Status: cimeter.JobSuccess,
			QueuedAt: end.Add(-2 * time.Minute), StartedAt: end.Add(-time.Minute), EndedAt: end})
	}
	if from+10 >= p.builds {
		return jobs, "", nil
	}
	return jobs, strconv.Itoa(from + 10), nil
}

func TestBackfill(t *testing.T) {
	kept, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "db")})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	end := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	clock := end
	var slept []time.Duration
	var out bytes.Buffer
	limited := fmt.Errorf("list jobs: %w", &queue.SourceError{Status: 429, RetryAfter: 90 * time.Second, Err: errors.New("GET /jobs")})
	down := &queue.SourceError{Status: 503, Err: errors.New("GET /jobs")}
	from := &pastServer{builds: 200, end: end, fail: map[int]error{3: limited, 4: down}}
	run := func(ctx context.Context, again bool, since time.Duration) error {
		b := backfill{name: "x", kind: "gitlab", from: from, to: kept, since: end.Add(-since), again: again, requests: 2, each: time.Second, timeout: time.Minute, out: &out,
			now: func() time.Time { return clock },
			sleep: func(ctx context.Context, d time.Duration) bool {
				slept = append(slept, d)
				clock = clock.Add(d)
				return ctx.Err() == nil
			}}
		return b.run(ctx)
	}
	count := func() int {
		t.Helper()
		st, err := kept.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return int(st.Builds)
	}

	// Ended by a signal at the sixth request: four pages are there.
	ctx, stop := context.WithCancel(t.Context())
	from.end2 = func(n int) {
		if n == 7 {
			stop()
		}
	}
	if err := run(ctx, false, 100*time.Hour); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "goes on") {
		t.Errorf("ended: %v", err)
	}
	if !strings.Contains(out.String(), "x: 10 builds, 1 pages") || !strings.Contains(out.String(), "; next page in 2s\n") {
		t.Errorf("told %s", out.String())
	}
	if got := count(); got != 40 {
		t.Errorf("%d builds are there, want 40", got)
	}
	if fmt.Sprint(slept) != "[2s 2s 1m30s 4s 2s 2s]" {
		t.Errorf("waited %v", slept)
	}

	// Fails for good: what is there stays noted.
	from.end2, from.fail = nil, map[int]error{8: &queue.SourceError{Status: 401, Err: errors.New("GET /jobs")}}
	if err := run(t.Context(), false, 100*time.Hour); !errors.Is(err, cimeter.ErrUnauthorized) {
		t.Errorf("without the right: %v", err)
	}
	from.fail, from.asked = nil, 0
	if err := run(t.Context(), false, 100*time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := count(); got != 101 || from.asked != 7 {
		t.Errorf("%d builds after %d more pages, want 101 after 7", got, from.asked)
	}
	if !strings.Contains(out.String(), "x: goes on after 40 builds") || !strings.Contains(out.String(), "x: 101 builds since 2026-11-26 08:00, all that there are") {
		t.Errorf("told %s", out.String())
	}

	// Another run finds nothing new, one of more of the past does.
	from.asked = 0
	if err := run(t.Context(), false, 100*time.Hour); err != nil || count() != 101 || from.asked != 11 {
		t.Errorf("again: %v, %d builds, %d pages", err, count(), from.asked)
	}
	from.fail = map[int]error{from.asked + 3: &queue.SourceError{Status: 404, Err: errors.New("GET /jobs")}}
	if err := run(t.Context(), false, 150*time.Hour); !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("%v", err)
	}
	from.fail, from.asked = nil, 0
	if err := run(t.Context(), true, 190*time.Hour); err != nil || count() != 191 || from.asked != 20 {
		t.Errorf("anew: %v, %d builds, %d pages", err, count(), from.asked)
	}

	sum, err := kept.Sum(t.Context(), nil)
	if err != nil || sum.WallSeconds != 191*60 || sum.QueueSeconds != 191*60 {
		t.Errorf("Sum = %+v, %v", sum, err)
	}
	page, err := kept.List(t.Context(), store.Query{Limit: 1})
	if err != nil || page.Records[0].Metered != cimeter.Some(false) || page.Records[0].Usage.CPUSeconds.Total.Known {
		t.Errorf("List = %+v, %v", page, err)
	}
}

// The pause after a page is what its requests use up of the limit, where it is told how
// many they were: none of a database.
func TestBackfill_pause(t *testing.T) {
	for each, want := range map[int64]string{0: "[0s 0s]", 1: "[2s 2s]", 25: "[50s 50s]"} {
		kept, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "db")})
		if err != nil {
			t.Fatal(err)
		}
		from, asked := &pastServer{builds: 30, end: time.Now()}, int64(7)
		from.end2 = func(int) { asked += each }
		var slept []time.Duration
		b := backfill{name: "x", kind: "drone", from: from, to: kept, asked: func() int64 { return asked }, each: 2 * time.Second, requests: 27, timeout: time.Minute,
			out: io.Discard, now: time.Now, sleep: func(_ context.Context, d time.Duration) bool { slept = append(slept, d); return true }}
		if err := b.run(t.Context()); err != nil || fmt.Sprint(slept) != want {
			t.Errorf("%d requests a page: %v, waited %v, want %s", each, err, slept, want)
		}
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A server that is down for long, and one that goes round in circles, end it.
func TestBackfill_gives_up(t *testing.T) {
	kept, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "db")})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	from := &pastServer{builds: 100, end: time.Now(), fail: map[int]error{}}
	for n := range 20 {
		from.fail[n] = &queue.SourceError{Status: 502, Err: errors.New("GET /jobs")}
	}
	var out bytes.Buffer
	b := backfill{name: "x", kind: "gitlab", from: from, to: kept, timeout: time.Minute, out: &out, now: time.Now, sleep: func(context.Context, time.Duration) bool { return true }}
	if err := b.run(t.Context()); !errors.Is(err, cimeter.ErrUnavailable) || from.asked != backfillTries {
		t.Errorf("%v after %d requests", err, from.asked)
	}
	b.from = circle{}
	if err := b.run(t.Context()); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("a circle: %v", err)
	}
}

type circle struct{}

func (circle) Builds(context.Context, time.Time, string) ([]cimeter.Job, string, error) {
	return nil, "again", nil
}
