package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/store"
)

// jobOf is what a CI server tells of the build of a record: by a clock that is
// two hours behind the agent's, from a moment before its first container on.
func jobOf(r *cimeter.Record) cimeter.Job {
	j := cimeter.Job{Build: r.Build, Status: cimeter.JobStatus(r.Result), Tags: []string{"docker", "os=linux"},
		StartedAt: r.StartedAt.Add(-2*time.Hour - 3*time.Second), EndedAt: r.EndedAt.Add(-2*time.Hour + time.Second), QueueSeconds: cimeter.Some(12.5)}
	if j.Status == "" {
		j.Status = cimeter.JobSuccess
	}
	if j.Status == cimeter.JobFailed {
		j.FailureReason = "script_failure"
	}
	// What agents know and servers do not.
	j.Machine, j.Runner = "", cimeter.Runner{}
	j.CreatedAt = j.StartedAt.Add(-time.Minute)
	return j
}

func get(t testing.TB, s Store, key string) *cimeter.Record {
	t.Helper()
	r, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func putJobs(t testing.TB, s Store, jobs ...cimeter.Job) {
	t.Helper()
	if err := s.PutJobs(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
}

// counted returns how many builds the store, its totals and its list say it has.
func counted(t testing.TB, s Store) (stats, totals, listed int) {
	t.Helper()
	st, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.Groups(t.Context(), store.GroupQuery{By: store.ByJob, From: Base.AddDate(0, 0, -40), To: Base.AddDate(0, 0, 2), Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range g.Groups {
		totals += int(x.Builds)
	}
	return int(st.Builds), totals, len(pages(t, s, store.Query{Limit: 500}))
}

func testJobs(t *testing.T, s Store) {
	end := Base.Add(-time.Hour)
	job := func(n int) cimeter.Job {
		return cimeter.Job{Build: cimeter.Build{Key: fmt.Sprintf("gitlab/x/%d", n), CI: "gitlab", Server: "x", Project: "g/a", Number: fmt.Sprint(n), Name: "build"},
			Status: cimeter.JobFailed, FailureReason: "runner_system_failure", Tags: []string{"docker", "a,b"}, QueuedAt: end.Add(-90 * time.Second), StartedAt: end.Add(-time.Minute), EndedAt: end}
	}
	running, never, lost := job(2), job(3), job(4)
	running.Status, running.EndedAt = cimeter.JobRunning, time.Time{}
	never.Status, never.StartedAt = cimeter.JobCanceled, time.Time{}
	lost.EndedAt = time.Time{} // ended, nobody knows when
	early := job(1)
	early.Status, early.StartedAt, early.EndedAt = cimeter.JobWaiting, time.Time{}, time.Time{}
	putJobs(t, s)
	putJobs(t, s, early, running, never, lost)
	putJobs(t, s, job(1), never)
	putJobs(t, s, early) // late, and out of order
	r := get(t, s, "gitlab/x/1")
	want := &cimeter.Record{Schema: cimeter.RecordSchema, Build: job(1).Build, QueuedAt: end.Add(-90 * time.Second), StartedAt: end.Add(-time.Minute), EndedAt: end,
		Result: "failed", FailedFor: "runner_system_failure", Metered: cimeter.Some(false), Tags: []string{"docker", "a,b"}, Gaps: []cimeter.Gap{}, Stages: []cimeter.Stage{}}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got  %+v\nwant %+v", r, want)
	}
	if r := get(t, s, never.Key); r.Result != "canceled" || !r.EndedAt.Equal(end) || r.EndedAt.Sub(r.QueuedAt) != 90*time.Second {
		t.Errorf("a build that was canceled before it started: %+v", r)
	}
	for _, j := range []cimeter.Job{running, lost} {
		if _, err := s.Get(t.Context(), j.Key); !errors.Is(err, cimeter.ErrNotFound) {
			t.Errorf("a build that has no end is there: %v", err)
		}
	}
	sum, err := s.Sum(t.Context(), nil)
	if err != nil || sum.Builds != 2 || sum.WallSeconds != 60 || sum.QueueSeconds != 120 || sum.Queued != 2 || sum.CPUSeconds != 0 || sum.MemoryPeakBytes.Known {
		t.Errorf("Sum = %+v, %v", sum, err)
	}
	if a, b, c := counted(t, s); a != 2 || b != 2 || c != 2 {
		t.Errorf("%d, %d and %d builds, want 2", a, b, c)
	}
	for text, want := range map[string]int{"metered:no": 2, "metered:yes": 0, "-metered:yes": 2, "tag:docker": 2, "tag:a": 0, "tag:d%": 0, "tag:dock_r": 0, "-tag:docker": 0, "result:failed": 1, "tag:none": 0} {
		f, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := pages(t, s, store.Query{Filter: f, Limit: 500}); len(got) != want {
			t.Errorf("%s: %d builds, want %d", text, len(got), want)
		}
	}
	bad := job(9)
	bad.Key = ""
	if err := s.PutJobs(t.Context(), []cimeter.Job{job(8), bad}); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("PutJobs without a key = %v", err)
	}
}

// testJoin holds that whichever comes first, and however often, one build is
// there that knows what both told.
func testJoin(t *testing.T, s Store) {
	m := NewMaker(60, 20*24*time.Hour)
	random := rand.New(rand.NewPCG(60, 1))
	var puts []store.Put
	type step struct {
		put *store.Put
		job *cimeter.Job
	}
	var steps []step
	for i := range 60 {
		p := m.Put(i)
		puts = append(puts, p)
		ended := jobOf(p.Record)
		if i%7 == 0 && p.Record.Result != "" && p.Record.Result != string(cimeter.JobFailed) {
			ended.Status = cimeter.JobCanceled // the agent knows better
		}
		running := ended
		running.Status, running.EndedAt, running.FailureReason, running.Tags = cimeter.JobRunning, time.Time{}, "", nil
		for range 1 + i%2 {
			steps = append(steps, step{put: &p}, step{job: &ended}, step{job: &running})
		}
	}
	random.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	fresh := 0
	for _, st := range steps {
		if st.job != nil {
			putJobs(t, s, *st.job)
			continue
		}
		got, err := s.Put(t.Context(), []store.Put{*st.put})
		if err != nil {
			t.Fatal(err)
		}
		fresh += got.Stored
	}
	if fresh != len(puts) {
		t.Errorf("%d records were fresh, want each once: %d", fresh, len(puts))
	}
	var joined []store.Put
	for _, p := range puts {
		want, j := *p.Record, jobOf(p.Record)
		if want.QueuedAt.IsZero() {
			want.QueuedAt = want.StartedAt.Add(-12500 * time.Millisecond)
		}
		if want.Result == "" {
			want.Result = string(j.Status)
		}
		want.Tags, want.FailedFor = j.Tags, j.FailureReason
		got := get(t, s, want.Key)
		if !reflect.DeepEqual(got, &want) {
			t.Fatalf("got  %+v\nwant %+v", got, &want)
		}
		joined = append(joined, store.Put{Record: &want, ReceivedAt: p.ReceivedAt, Agent: p.Agent})
	}
	if a, b, c := counted(t, s); a != len(puts) || b != len(puts) || c != len(puts) {
		t.Errorf("%d, %d and %d builds, want %d", a, b, c, len(puts))
	}
	checkAll(t, s, &model{puts: joined})
}

// testJoinAtOnce has agents and polls write the same builds at the same time.
func testJoinAtOnce(t *testing.T, s Store) {
	puts := NewMaker(61, 24*time.Hour).Puts(0, 80)
	var jobs []cimeter.Job
	for _, p := range puts {
		jobs = append(jobs, jobOf(p.Record))
	}
	var mu sync.Mutex
	fresh := map[string]int{}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			order := rand.New(rand.NewPCG(uint64(w), 1)).Perm(len(puts))
			for part := range slices.Chunk(order, 7) {
				if w%2 == 0 {
					var some []cimeter.Job
					for _, i := range part {
						some = append(some, jobs[i])
					}
					if err := s.PutJobs(t.Context(), some); err != nil {
						t.Error(err)
					}
					continue
				}
				var some []store.Put
				for _, i := range part {
					some = append(some, puts[i])
				}
				got, err := s.Put(t.Context(), some)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for i, ok := range got.Fresh {
					if ok {
						fresh[some[i].Record.Key]++
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, p := range puts {
		if fresh[p.Record.Key] != 1 {
			t.Errorf("%s was fresh %d times", p.Record.Key, fresh[p.Record.Key])
		}
		r := get(t, s, p.Record.Key)
		if r.Metered.Known || r.Tags == nil || r.QueuedAt.IsZero() || r.Result == "" || !reflect.DeepEqual(r.Usage, p.Record.Usage) {
			t.Errorf("got %+v", r)
		}
	}
	if a, b, c := counted(t, s); a != len(puts) || b != len(puts) || c != len(puts) {
		t.Errorf("%d, %d and %d builds, want %d", a, b, c, len(puts))
	}
}

func testNote(t *testing.T, s Store) {
	for _, want := range []string{"", "page 7", strings.Repeat("é'\";", 1000), ""} {
		if err := s.SetNote(t.Context(), "backfill gitlab x", want); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Note(t.Context(), "backfill gitlab x"); err != nil || got != want {
			t.Errorf("Note = %.20q, %v; want %.20q", got, err, want)
		}
	}
	if got, err := s.Note(t.Context(), "another"); err != nil || got != "" {
		t.Errorf("Note of nothing = %q, %v", got, err)
	}
}
