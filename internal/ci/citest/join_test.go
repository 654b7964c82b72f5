package citest_test

import (
	"cmp"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/sqlite"
)

// begins is when the first build of a run of joins was queued. A build runs for a
// minute, half a minute after that.
var begins = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

const (
	waits = 30 * time.Second
	lasts = time.Minute
)

// sides is one build as both sides tell of it.
type sides struct {
	reports []queue.Report   // of the server, in order
	agent   cimeter.Identity // what its agent made of its container or process
	key     string           // that the server's side has, where it is another
	number  string           // that the merged record has
	attempt int
	failed  bool
	queued  bool // the server tells since when it waited
}

func (s *sides) result() cimeter.JobStatus {
	if s.failed {
		return cimeter.JobFailed
	}
	return cimeter.JobSuccess
}

// times are when build n was queued, began and ended.
func times(n int) (queued, began, ended time.Time) {
	queued = begins.Add(time.Duration(n) * 10 * time.Second)
	return queued, queued.Add(waits), queued.Add(waits + lasts)
}

// join tells a board and a store of all builds, in an order of the seed's, a tenth of
// what the server says twice, and wants every build there once, with what both know.
func join(t *testing.T, ci string, all []sides, first []queue.Report, seed uint64) {
	kept, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "db")})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	board := queue.NewBoard(queue.Options{Start: begins.Add(-time.Hour), Servers: []queue.Source{{Name: "s", CI: ci}}})
	type told struct {
		report *queue.Report
		record *cimeter.Record
	}
	var what []told
	r := rand.New(rand.NewPCG(seed, 4))
	for n := range all {
		for i := range all[n].reports {
			what = append(what, told{report: &all[n].reports[i]})
			if r.IntN(10) == 0 {
				what = append(what, told{report: &all[n].reports[i]})
			}
		}
		_, began, ended := times(n)
		what = append(what, told{record: &cimeter.Record{
			Schema: cimeter.RecordSchema, Build: all[n].agent.Build, StartedAt: began.Add(time.Second), EndedAt: ended, Complete: true, Gaps: []cimeter.Gap{}, Stages: []cimeter.Stage{},
			Usage: cimeter.Usage{WallSeconds: 59, CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(float64(n) + 1)}},
		}})
	}
	r.Shuffle(len(what), func(i, j int) { what[i], what[j] = what[j], what[i] })
	for i := range first {
		what = append([]told{{report: &first[i]}}, what...)
	}
	// What is learned in one flush of the poller goes into the store at once.
	var jobs []cimeter.Job
	var records []store.Put
	flush := func() {
		if err := kept.PutJobs(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
		res, err := kept.Put(t.Context(), records)
		if err != nil || res.Stored != len(records) {
			t.Fatalf("%+v of %d records, %v", res, len(records), err)
		}
		jobs, records = nil, nil
	}
	clock := begins.Add(3 * time.Hour)
	for i, w := range what {
		clock = clock.Add(10 * time.Millisecond)
		if w.record != nil {
			records = append(records, store.Put{Record: w.record, ReceivedAt: clock, Agent: "a"})
		} else {
			w.report.At = clock
			jobs = append(jobs, board.Add("s", false, *w.report)...)
		}
		if i%97 == 0 {
			flush()
		}
	}
	flush()
	over := board.Look(clock, nil)
	ended := map[string]int{}
	for _, e := range over {
		ended[e.Key]++
	}
	stats, err := kept.Stats(t.Context())
	if stats.Unjoined != 0 {
		t.Errorf("%d could not be told apart", stats.Unjoined)
	}
	if err != nil || int(stats.Builds) != len(all) || len(over) != len(all) {
		t.Errorf("%d builds in the store, %d ended, %v: want %d", stats.Builds, len(over), err, len(all))
	}
	if st := board.State(clock); len(st.Builds) != 0 {
		t.Errorf("%d builds still wait or run, such as %+v", len(st.Builds), st.Builds[0])
	}
	for n := range all {
		s := &all[n]
		rec, err := kept.Get(t.Context(), s.agent.Build.Key)
		if err != nil {
			t.Fatalf("build %d, %s: %v", n, s.agent.Build.Key, err)
		}
		queued, _, _ := times(n)
		switch {
		case ended[cmp.Or(s.key, rec.Key)] != 1:
			t.Errorf("%s ended %d times", rec.Key, ended[cmp.Or(s.key, rec.Key)])
		case rec.Metered == cimeter.Some(false) || rec.Usage.CPUSeconds.Total.Value != float64(n)+1:
			t.Errorf("%s: metered %v, %v s of CPU: want %d", rec.Key, rec.Metered, rec.Usage.CPUSeconds.Total, n+1)
		case rec.Number != s.number || rec.Attempt != s.attempt:
			t.Errorf("%s: number %s, attempt %d: want %s, %d", rec.Key, rec.Number, rec.Attempt, s.number, s.attempt)
		case rec.Result != string(s.result()):
			t.Errorf("%s: %s: want %s", rec.Key, rec.Result, s.result())
		case s.queued && rec.StartedAt.Sub(rec.QueuedAt) != waits || s.queued && rec.QueuedAt.Sub(queued).Abs() > 2*time.Second:
			t.Errorf("%s: queued %v, began %v: want it to have waited %v", rec.Key, rec.QueuedAt, rec.StartedAt, waits)
		case rec.Project == "" || rec.Server == "" && ci != "gitea":
			t.Errorf("%+v: want server and project", rec.Build)
		}
		if t.Failed() {
			return
		}
	}
}

// Every build of a run of 500 of each CI system is joined to what its agent metered,
// in any order, with retries, each as the build that it is.
func TestJoin(t *testing.T) {
	for ci, make := range map[string]func(t *testing.T, n int) sides{
		"gitlab": gitlabSides, "drone": droneSides, "woodpecker": woodpeckerSides, "gitea": giteaSides, "github": githubSides, "jenkins": jenkinsSides, "buildkite": buildkiteSides,
	} {
		t.Run(ci, func(t *testing.T) {
			var all []sides
			keys := map[string]bool{}
			for n := range 500 {
				s := make(t, n)
				if len(s.reports) < 2 || s.agent.Build.CI != ci || s.agent.Doubt != "" || keys[s.agent.Build.Key] {
					t.Fatalf("build %d: %d reports, identity %+v, twice %v", n, len(s.reports), s.agent, keys[s.agent.Build.Key])
				}
				keys[s.agent.Build.Key] = true
				all = append(all, s)
			}
			var first []queue.Report
			if ci == "jenkins" {
				first = []queue.Report{jenkinsQueue(t, len(all))}
			}
			for seed := range uint64(2) {
				join(t, ci, slices.Clone(all), first, seed)
			}
		})
	}
}

// retried says that build n is the second try of the one before it.
func retried(n int) bool { return n%5 == 4 }

// fails says that build n ended badly: those that are tried again did.
func fails(n int) bool { return retried(n + 1) }

func attempt(n int) int {
	if retried(n) {
		return 2
	}
	return 1
}

// original is the build that n is a try of.
func original(n int) int {
	if retried(n) {
		return n - 1
	}
	return n
}

func text(n int) string { return strconv.Itoa(n) }
