package gitlab_test

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
)

func TestReplayIdentify(t *testing.T) {
	for _, run := range []string{"one", "two-failing"} {
		t.Run(run, func(t *testing.T) {
			r := citest.Load(t, "testdata/"+run, gitlab.Variables())
			all := r.Identify(t, gitlab.Identify)
			for _, c := range all {
				if c.Event.Doubt != "" || c.Inspected != nil && c.Inspected.Doubt != "" {
					t.Errorf("%s: a runner's own container is in doubt: %q, %+v", c.Name, c.Event.Doubt, c.Inspected)
				}
				if c.Inspected != nil && c.Event.Build.Key != c.Inspected.Build.Key {
					t.Errorf("%s: key %s by its event, %s when inspected", c.Name, c.Event.Build.Key, c.Inspected.Build.Key)
				}
			}
			citest.Golden(t, "testdata/"+run+"/identity.golden.json", all)
		})
	}
}

// told is a segment in a golden file.
type told struct {
	Container string
	gitlab.SegmentStage
}

// replay plays the segments of each job of a run, with the readings of the job
// list if there are any, and returns by job number what was told of them.
func replay(t *testing.T, dir string, readings []poll) map[string][]told {
	t.Helper()
	r := citest.Load(t, dir, gitlab.Variables())
	type job struct {
		stages gitlab.Stages
		segs   []int
		names  []string
	}
	jobs := make(map[string]*job)
	segOf := make(map[string]int) // container: its running segment
	sent := make(map[string]int)  // job: what ran when the last reading was asked for
	byID := make(map[string]*cimeter.Container)
	for _, c := range r.Created {
		byID[c.ID] = c
	}
	at := func(number string) *job {
		if jobs[number] == nil {
			jobs[number] = new(job)
		}
		return jobs[number]
	}
	for _, e := range r.Events {
		for len(readings) > 0 && readings[0].at.Before(e.At) {
			for _, s := range readings[0].jobs {
				j := at(s.Job)
				running := j.stages.Running()
				// The poller asked 0.1 s and more before; what ran at the reading before did then.
				if before, ok := sent[s.Job]; ok {
					j.stages.JobList(s.Stage, before, running)
				}
				sent[s.Job] = running
			}
			readings = readings[1:]
		}
		id, ok := gitlab.Identify(byID[e.ID])
		if !ok || id.Role != cimeter.RoleBuild && id.Role != cimeter.RoleHelper {
			continue
		}
		j := at(id.Build.Number)
		switch e.Action {
		case "start":
			segOf[e.ID] = j.stages.Started(id.Role, byID[e.ID].Name)
			j.segs = append(j.segs, segOf[e.ID])
			j.names = append(j.names, strings.TrimPrefix(byID[e.ID].Name, id.Group+"-"))
		case "die":
			j.stages.Ended(segOf[e.ID], e.ExitCode)
		}
	}
	all := make(map[string][]told)
	for number, j := range jobs {
		j.stages.Finish()
		for i, seg := range j.segs {
			all[number] = append(all[number], told{j.names[i], j.stages.Stage(seg)})
		}
	}
	return all
}

// poll is one answer of the recorded job list.
type poll struct {
	at   time.Time
	jobs []gitlab.JobState
}

func loadPolls(t *testing.T, file string) (polls []poll) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		if clock, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "@"); ok {
			seconds, nanos, _ := strings.Cut(clock, ".")
			s, err1 := strconv.ParseInt(seconds, 10, 64)
			ns, err2 := strconv.ParseInt(nanos, 10, 64)
			if err1 != nil || err2 != nil {
				t.Fatalf("clock %q", clock)
			}
			polls = append(polls, poll{at: time.Unix(s, ns)})
			continue
		}
		p := &polls[len(polls)-1]
		var bad int
		if p.jobs, bad = gitlab.AppendJobStates(p.jobs, line); bad > 0 {
			t.Fatalf("a line of the recorded job list is bad: %s", line)
		}
	}
	return polls
}

func TestReplayStages(t *testing.T) {
	citest.Golden(t, "testdata/one/stages.golden.json", replay(t, "testdata/one", nil))
	citest.Golden(t, "testdata/two-failing/stages-order.golden.json", replay(t, "testdata/two-failing", nil))
	polls := loadPolls(t, "testdata/two-failing/jobs-list.txt")
	if len(polls) < 50 {
		t.Fatalf("%d answers of the job list, want the recorded hundred", len(polls))
	}
	citest.Golden(t, "testdata/two-failing/stages-job-list.golden.json", replay(t, "testdata/two-failing", polls))
}

// TestReplayTruth holds the golden files against what the runs' traces say.
func TestReplayTruth(t *testing.T) {
	names := func(all []told) (names []string) {
		for _, s := range all {
			names = append(names, s.Container+" "+s.Name)
		}
		return names
	}
	want := []string{"predefined-0 prepare_script", "predefined-1 get_sources", "predefined-2 restore_cache", "build-3 step_script",
		"build-3 after_script", "predefined-4 archive_cache", "predefined-5 upload_artifacts_on_success"}
	if got := names(replay(t, "testdata/one", nil)["4242"]); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	want = append(want[:5:5], "predefined-4 upload_artifacts_on_failure")
	polls := loadPolls(t, "testdata/two-failing/jobs-list.txt")
	for _, number := range []string{"5001", "5002"} {
		if got := names(replay(t, "testdata/two-failing", nil)[number]); !slices.Equal(got, want) {
			t.Errorf("%s by order: got  %q\nwant %q", number, got, want)
		}
		all := replay(t, "testdata/two-failing", polls)[number]
		if got := names(all); !slices.Equal(got, want) {
			t.Errorf("%s by job list: got  %q\nwant %q", number, got, want)
		}
		for _, s := range all {
			if s.Container == "build-3" || s.Container == "predefined-4" {
				if s.Source != cimeter.BoundaryJobList {
					t.Errorf("%s: %s is from %s, want the job list", number, s.Name, s.Source)
				}
			}
		}
	}
}
