package queue_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
)

const server = "gitlab.example.com"

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

func newBoard() *queue.Board {
	return queue.NewBoard(queue.Options{Start: noon.Add(-time.Hour), Servers: []queue.Source{{Name: server, CI: "gitlab", Interval: 15 * time.Second}}})
}

func job(n int, status cimeter.JobStatus) cimeter.Job {
	id := fmt.Sprint(n)
	return cimeter.Job{Build: cimeter.Build{Key: "gitlab/" + server + "/" + id, CI: "gitlab", Server: server, Number: id, Project: "group/app"}, Status: status}
}

func one(t float64, jobs ...cimeter.Job) queue.Report { return queue.Report{At: at(t), Jobs: jobs} }

func whole(t float64, jobs ...cimeter.Job) queue.Report {
	r := one(t, jobs...)
	r.WholeJobs = true
	return r
}

func counts(st queue.State) string {
	s := st.Servers[0]
	return fmt.Sprintf("%d waiting, %d blocked, %d running", s.Waiting.Value, s.Blocked.Value, s.Running.Value)
}

func wantCounts(t *testing.T, b *queue.Board, now float64, want string) queue.State {
	t.Helper()
	st := b.State(at(now))
	if got := counts(st); got != want {
		t.Errorf("%s: want %s", got, want)
	}
	return st
}

// randomReports are what a server with a few builds and workers could tell, from
// several ways of asking, with fields missing here and there.
func randomReports(r *rand.Rand) []queue.Report {
	statuses := []cimeter.JobStatus{
		cimeter.JobUnknown, cimeter.JobBlocked, cimeter.JobSkipped, cimeter.JobWaiting, cimeter.JobWaiting, cimeter.JobRunning, cimeter.JobRunning,
		cimeter.JobSuccess, cimeter.JobFailed, cimeter.JobCanceled,
	}
	maybe := func() bool { return r.IntN(3) > 0 }
	var reports []queue.Report
	for range 1 + r.IntN(12) {
		rep := queue.Report{At: at(float64(r.IntN(20))), WholeJobs: r.IntN(4) == 0, WholeWorkers: r.IntN(4) == 0}
		if maybe() {
			rep.Clock = cimeter.Some(time.Duration(r.IntN(3)-1) * time.Hour)
		}
		for _, n := range r.Perm(5)[:r.IntN(5)] {
			j := job(n, statuses[r.IntN(len(statuses))])
			if maybe() {
				j.Tags = []string{"docker", "arm"}[:r.IntN(3)]
			}
			if maybe() {
				j.QueuedAt = at(float64(r.IntN(9)) - 20)
			}
			if maybe() {
				j.StartedAt = at(float64(r.IntN(30)) - 25)
			}
			if maybe() {
				j.EndedAt = at(float64(r.IntN(30)) - 25)
			}
			if maybe() {
				j.QueueSeconds = cimeter.Some(float64(r.IntN(9)))
			}
			if maybe() {
				j.Worker = fmt.Sprint("w", r.IntN(3))
			}
			if maybe() {
				j.Ref = fmt.Sprint("branch-", r.IntN(3))
			}
			rep.Jobs = append(rep.Jobs, j)
		}
		for _, n := range r.Perm(3)[:r.IntN(3)] {
			w := cimeter.Worker{CI: "gitlab", ID: fmt.Sprint("w", n)}
			if maybe() {
				w.State = []cimeter.WorkerState{cimeter.WorkerIdle, cimeter.WorkerBusy, cimeter.WorkerOffline, cimeter.WorkerDraining}[r.IntN(4)]
			}
			if maybe() {
				w.Tags = []string{"docker"}
			}
			if maybe() {
				w.Slots = cimeter.Some(1 + r.IntN(2))
			}
			if maybe() {
				w.Builds = []string{job(r.IntN(5), "").Key}
			}
			if maybe() {
				w.ContactedAt = at(float64(r.IntN(5)))
			}
			rep.Workers = append(rep.Workers, w)
		}
		reports = append(reports, rep)
	}
	return reports
}

// Whatever the order in which reports are learned, and how often each is, the board
// is the same, and so are the builds that ended.
func TestBoard_anyOrderAnyNumber(t *testing.T) {
	show := func(reports []queue.Report) string {
		b := newBoard()
		for _, r := range reports {
			b.Add(server, r.WholeJobs, r)
		}
		ended := b.Look(at(30), nil)
		text, err := json.MarshalIndent([]any{ended, b.State(at(30)), b.Look(at(31), nil)}, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 5))
		reports := randomReports(r)
		want := show(reports)
		for range 3 {
			other := slices.Clone(reports)
			for range r.IntN(4) {
				other = append(other, reports[r.IntN(len(reports))])
			}
			r.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
			if got := show(other); got != want {
				t.Fatalf("seed %d: another order gives\n%s\nwant\n%s", seed, got, want)
			}
		}
	}
}

// No duration is ever negative, whatever the clocks say.
func TestBoard_noNegativeDuration(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 6))
		b := newBoard()
		for _, rep := range randomReports(r) {
			b.Add(server, r.IntN(2) == 0, rep)
			agents := []queue.AgentBuild{{Key: job(r.IntN(5), "").Key, StartedAt: at(float64(r.IntN(40) - 30)), Stage: "prepare_script"}}
			for _, j := range b.Look(at(float64(r.IntN(20))), agents) {
				if j.EndedAt.Before(j.StartedAt) && !j.EndedAt.IsZero() || j.StartedAt.Before(j.QueuedAt) && !j.StartedAt.IsZero() {
					t.Fatalf("seed %d: %+v", seed, j)
				}
			}
			st := b.State(at(float64(r.IntN(20))))
			for _, v := range st.Builds {
				for _, s := range []float64{v.Waited.Value, v.Ran.Value, v.Wait.NoWorker, v.Wait.NoSlot, v.Wait.Starting, v.Wait.Pull, v.Wait.Preparing, v.Wait.Unknown, v.Start.Value.Low} {
					if !(s >= 0) {
						t.Fatalf("seed %d: %+v", seed, v)
					}
				}
			}
			if age := st.Servers[0].AgeSeconds.Value; age < 0 {
				t.Fatalf("seed %d: age %g", seed, age)
			}
		}
	}
}

// Webhooks of builds that go through all their statuses arrive in any order, a
// tenth of them twice. They come later the later they are sent, or not.
func TestBoard_webhooksOutOfOrder(t *testing.T) {
	const builds = 1250
	r := rand.New(rand.NewPCG(1, 2))
	var events []cimeter.Job
	running, waiting, ended := 0, 0, 0
	for n := range builds {
		last := r.IntN(4) // how far it comes
		for i, s := range []cimeter.JobStatus{cimeter.JobBlocked, cimeter.JobWaiting, cimeter.JobRunning, cimeter.JobSuccess}[:last+1] {
			events = append(events, job(n, s))
			if r.IntN(10) == 0 {
				events = append(events, job(n, s))
			}
			_ = i
		}
		switch last {
		case 1:
			waiting++
		case 2:
			running++
		case 3:
			ended++
		}
	}
	r.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	b := newBoard()
	told := 0
	for i, e := range events {
		b.Add(server, false, one(float64(i)/500, e))
		if i%100 == 0 {
			told += len(b.Look(at(float64(i)/500), nil))
		}
	}
	told += len(b.Look(at(100), nil))
	wantCounts(t, b, 100, fmt.Sprintf("%d waiting, %d blocked, %d running", waiting, builds-waiting-running-ended, running))
	if told != ended {
		t.Errorf("%d builds ended: want %d, each once", told, ended)
	}
}

func TestBoard_wholeListLetsLeave(t *testing.T) {
	b := newBoard()
	b.Add(server, true, whole(0, job(1, cimeter.JobWaiting), job(2, cimeter.JobRunning)))
	wantCounts(t, b, 1, "1 waiting, 0 blocked, 1 running")
	// A webhook that came while the list was on its way is newer than it.
	b.Add(server, false, one(15.5, job(3, cimeter.JobWaiting)))
	b.Add(server, true, whole(15, job(2, cimeter.JobRunning)))
	wantCounts(t, b, 16, "1 waiting, 0 blocked, 1 running")
	// What is not whole lets nobody leave.
	b.Add(server, true, one(20))
	wantCounts(t, b, 21, "1 waiting, 0 blocked, 1 running")
	b.Add(server, true, whole(30))
	wantCounts(t, b, 31, "0 waiting, 0 blocked, 0 running")
	// What was told before the list is old news, whenever it says that it began.
	ahead := job(4, cimeter.JobRunning)
	ahead.StartedAt = at(3600)
	b.Add(server, false, one(40, ahead))
	wantCounts(t, b, 41, "0 waiting, 0 blocked, 1 running")
	b.Add(server, true, whole(45))
	wantCounts(t, b, 46, "0 waiting, 0 blocked, 0 running")
}

// What ended before the counters began is none of theirs.
func TestBoard_endedBefore(t *testing.T) {
	b := newBoard()
	old, late := job(1, cimeter.JobSuccess), job(2, cimeter.JobSuccess)
	old.EndedAt, late.EndedAt = noon.Add(-61*time.Minute), noon.Add(-59*time.Minute)
	b.Add(server, true, whole(0, old, late))
	if ended := b.Look(at(1), nil); len(ended) != 1 || ended[0].Number != "2" {
		t.Errorf("%+v: want the one that ended since the start", ended)
	}
}

func TestBoard_statusDoesNotGoBack(t *testing.T) {
	b := newBoard()
	b.Add(server, false, one(0, job(1, cimeter.JobSuccess)))
	b.Add(server, false, one(1, job(1, cimeter.JobRunning)))
	b.Add(server, true, whole(2, job(1, cimeter.JobRunning)))
	wantCounts(t, b, 3, "0 waiting, 0 blocked, 0 running")
	if n := len(b.Look(at(4), nil)) + len(b.Look(at(5), nil)); n != 1 {
		t.Errorf("%d ends: want 1", n)
	}
	// Long after its details are gone, too.
	b.Look(at(3600), nil)
	b.Add(server, false, one(3601, job(1, cimeter.JobWaiting), job(1, cimeter.JobSuccess)))
	wantCounts(t, b, 3602, "0 waiting, 0 blocked, 0 running")
	if n := len(b.Look(at(3605), nil)); n != 0 {
		t.Errorf("it ended again")
	}

	// A worker that is lost gives its build back: a whole list tells, a webhook
	// from before does not.
	run := job(2, cimeter.JobRunning)
	run.Worker, run.StartedAt, run.Machine = "w1", at(3600), "ci-1"
	b.Add(server, false, one(3700, run))
	b.Add(server, false, one(3701, job(2, cimeter.JobWaiting)))
	wantCounts(t, b, 3702, "0 waiting, 0 blocked, 1 running")
	b.Add(server, true, whole(3710, job(2, cimeter.JobWaiting)))
	st := wantCounts(t, b, 3711, "1 waiting, 0 blocked, 0 running")
	if v := st.Builds[0]; v.Worker != "" || v.Machine != "" || !v.StartedAt.IsZero() {
		t.Errorf("it still has its worker: %+v", v.Job)
	}
}

func TestBoard_skippedMayRunYet(t *testing.T) {
	b := newBoard()
	b.Add(server, false, one(0, job(1, cimeter.JobSkipped)))
	b.Add(server, false, one(1, job(1, cimeter.JobBlocked))) // late
	wantCounts(t, b, 2, "0 waiting, 0 blocked, 0 running")
	b.Add(server, false, one(3, job(1, cimeter.JobWaiting))) // an earlier build was tried again
	wantCounts(t, b, 4, "1 waiting, 0 blocked, 0 running")
}

// A server whose clock is an hour off tells the same as one whose is not, also by
// webhooks, which do not tell its clock.
func TestBoard_clocks(t *testing.T) {
	for _, off := range []time.Duration{0, time.Hour, -time.Hour, 1500 * time.Millisecond} {
		b := newBoard()
		j := job(1, cimeter.JobWaiting)
		j.QueuedAt = at(-30).Add(off)
		if off.Abs() < 2*time.Second {
			j.QueuedAt = at(-30) // the Date of an answer is old when it comes
		}
		b.Add(server, false, one(0, j))
		r := whole(1, j)
		r.Clock = cimeter.Some(off)
		b.Add(server, true, r)
		st := b.State(at(2))
		if w := st.Builds[0].Waited; w != cimeter.Some(32.0) {
			t.Errorf("clock %v ahead: waited %v s: want 32", off, w)
		}
		if !st.Builds[0].QueuedAt.Equal(at(-30)) {
			t.Errorf("clock %v ahead: queued at %v", off, st.Builds[0].QueuedAt)
		}
	}
}

// How long an answer took must not move the times of a server whose clock is wrong.
func TestBoard_clockWavers(t *testing.T) {
	b := newBoard()
	j := job(1, cimeter.JobWaiting)
	j.QueuedAt = at(3600)
	for i, want := range []int{1, 0, 0, 0, 1} {
		off := time.Hour + time.Duration(i%3)*700*time.Millisecond
		if i == 4 {
			off = 0 // somebody set it
			j.QueuedAt = at(30)
		}
		r := whole(float64(i), j)
		r.Clock = cimeter.Some(off)
		if got := b.Add(server, true, r); len(got) != want {
			t.Errorf("report %d: %d changed: want %d", i, len(got), want)
		}
	}
	if v := b.State(at(40)).Builds[0]; v.Waited.Value != 10 {
		t.Errorf("waited %v s: want 10", v.Waited)
	}
}

func TestBoard_stale(t *testing.T) {
	b := newBoard()
	if s := b.State(at(0)).Servers[0]; !s.Stale || s.Waiting.Known || s.AgeSeconds.Known {
		t.Errorf("never heard of: %+v", s)
	}
	b.Add(server, true, whole(0, job(1, cimeter.JobWaiting)))
	if s := b.State(at(10)).Servers[0]; s.Stale || s.AgeSeconds.Value != 10 {
		t.Errorf("%+v", s)
	}
	b.Failed(server, at(15), fmt.Errorf("poll: %w", &queue.SourceError{Status: 429, Err: errors.New("GET /jobs")}))
	b.Failed(server, at(30), &queue.SourceError{Status: 502, Err: errors.New("GET /jobs")})
	s := wantCounts(t, b, 40, "1 waiting, 0 blocked, 0 running").Servers[0]
	if !s.Stale || s.AgeSeconds.Value != 40 || s.Status != 502 || s.Reason != "unavailable" || !s.FailsAt.Equal(at(15)) || s.Failure != "GET /jobs: answered 502" {
		t.Errorf("%+v", s)
	}
	b.Add(server, true, whole(45))
	if s := b.State(at(46)).Servers[0]; s.Stale || s.Failure != "" || !s.FailsAt.IsZero() {
		t.Errorf("well again: %+v", s)
	}
	if s := b.State(at(300)).Servers[0]; !s.Stale {
		t.Error("nothing for minutes: want stale")
	}
}

// Where another server asks, what webhooks told here is a part, and is not shown.
func TestBoard_elsewhere(t *testing.T) {
	b := newBoard()
	b.Add(server, false, one(0, job(1, cimeter.JobWaiting)))
	b.Elsewhere(server, true)
	if st := b.State(at(1)); len(st.Builds) != 0 || st.Servers[0].Waiting.Known || st.Servers[0].Stale || !st.Servers[0].Elsewhere {
		t.Errorf("%+v", st)
	}
	b.Elsewhere(server, false)
	wantCounts(t, b, 2, "1 waiting, 0 blocked, 0 running")
}

// A webhook that tells of an end may be lost: a build is not believed to run for good.
func TestBoard_neverHeardOfAgain(t *testing.T) {
	for hour, want := range map[int]string{24: "1 waiting, 1 blocked, 1 running", 26: "0 waiting, 1 blocked, 0 running", 8 * 24: "0 waiting, 0 blocked, 0 running"} {
		b := newBoard()
		b.Add(server, false, one(0, job(1, cimeter.JobWaiting), job(2, cimeter.JobRunning), job(3, cimeter.JobBlocked)))
		b.Look(at(float64(hour*3600)), nil)
		wantCounts(t, b, float64(hour*3600), want)
	}
}

func TestBoard_bounds(t *testing.T) {
	b := newBoard()
	var jobs []cimeter.Job
	for n := range 100_100 {
		jobs = append(jobs, job(n, cimeter.JobWaiting))
	}
	b.Add(server, true, whole(0, jobs...))
	if d := b.Dropped(); d.Builds != 100 {
		t.Errorf("%d builds dropped: want 100", d.Builds)
	}
	b.Add(server, true, whole(10))
	b.Look(at(1000), nil)
	long := job(1, cimeter.JobWaiting)
	long.Name, long.Tags = strings.Repeat("é", 2000), make([]string, 500)
	b.Add(server, true, whole(1001, long, cimeter.Job{}, cimeter.Job{Build: cimeter.Build{Key: strings.Repeat("x", 5000)}}))
	st := wantCounts(t, b, 1002, "1 waiting, 0 blocked, 0 running")
	if v := st.Builds[0]; len(v.Name) > 600 || len(v.Tags) > 100 {
		t.Errorf("name of %d bytes, %d tags", len(v.Name), len(v.Tags))
	}
	if d := b.Dropped(); d.Unusable != 2 {
		t.Errorf("%+v", d)
	}
	if changed := b.Add("nobody", true, whole(0, job(1, cimeter.JobWaiting))); changed != nil {
		t.Error("a server that is not known was taken")
	}
}

// Only what is other than before is given to those who store it.
func TestBoard_changed(t *testing.T) {
	b := newBoard()
	j := job(1, cimeter.JobWaiting)
	for i, want := range []int{1, 0, 0} {
		j.QueueSeconds = cimeter.Some(float64(i)) // it grows while it waits
		if got := len(b.Add(server, true, whole(float64(i), j))); got != want {
			t.Errorf("report %d: %d changed: want %d", i, got, want)
		}
	}
	if got := b.Add(server, true, queue.Report{At: at(4), Clock: cimeter.Some(1500 * time.Millisecond), Jobs: []cimeter.Job{j}}); len(got) != 0 {
		t.Errorf("the clock wavers: %+v", got)
	}
	j.Status, j.StartedAt = cimeter.JobRunning, at(5)
	if got := b.Add(server, true, whole(5, j)); len(got) != 1 || got[0].QueueSeconds.Value != 2 || !got[0].QueuedAt.Equal(at(3)) {
		t.Errorf("started: %+v", got)
	}
}
