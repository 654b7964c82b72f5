package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
)

// placed is a job of GitHub of a run on a runner, as its server tells of it, from one
// second of the run to another.
func placed(id, attempt int, runner string, from, to float64) cimeter.Job {
	at := func(s float64) time.Time { return Base.Add(time.Duration(s * float64(time.Second))) }
	return cimeter.Job{
		Build: cimeter.Build{Key: fmt.Sprintf("github/github.com/Org/app/77/job/%d", id), CI: "github", Server: "github.com", Project: "Org/app", Number: fmt.Sprint(id), Name: "Any name (" + fmt.Sprint(id) + ")",
			Attempt: attempt, Pipeline: "77", URL: fmt.Sprintf("https://github.com/Org/app/actions/runs/77/job/%d", id), Runner: cimeter.Runner{Name: runner}},
		Status: cimeter.JobFailed, FailureReason: "timed_out", CreatedAt: at(from - 20), QueuedAt: at(from - 20), StartedAt: at(from), EndedAt: at(to), Tags: []string{"self-hosted"},
	}
}

// metered is what the agent of a runner made of a job.
func metered(name string, attempt int, runner string, from, to float64) store.Put {
	at := func(s float64) time.Time { return Base.Add(time.Duration(s * float64(time.Second))) }
	r := &cimeter.Record{
		Schema: cimeter.RecordSchema, Complete: true, StartedAt: at(from), EndedAt: at(to), Gaps: []cimeter.Gap{}, Stages: []cimeter.Stage{},
		Build: cimeter.Build{Key: fmt.Sprintf("github/github.com/Org/app/77/%d/%s/%s", attempt, runner, name), CI: "github", Server: "github.com", Project: "Org/app", Number: "5", Name: name,
			Attempt: attempt, Pipeline: "77", URL: "https://github.com/Org/app/actions/runs/77", Machine: "m-" + runner, Runner: cimeter.Runner{Name: runner}},
		Usage: cimeter.Usage{WallSeconds: to - from, CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(to)}},
	}
	return store.Put{Record: r, ReceivedAt: at(to + 5), Agent: "a-" + runner}
}

// testPlaces holds that what has no key which both sides know is one build where run,
// runner and time tell which it is, in whatever order it comes and however often.
func testPlaces(t *testing.T, s Store) {
	var jobs []cimeter.Job
	var puts []store.Put
	for i := range 40 { // one after the other on four runners, a tenth of them tried again
		runner, from, attempt := fmt.Sprintf("r%d", i%4), float64(i/4*50), 1+i%10/9
		jobs = append(jobs, placed(1000+i, attempt, runner, from, from+47))
		puts = append(puts, metered(fmt.Sprintf("leg/%d", i), attempt, runner, from+5.5, from+47.9))
	}
	waited := metered("pod", 1, "r-pod", -5000, 88) // the pod of a runner: it has one job, and knows no attempt
	waited.Record.Attempt = 0
	jobs, puts = append(jobs, placed(1040, 2, "r-pod", 50, 90)), append(puts, waited)
	random := rand.New(rand.NewPCG(40, 2))
	order := random.Perm(4 * len(jobs))
	for _, n := range order {
		i := n / 4
		if n%2 == 0 {
			putJobs(t, s, jobs[i])
		} else if _, err := s.Put(t.Context(), puts[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
	for i := range jobs {
		r, j := get(t, s, puts[i].Record.Key), jobs[i]
		if r.Number != j.Number || r.URL != j.URL || r.Result != "failed" || r.FailedFor != "timed_out" || len(r.Tags) != 1 || r.StartedAt.Sub(r.QueuedAt) != 20*time.Second ||
			r.Name != puts[i].Record.Name || r.Usage.CPUSeconds != puts[i].Record.Usage.CPUSeconds {
			t.Fatalf("got %+v of %+v", r, j)
		}
		if got, err := s.Get(t.Context(), j.Key); err != nil || got.Key != r.Key {
			t.Errorf("by the key %s: %v, %v", j.Key, got, err)
		}
	}
	if a, b, c := counted(t, s); a != len(jobs) || b != len(jobs) || c != len(jobs) {
		t.Errorf("%d, %d and %d builds, want %d", a, b, c, len(jobs))
	}
	for _, none := range []string{"github/github.com/Org/app/77/job/5", "github/github.com/Org/app/77/job/999", "github/other/Org/app/77/job/1000", "github/job/1"} {
		if _, err := s.Get(t.Context(), none); !errors.Is(err, cimeter.ErrNotFound) {
			t.Errorf("%s: %v: want none", none, err)
		}
	}
	if st, err := s.Stats(t.Context()); err != nil || st.Unjoined != 0 {
		t.Errorf("%d are unjoined, %v: want none", st.Unjoined, err)
	}
	checkTotals(t, s, len(jobs))
}

func checkTotals(t *testing.T, s Store, queued int) {
	t.Helper()
	sum, err := s.Sum(t.Context(), nil)
	if err != nil || sum.Queued != int64(queued) || sum.Failed != int64(queued) || sum.QueueSeconds != 20*float64(queued) {
		t.Errorf("sum %+v, %v: want %d builds that waited", sum, err, queued)
	}
}

// testPlacesApart holds that nothing is joined where it is not sure.
func testPlacesApart(t *testing.T, s Store) {
	type sides struct {
		jobs     []cimeter.Job
		puts     []store.Put
		unjoined bool // counted
	}
	j, m := placed, metered
	all := map[string]sides{
		"two jobs of runners with one name":    {jobs: []cimeter.Job{j(1, 1, "twin", 0, 60), j(2, 1, "twin", 2, 61)}, puts: []store.Put{m("a", 1, "twin", 5, 60)}, unjoined: true},
		"two records in the time of one job":   {jobs: []cimeter.Job{j(3, 1, "pair", 0, 60)}, puts: []store.Put{m("b", 1, "pair", 5, 30), m("c", 1, "pair", 30, 59)}, unjoined: true},
		"another attempt":                      {jobs: []cimeter.Job{j(4, 2, "try", 0, 60)}, puts: []store.Put{m("d", 1, "try", 5, 59)}},
		"another runner":                       {jobs: []cimeter.Job{j(5, 1, "one", 0, 60)}, puts: []store.Put{m("e", 1, "two", 5, 59)}},
		"the next job of the runner":           {jobs: []cimeter.Job{j(6, 1, "next", 0, 60)}, puts: []store.Put{m("f", 1, "next", 58, 75)}},
		"a record that outlasts the job":       {jobs: []cimeter.Job{j(7, 1, "long", 0, 60)}, puts: []store.Put{m("g", 1, "long", 5, 100)}},
		"clocks an hour apart":                 {jobs: []cimeter.Job{j(8, 1, "clock", 0, 60)}, puts: []store.Put{m("h", 1, "clock", 3605, 3659)}},
		"a job that was joined, and a stray":   {jobs: []cimeter.Job{j(9, 1, "old", 0, 60)}, puts: []store.Put{m("i", 1, "old", 900, 959)}},
		"a run that has no runner of the name": {puts: []store.Put{m("j", 1, "none", 5, 59)}},
	}
	builds, unjoined := 0, int64(0)
	for name, one := range all {
		if one.unjoined {
			unjoined++
		}
		// The side that is alone comes last: till then nothing fits two.
		first, last := func() { putJobs(t, s, one.jobs...) }, func() {
			for i := range one.puts {
				if _, err := s.Put(t.Context(), one.puts[i:i+1]); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(one.puts) > 1 {
			first, last = last, first
		}
		first()
		last()
		builds += len(one.jobs) + len(one.puts)
		for _, p := range one.puts {
			if r := get(t, s, p.Record.Key); r.Result != "" || r.Number != "5" {
				t.Errorf("%s: joined: %+v", name, r)
			}
		}
		for _, job := range one.jobs {
			if r := get(t, s, job.Key); r.Metered != cimeter.Some(false) {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
	if a, b, c := counted(t, s); a != builds || b != builds || c != builds {
		t.Errorf("%d, %d and %d builds, want %d", a, b, c, builds)
	}
	if st, err := s.Stats(t.Context()); err != nil || st.Unjoined != unjoined {
		t.Errorf("%d are unjoined, %v: want %d", st.Unjoined, err, unjoined)
	}
}

// testPlacesAtOnce has agents and polls write the two sides of the same builds at the
// same time.
func testPlacesAtOnce(t *testing.T, s Store) {
	const n = 60
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for _, i := range rand.New(rand.NewPCG(uint64(w), 3)).Perm(n) {
				runner, from := fmt.Sprintf("r%d", i%6), float64(i/6*50)
				var err error
				if w%2 == 0 {
					err = s.PutJobs(t.Context(), []cimeter.Job{placed(i+1, 1, runner, from, from+47)})
				} else {
					_, err = s.Put(t.Context(), []store.Put{metered(fmt.Sprintf("leg/%d", i), 1, runner, from+3, from+47)})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range n {
		if r := get(t, s, fmt.Sprintf("github/github.com/Org/app/77/1/r%d/leg/%d", i%6, i)); r.Number != fmt.Sprint(i+1) || r.QueuedAt.IsZero() {
			t.Errorf("got %+v", r)
		}
	}
	if a, b, c := counted(t, s); a != n || b != n || c != n {
		t.Errorf("%d, %d and %d builds, want %d", a, b, c, n)
	}
}
