package refine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/section"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/sqlite"
	"github.com/cimeter/cimeter/internal/tally"
)

// logs are those of a CI server; read tells which were read, in order.
type logs struct {
	read []string
	fail map[string]error // by key
}

func (l *logs) Sections(_ context.Context, project, key string) (section.Log, error) {
	l.read = append(l.read, project+" "+key)
	if err := l.fail[key]; err != nil {
		return section.Log{}, err
	}
	return section.Log{Sections: []section.Section{{Name: "build", From: start, To: start.Add(time.Second)}}}, nil
}

var start = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

type world struct {
	*Refiner
	*logs
	t     *testing.T
	store *sqlite.Store
	now   time.Time
}

func newWorld(t *testing.T, requests int) *world {
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "b.db"), Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w := &world{t: t, store: s, now: start, logs: &logs{fail: map[string]error{}}}
	w.restart(requests)
	return w
}

// restart is another process on the same store.
func (w *world) restart(requests int) {
	w.Refiner = New(Options{
		Store: w.store, Tally: tally.New(tally.Options{}), Now: func() time.Time { return w.now },
		Servers: []Server{{Name: "g", CI: "gitlab", Host: "h", Reader: w.logs, Requests: requests, Wanted: func(p string) bool { return strings.HasPrefix(p, "group/") }}},
	}, slog.New(slog.DiscardHandler))
}

func (w *world) build(key, project string, ended time.Time, stages ...string) {
	w.t.Helper()
	r := &cimeter.Record{Schema: 1, Complete: true, Gaps: []cimeter.Gap{}, Stages: []cimeter.Stage{}, StartedAt: ended.Add(-time.Minute), EndedAt: ended,
		Build: cimeter.Build{Key: key, CI: "gitlab", Server: strings.Split(key, "/")[1], Project: project, Name: "test", Attempt: 1}}
	for _, name := range stages {
		r.Stages = append(r.Stages, cimeter.Stage{Name: name, Attempt: 1, Boundary: cimeter.BoundaryContainer, StartedAt: r.StartedAt, EndedAt: ended})
	}
	if _, err := w.store.Put(w.t.Context(), []store.Put{{Record: r, ReceivedAt: ended}}); err != nil {
		w.t.Fatal(err)
	}
}

// looks looks every 15 s for so long, and returns what was read meanwhile.
func (w *world) looks(d time.Duration) (read []string, err error) {
	w.t.Helper()
	before := len(w.logs.read)
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(lookEvery) {
		for _, s := range w.servers {
			err = errors.Join(err, w.look(w.t.Context(), s))
		}
	}
	return w.logs.read[before:], err
}

func (w *world) kept(key string) string {
	w.t.Helper()
	found, err := w.store.SectionsOf(w.t.Context(), []string{key})
	if err != nil {
		w.t.Fatal(err)
	}
	return string(found[key])
}

// A log is read once, when its build has ended for a while, of the projects and the
// server that were asked for; a restart reads none again.
func TestLook(t *testing.T) {
	w := newWorld(t, 60)
	w.build("gitlab/h/1", "group/app", start, "step_script")
	w.build("gitlab/h/2", "other/app", start, "step_script")
	w.build("gitlab/elsewhere/3", "group/app", start, "step_script")
	w.build("gitlab/h/4", "group/app", start) // nothing of it was metered
	if read, err := w.looks(settle); err != nil || len(read) != 0 {
		t.Errorf("%v, %v: want none while it may still be written", read, err)
	}
	if read, err := w.looks(20 * time.Minute); err != nil || fmt.Sprint(read) != "[group/app gitlab/h/1]" {
		t.Errorf("%v, %v", read, err)
	}
	if got := w.kept("gitlab/h/1"); got != `{"sections":[{"name":"build","from":"2026-09-01T12:00:00Z","to":"2026-09-01T12:00:01Z"}]}` {
		t.Error(got)
	}
	w.restart(60)
	w.build("gitlab/h/5", "group/app", start.Add(-5*time.Hour), "step_script") // its agent was away
	if read, err := w.looks(20 * time.Minute); err != nil || fmt.Sprint(read) != "[group/app gitlab/h/5]" {
		t.Errorf("after a restart: %v, %v", read, err)
	}
	w.build("gitlab/h/6", "group/app", start.Add(-4*time.Hour), "step_script")
	if read, err := w.looks(20 * time.Minute); err != nil || fmt.Sprint(read) != "[group/app gitlab/h/6]" {
		t.Errorf("what came late: %v, %v", read, err)
	}
}

// Not more logs are read in a minute than are allowed, the latest first.
func TestLook_limit(t *testing.T) {
	w := newWorld(t, 4)
	for i := range 20 {
		w.build(fmt.Sprint("gitlab/h/", 100+i), "group/app", start.Add(time.Duration(i)*time.Second), "step_script")
	}
	w.now = start.Add(2 * time.Minute)
	read, err := w.looks(time.Minute)
	if err != nil || len(read) < 4 || len(read) > 8 || read[0] != "group/app gitlab/h/119" {
		t.Errorf("%d in the first minute, %v, %v: want 4 and what was saved up", len(read), read, err)
	}
	if read, _ = w.looks(time.Minute); len(read) != 4 {
		t.Errorf("%d in the next minute: want 4", len(read))
	}
	if read, _ = w.looks(10 * time.Minute); len(read) == 0 || len(w.logs.read) != 20 {
		t.Errorf("%d logs: want each once", len(w.logs.read))
	}
}

// What fails is tried again, later each time, and given up; what is gone is not, and
// what asks to be left alone is.
func TestLook_failures(t *testing.T) {
	w := newWorld(t, 600)
	tries := func(err error, d time.Duration) int {
		t.Helper()
		w.restart(600)
		w.logs.read = nil
		w.fail["gitlab/h/1"] = err
		read, _ := w.looks(d)
		return len(read)
	}
	w.build("gitlab/h/1", "group/app", start.Add(-time.Minute), "step_script")
	if n := tries(cimeter.ErrUnavailable, time.Hour); n != maxTries {
		t.Errorf("%d tries: want %d", n, maxTries)
	}
	if n := tries(cimeter.ErrNotFound, time.Hour); n != 1 {
		t.Errorf("gone: %d tries", n)
	}
	if n := tries(&queue.SourceError{Status: 429, RetryAfter: 30 * time.Minute, Err: errors.New("x")}, 29*time.Minute); n != 1 {
		t.Errorf("limited: %d tries", n)
	}
	if n := tries(cimeter.ErrUnauthorized, 14*time.Minute); n != 1 {
		t.Errorf("wrong token: %d tries", n)
	}
	if got := w.kept("gitlab/h/1"); got != "" {
		t.Errorf("kept %q", got)
	}
	if n := tries(nil, time.Hour); n != 1 || w.kept("gitlab/h/1") == "" {
		t.Errorf("in the end: %d tries, %q", n, w.kept("gitlab/h/1"))
	}
	if v, _ := w.o.Tally.Value(catalog.ServerLogsRead, "g", "kept").Get(); v != 1 {
		t.Errorf("counted %g", v)
	}
}

// A reader that panics costs one log.
func TestLook_panic(t *testing.T) {
	w := newWorld(t, 600)
	w.build("gitlab/h/1", "group/app", start, "step_script")
	w.build("gitlab/h/2", "group/app", start.Add(-time.Second), "step_script")
	w.servers[0].Reader = panicking{w.logs}
	w.now = start.Add(time.Minute)
	if _, err := w.looks(time.Minute); err == nil || !strings.Contains(err.Error(), "panic") || w.kept("gitlab/h/2") == "" {
		t.Errorf("%v, %q", err, w.kept("gitlab/h/2"))
	}
}

type panicking struct{ *logs }

func (p panicking) Sections(ctx context.Context, project, key string) (section.Log, error) {
	if key == "gitlab/h/1" {
		panic("odd")
	}
	return p.logs.Sections(ctx, project, key)
}
