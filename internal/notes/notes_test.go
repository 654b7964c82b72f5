package notes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/sqlite"
)

// forge takes what is written.
type forge struct {
	notes    map[int64]string // by merge request
	statuses []string
	writes   []time.Time
	now      func() time.Time
	fail     error
}

func (f *forge) PutNote(_ context.Context, project string, mr int64, marker, body string, id int64) (int64, error) {
	f.writes = append(f.writes, f.now())
	if f.fail != nil {
		return 0, f.fail
	}
	if project != "group/app" || !strings.Contains(body, marker) || id != 0 && id != mr+100 {
		return 0, fmt.Errorf("note of %s!%d, id %d: %w", project, mr, id, cimeter.ErrInvalid)
	}
	f.notes[mr] = body
	return mr + 100, nil
}

func (f *forge) PutStatus(_ context.Context, project, sha, description, url string, pipeline int64) error {
	f.statuses = append(f.statuses, fmt.Sprint(project, " ", sha, " ", description, " ", url, " ", pipeline))
	return cimeter.ErrConflict // has it already
}

type world struct {
	*Notes
	*forge
	t     *testing.T
	store *sqlite.Store
	at    time.Time
	n     int
	sha   string // of the builds; "": 7e4d
	host  string // of the builds; "": g.example.com
}

func newWorld(t *testing.T, rule Rule) *world {
	s, err := sqlite.Open(context.Background(), sqlite.Options{Path: filepath.Join(t.TempDir(), "b.db"), Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w := &world{t: t, store: s, at: time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)}
	now := func() time.Time { return w.at }
	w.forge = &forge{notes: map[int64]string{}, now: now}
	w.Notes = New(Options{
		Store: s, Now: now,
		Servers: []Server{{Name: "g", CI: "gitlab", Host: "g.example.com", Writer: w.forge, Pages: "https://c.example.com/",
			Rule: func(p string) Rule {
				if strings.HasPrefix(p, "group/") {
					return rule
				}
				return Rule{}
			},
			MergeRequest: func(ref string) (n int64) { fmt.Sscanf(ref, "refs/merge-requests/%d/head", &n); return n },
			PipelineURL:  func(project, id string) string { return "https://g.example.com/" + project + "/-/pipelines/" + id }}},
	}, slog.New(slog.DiscardHandler))
	return w
}

// build stores one that ended now.
func (w *world) build(project, name, pipeline, ref string, cpu float64) {
	w.t.Helper()
	w.n++
	r := &cimeter.Record{Schema: 1, Complete: true, Gaps: []cimeter.Gap{}, Stages: []cimeter.Stage{}, StartedAt: w.at.Add(-time.Minute), EndedAt: w.at,
		Build: cimeter.Build{Key: fmt.Sprint("gitlab/g.example.com/", w.n), CI: "gitlab", Server: cmp.Or(w.host, "g.example.com"), Project: project, Number: fmt.Sprint(w.n), Name: name, Attempt: 1,
			Pipeline: pipeline, Ref: ref, SHA: cmp.Or(w.sha, "7e4d")},
		Usage: cimeter.Usage{WallSeconds: 60, CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(cpu)}}}
	if _, err := w.store.Put(context.Background(), []store.Put{{Record: r, ReceivedAt: w.at}}); err != nil {
		w.t.Fatal(err)
	}
}

// pass lets time pass, with a look every 15 s.
func (w *world) pass(d time.Duration) (errs []error) {
	w.t.Helper()
	for end := w.at.Add(d); w.at.Before(end); w.at = w.at.Add(lookEvery) {
		for _, s := range w.servers {
			if err := w.look(context.Background(), s); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

func TestNotes(t *testing.T) {
	w := newWorld(t, Rule{Note: true, Status: true})
	for range 5 {
		w.build("group/app", "test", "900", "main", 100)
		w.at = w.at.Add(time.Hour)
	}
	w.build("group/app", "test", "991", "refs/merge-requests/5/head", 150)
	w.build("other/app", "test", "992", "refs/merge-requests/6/head", 150)
	w.Tell("g", Pipeline{ID: "991", Project: "group/app", SHA: "7e4d", MergeRequest: 5, Target: "main"})
	for range 20 { // a build each 15 s
		w.build("group/app", fmt.Sprint("job ", w.n), "991", "refs/merge-requests/5/head", 10)
		if errs := w.pass(lookEvery); errs != nil {
			t.Fatal(errs)
		}
	}
	if errs := w.pass(10 * time.Minute); errs != nil {
		t.Fatal(errs)
	}
	for i := 1; i < len(w.writes); i++ {
		if d := w.writes[i].Sub(w.writes[i-1]); d < time.Minute {
			t.Errorf("two writes within %v", d)
		}
	}
	if len(w.writes) < 5 || len(w.writes) > 7 {
		t.Errorf("%d writes: want one a minute while something changes", len(w.writes))
	}
	if body := w.notes[5]; len(w.notes) != 1 || !strings.Contains(body, "21 jobs, 5 m 50 s CPU, **+50 % against the median of 5 builds** on `main`") ||
		!strings.Contains(body, "150 s **▲ 50 %**") || !strings.Contains(body, "has finished") || !strings.Contains(body, "](<https://c.example.com/builds/gitlab/g.example.com/6>)") {
		t.Errorf("notes %v", w.notes)
	}
	want := "group/app 7e4d 21 jobs, 5 m 50 s CPU, +50 % against the median of 5 builds https://c.example.com/builds?pipeline=991&t=all 991"
	if len(w.statuses) != 1 || w.statuses[0] != want {
		t.Errorf("statuses %q: want %q once", w.statuses, want)
	}

	// A job that is tried again replaces itself; an older pipeline does not come back.
	w.build("group/app", "test", "995", "refs/merge-requests/5/head", 70)
	w.build("group/app", "test", "991", "refs/merge-requests/5/head", 999)
	w.pass(5 * time.Minute)
	if !strings.Contains(w.notes[5], "#995") || strings.Contains(w.notes[5], "999") {
		t.Errorf("note %s", w.notes[5])
	}
}

// A job that is tried again stands by its last try, and what another server calls
// the same is none of it. What is said again is not written again.
func TestNotes_Retried(t *testing.T) {
	w := newWorld(t, Rule{Note: true, Always: true})
	w.build("group/app", "test", "991", "refs/merge-requests/5/head", 999)
	w.at = w.at.Add(time.Minute)
	w.build("group/app", "test", "991", "refs/merge-requests/5/head", 70)
	w.host = "other.example.com"
	w.build("group/app", "test", "991", "refs/merge-requests/5/head", 888)
	w.build("group/app", "lint", "991", "refs/merge-requests/5/head", 888)
	w.host = ""
	w.pass(10 * time.Minute)
	if body := w.notes[5]; !strings.Contains(body, "70.0 s") || strings.Contains(body, "999") || strings.Contains(body, "888") {
		t.Errorf("note %s", body)
	}
	writes := len(w.writes)
	for _, sha := range []string{"aaaa", "bbbb"} { // changes nothing that the note says
		w.Tell("g", Pipeline{ID: "991", Project: "group/app", SHA: sha, Ended: true})
		w.pass(2 * time.Minute)
	}
	if n := len(w.writes) - writes; n > 0 {
		t.Errorf("%d writes of what was written", n)
	}
	w.build("group/app", "test", "995", "refs/merge-requests/5/head", 60)
	w.pass(10 * time.Minute) // until nothing of it is to be written any more
	w.build("group/app", "lint", "991", "refs/merge-requests/5/head", 777)
	w.pass(5 * time.Minute)
	if body := w.notes[5]; !strings.Contains(body, "#995") || strings.Contains(body, "777") {
		t.Errorf("note %s: want the newer pipeline", body)
	}
}

// However often it is told of, a pipeline whose note fails is given up.
func TestNotes_GivenUp(t *testing.T) {
	w := newWorld(t, Rule{Note: true})
	w.fail = errors.New("put note: 500")
	w.build("group/app", "test", "991", "refs/merge-requests/5/head", 150)
	for range 25 {
		w.Tell("g", Pipeline{ID: "991", Project: "group/app", SHA: "7e4d", MergeRequest: 5})
		w.pass(time.Minute)
		w.at = w.at.Add(15 * time.Minute)
	}
	if n := len(w.writes); n < 5 || n > maxRetry {
		t.Errorf("%d writes: want at most %d", n, maxRetry)
	}
}

func TestNotes_Bounded(t *testing.T) {
	w := newWorld(t, Rule{Note: true})
	for n := range 3 * maxPipelines {
		w.Tell("g", Pipeline{ID: fmt.Sprint(n), Project: "group/app"})
		if n%500 == 499 {
			w.pass(lookEvery)
		}
	}
	if n := len(w.servers[0].pipelines); n > maxPipelines || n < 500 {
		t.Errorf("%d pipelines are kept, want at most %d", n, maxPipelines)
	}
}

// What fails is tried again, later each time, and given up at last.
func TestNotes_Failures(t *testing.T) {
	w := newWorld(t, Rule{Note: true})
	w.fail = &queue.SourceError{Status: 429, RetryAfter: 5 * time.Minute, Err: errors.New("put note")}
	w.build("group/app", "test", "991", "refs/merge-requests/5/head", 150)
	if errs := w.pass(4 * time.Minute); len(errs) != 1 || len(w.writes) != 1 {
		t.Errorf("%v, %d writes: want one in the time that the server wants to be left alone", errs, len(w.writes))
	}
	w.pass(2 * time.Minute)
	if len(w.writes) != 2 {
		t.Errorf("%d writes: want a second", len(w.writes))
	}
	w.fail = nil
	w.pass(10 * time.Minute)
	if len(w.writes) != 3 || w.notes[5] == "" {
		t.Errorf("%d writes, %v: want the third to be good", len(w.writes), w.notes)
	}
	w.fail = fmt.Errorf("gone: %w", cimeter.ErrNotFound)
	w.build("group/app", "lint", "991", "refs/merge-requests/5/head", 1)
	w.pass(20 * time.Minute)
	if len(w.writes) != 4 {
		t.Errorf("%d writes: want no more to a merge request that is gone", len(w.writes))
	}
}

// Without a rule nothing is written, and a branch's pipeline has no note.
func TestNotes_Rules(t *testing.T) {
	w := newWorld(t, Rule{})
	w.build("group/app", "test", "991", "refs/merge-requests/5/head", 150)
	w.pass(10 * time.Minute)
	w2 := newWorld(t, Rule{Note: true})
	w2.build("group/app", "test", "991", "main", 150)
	w2.pass(10 * time.Minute)
	if len(w.writes)+len(w.statuses)+len(w2.writes)+len(w2.statuses) > 0 {
		t.Error("something was written")
	}
}

// finder knows the merge requests of commits.
type finder struct {
	asked  []string
	number map[string]int64 // by commit
	fail   error
}

func (f *finder) FindMergeRequest(_ context.Context, project, sha string) (int64, string, error) {
	f.asked = append(f.asked, project+" "+sha[:2])
	n := f.number[sha]
	if n == 0 || f.fail != nil {
		return 0, "", f.fail
	}
	return n, "main", nil
}

func (f *finder) MergeRequestTarget(_ context.Context, project string, number int64) (string, error) {
	f.asked = append(f.asked, fmt.Sprint(project, "!", number))
	return "main", f.fail
}

// What nothing told of a pipeline is asked for, a few times: the merge request of a
// branch's pipeline by its commit, the target branch of one that its ref tells.
func TestNotes_Finder(t *testing.T) {
	sha := func(s string) string { return strings.Repeat(s, 20) }
	w := newWorld(t, Rule{Note: true, Always: true})
	f := &finder{number: map[string]int64{sha("aa"): 7}}
	w.servers[0].Finder = f
	w.sha = sha("aa")
	w.build("group/app", "test", "991", "feature/x", 150)
	w.build("other/app", "test", "992", "feature/x", 150) // no rule
	w.pass(time.Minute)
	if fmt.Sprint(f.asked) != "[group/app aa]" || !strings.Contains(w.notes[7], "#991") {
		t.Errorf("asked %q: %v", f.asked, w.notes)
	}
	w.build("group/app", "test", "993", "refs/merge-requests/5/head", 150)
	w.pass(time.Minute)
	if fmt.Sprint(f.asked) != "[group/app aa group/app!5]" || w.notes[5] == "" {
		t.Errorf("asked %q: %v", f.asked, w.notes)
	}
	// One that comes later is found; one that does not is not asked for for ever.
	f.asked, w.sha = nil, sha("bb")
	w.build("group/app", "test", "994", "feature/y", 150)
	w.pass(2 * time.Minute)
	f.number[sha("bb")] = 8
	w.pass(5 * time.Minute)
	if fmt.Sprint(f.asked) != "[group/app bb group/app bb]" || w.notes[8] == "" {
		t.Errorf("asked %q: %v", f.asked, w.notes)
	}
	f.asked, w.sha, f.fail = nil, sha("cc"), errors.New("away")
	w.build("group/app", "test", "995", "feature/z", 150)
	if errs := w.pass(40 * time.Minute); len(f.asked) != maxLookups || len(errs) != maxLookups {
		t.Errorf("asked %q, %v: want it given up", f.asked, errs)
	}
}

// Many pipelines do not make many requests at once.
func TestNotes_FinderLimit(t *testing.T) {
	w := newWorld(t, Rule{Note: true})
	f := &finder{}
	w.servers[0].Finder = f
	w.sha = strings.Repeat("dd", 20)
	for i := range 100 {
		w.build("group/app", "test", fmt.Sprint(1000+i), "feature/x", 1)
	}
	w.pass(time.Minute)
	if n := len(f.asked); n > 4*lookupsALook || n < lookupsALook {
		t.Errorf("%d requests in a minute: want at most %d", n, 4*lookupsALook)
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		n := New(Options{}, slog.New(slog.DiscardHandler))
		n.Tell("g", Pipeline{ID: "1"})
		if err := n.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}
