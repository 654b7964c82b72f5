package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/testdocker"
)

// interrupted is a job whose script waits in the middle: it makes the file
// <id>-in of the truths and goes on when there is <id>-go.
func interrupted(id int) *gitlabJob {
	j := smallJob(id)
	j.Stages[2].Steps = []string{"cpu=0.3", fmt.Sprintf("mark=/truth/%d-in", id), fmt.Sprintf("await=/truth/%d-go", id), "cpu=0.2"}
	return j
}

// begin plays the job until its script waits; end lets it go on and waits for
// its end.
func (j *gitlabJob) begin(t *testing.T, m *machine) (end func() error) {
	t.Helper()
	ctx := t.Context()
	result := make(chan error, 1)
	go func() { result <- j.playNew(ctx, m) }()
	if err := m.awaitFile(ctx, fmt.Sprintf("%d-in", j.ID)); err != nil {
		t.Fatal(err)
	}
	return func() error {
		m.mark(t, fmt.Sprintf("%d-go", j.ID))
		return <-result
	}
}

// hasGap reports whether a record names a gap of this reason.
func hasGap(r *cimeter.Record, reason string) bool {
	return slices.ContainsFunc(r.Gaps, func(g cimeter.Gap) bool { return g.Reason == reason })
}

// checkMarked fails when a record does not say that part of it was not seen.
func checkMarked(t *testing.T, r *cimeter.Record, reason string) {
	t.Helper()
	if r.Complete || !hasGap(r, reason) {
		t.Errorf("%s: complete=%v, gaps %+v, want a gap %q", r.Key, r.Complete, r.Gaps, reason)
	}
}

// agentStartedLate starts the agent in the middle of a job: what was before is
// not in the totals, and the record says so.
func agentStartedLate(t *testing.T, m *machine) {
	j := interrupted(4500)
	end := j.begin(t, m)
	a := startAgent(t, m, agentConfig(nil))
	if err := end(); err != nil {
		t.Fatal(err)
	}
	r := a.await(j.Key())
	checkMarked(t, &r, cimeter.GapBeforeAgent)
	s := r.Stages
	i := slices.IndexFunc(s, func(s cimeter.Stage) bool { return s.Name == "step_script" })
	if i < 0 {
		t.Fatalf("stages %q, want step_script among them", stageNames(&r))
	}
	// The first 0.3 s were before the agent.
	got, all := time.Duration(s[i].Usage.CPUSeconds.Total.Value*float64(time.Second)), j.Spent["step_script"]
	if got < 190*time.Millisecond || got > all-290*time.Millisecond {
		t.Errorf("CPU of step_script %v of %v, want the part after the agent's start, 0.2 s and a little", got, all)
	}
	checkStage(t, &r, "archive_cache", j)
}

// checkStage compares the CPU time of one stage.
func checkStage(t *testing.T, r *cimeter.Record, stage string, j *gitlabJob) {
	t.Helper()
	s := stageOf(r, stage, 1)
	if s == nil {
		t.Errorf("%s: no stage %s in %q", r.Key, stage, stageNames(r))
		return
	}
	checkCPU(t, r.Key+" "+stage, s.Usage.CPUSeconds.Total, j.Spent[stage])
}

// agentKilled kills the agent in the middle of a script and starts it again:
// the kernel kept counting, nothing is counted twice, and the record says that
// the agent was away.
func agentKilled(t *testing.T, m *machine) {
	a := startAgent(t, m, agentConfig(nil))
	j := interrupted(4510)
	end := j.begin(t, m)
	a.kill()
	a.start()
	a.watchCounters()
	if err := end(); err != nil {
		t.Fatal(err)
	}
	r := a.await(j.Key())
	checkMarked(t, &r, cimeter.GapAgentRestart)
	for _, stage := range j.names() {
		checkStage(t, &r, stage, j)
	}
	checkSum(t, &r)
}

// agentAway kills the agent before a stage and starts it again after it: that
// stage is lost, and the record does not claim otherwise.
func agentAway(t *testing.T, m *machine) {
	a := startAgent(t, m, agentConfig(nil))
	j := smallJob(4520)
	j.Stages = append(j.Stages, gitlabStage{Name: "upload_artifacts_on_success", Steps: []string{"cpu=0.2"}})
	j.At = func(stage string) {
		switch stage {
		case "step_script":
			a.awaitKept(j, stage)
			a.kill()
		case "archive_cache":
			a.start()
		}
	}
	if err := j.playOld(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	c := account{want: map[string]time.Duration{j.Key(): total(j)}}
	c.settle(t, a)
	r := a.await(j.Key())
	checkMarked(t, &r, cimeter.GapAgentRestart)
	for _, stage := range []string{"get_sources", "step_script", "upload_artifacts_on_success"} {
		checkStage(t, &r, stage, j)
	}
}

// awaitKept waits until all of a stage that has ended is counted, and no checkpoint is
// written any more: an agent that is killed now has it on disk.
func (a *agent) awaitKept(j *gitlabJob, stage string) {
	a.t.Helper()
	want := (j.Spent[stage] - 10*time.Millisecond).Seconds()
	var last time.Time
	same := 0
	a.eventually("the end of "+stage+" is kept", func() error {
		if got := a.metric("cimeter_stage_cpu_seconds_total", fmt.Sprintf("stage=%q", stage)); got < want {
			return fmt.Errorf("%v s of CPU, want %v", got, want)
		}
		files, err := filepath.Glob(filepath.Join(a.data, "checkpoints", "*.checkpoint"))
		if err != nil {
			return err
		}
		var newest time.Time
		for _, file := range files {
			if info, err := os.Stat(file); err == nil && info.ModTime().After(newest) {
				newest = info.ModTime()
			}
		}
		if same++; newest != last || newest.IsZero() {
			last, same = newest, 0
		}
		if same < 10 {
			return fmt.Errorf("a checkpoint of %v", newest)
		}
		return nil
	})
}

// total is all that a job used.
func total(j *gitlabJob) time.Duration {
	var sum time.Duration
	for _, d := range j.Spent {
		sum += d
	}
	return sum
}

// agentTerminated ends the agent in order in the middle of a script, and kills
// it at random moments of further jobs.
func agentTerminated(t *testing.T, m *machine) {
	a := startAgent(t, m, agentConfig(nil))
	j := interrupted(4530)
	end := j.begin(t, m)
	a.terminate()
	a.start()
	if err := end(); err != nil {
		t.Fatal(err)
	}
	r := a.await(j.Key())
	checkStage(t, &r, "step_script", j)

	rounds := loops(t, 3)
	rnd := rand.New(rand.NewPCG(seed(t), 0))
	c := account{want: map[string]time.Duration{j.Key(): total(j)}}
	for i := range rounds {
		j := smallJob(4540 + i)
		result := make(chan error, 1)
		go func() { result <- j.playOld(t.Context(), m) }()
		<-time.After(time.Duration(rnd.Int64N(int64(2 * time.Second))))
		a.kill()
		a.start()
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		c.want[j.Key()] = total(j)
	}
	c.settle(t, a)
}

// forgedLabels runs a user's container that carries the labels of a running
// job: its cost is not booked on the job.
func forgedLabels(t *testing.T, m *machine) {
	a := startAgent(t, m, agentConfig(nil))
	j := interrupted(4550)
	j.Cgroup = m.CgroupParent() + "/genuine"
	end := j.begin(t, m)
	exit, err := m.Run(t.Context(), testdocker.Spec{
		Name: "innocent", Labels: j.labels("build"), Env: j.env(), Cmd: []string{"burn", "cpu=0.5"},
	})
	if err != nil || exit.Code != 0 {
		t.Fatalf("exit %d: %v", exit.Code, err)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	r := a.await(j.Key())
	cpu, err := testdocker.CgroupCPU(j.Cgroup)
	if err != nil {
		t.Fatal(err)
	}
	checkCPU(t, r.Key, r.Usage.CPUSeconds.Total, cpu)
}

// TestDockerDaemonKilled kills dockerd in the middle of a script and starts it
// again.
func TestDockerDaemonKilled(t *testing.T) {
	t.Run("ContainersEnd", func(t *testing.T) {
		m := newMachine(t)
		list := newJobList(t, m)
		a := startAgent(t, m, agentConfig(list))
		a.watchCounters()
		j := interrupted(4600)
		before, err := m.CPU() // warming the machine took some
		if err != nil {
			t.Fatal(err)
		}
		end := j.begin(t, m)
		m.Kill()
		m.Restart() // ends the containers that it finds
		if err := end(); err == nil {
			t.Error("the runner noticed nothing of the daemon's death")
		}
		after, err := m.CPU()
		if err != nil {
			t.Fatal(err)
		}
		r := a.await(j.Key())
		checkCPU(t, r.Key, r.Usage.CPUSeconds.Total, after-before)
		// The next job is followed as if nothing had been.
		next := smallJob(4601)
		next.List = list
		if err := next.playOld(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		r = a.await(next.Key())
		checkGitLab(t, m, next, &r)
	})
	t.Run("ContainersGoOn", func(t *testing.T) {
		m := newMachine(t, "--live-restore")
		a := startAgent(t, m, agentConfig(nil))
		a.watchCounters()
		s := &droneStage{Number: 21, Slug: "acme/live", Random: "ZLpmnUx4slHVaLx2p"}
		labels := s.labels()
		labels["io.drone.step.name"], labels["io.drone.step.number"] = "test", "1"
		before, err := m.CPU() // warming the machine took some
		if err != nil {
			t.Fatal(err)
		}
		id, err := m.Create(t.Context(), testdocker.Spec{
			Name: "drone-" + s.Random + "001", Labels: labels, Binds: m.binds(), Env: m.env("live"),
			Cmd: []string{"burn", "cpu=0.3", "mark=/truth/live-in", "await=/truth/live-go", "cpu=0.2"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Begin(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := m.awaitFile(t.Context(), "live-in"); err != nil {
			t.Fatal(err)
		}
		m.Kill()
		m.Restart()
		m.mark(t, "live-go")
		if err := m.awaitTruth(t.Context(), "live"); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Wait(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := m.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		after, err := m.CPU()
		if err != nil {
			t.Fatal(err)
		}
		r := a.await(s.Key())
		checkCPU(t, r.Key, r.Usage.CPUSeconds.Total, after-before)
		if stageOf(&r, "test", 1) == nil || len(r.Stages) != 1 {
			t.Errorf("stages %q, want test once", stageNames(&r))
		}
	})
}

// TestDockerDaemonPaused stops dockerd for ten seconds while a container of a
// job ends: its end is read all the same, and nothing is lost.
func TestDockerDaemonPaused(t *testing.T) {
	m := newMachine(t)
	a := startAgent(t, m, agentConfig(nil))
	a.watchCounters()
	j := interrupted(4700)
	end := j.begin(t, m)
	m.Pause()
	result := make(chan error, 1)
	go func() { result <- end() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := m.awaitTruth(ctx, j.truthName("step_script")); err != nil {
		t.Fatal(err)
	}
	<-time.After(10 * time.Second) // the pause is the fault, not a wait for something
	m.Resume()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	r := a.await(j.Key())
	checkGitLab(t, m, j, &r)
}
