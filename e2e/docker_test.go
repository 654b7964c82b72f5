package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/testdocker"
)

// slow is set where the machine is emulated: there is less of everything.
var slow = os.Getenv("CIMETER_TEST_SLOW") != ""

// agentConfig is the agent's file; runners is a job list's address, or "".
func agentConfig(list *jobList) string {
	s := "log:\n  level: debug\nagent:\n  grace: 3s\n  quiet: 20s\n  wake_block_io: true\n"
	if list != nil {
		s += "  gitlab_runners:\n    - " + list.address + "\n"
	}
	return s
}

// TestDocker runs the bodies that share one daemon, one after the other, each
// with an agent of its own.
func TestDocker(t *testing.T) {
	m := newMachine(t)
	for _, c := range []struct {
		name string
		body func(*testing.T, *machine)
	}{
		{"GitLabOld", gitlabOld},
		{"GitLabNew", gitlabNew},
		{"GitLabWithoutJobList", gitlabWithoutJobList},
		{"Drone", drone},
		{"Woodpecker", woodpecker},
		{"ShortLived", shortLived},
		{"HostNetwork", hostNetwork},
		{"OOM", oom},
		{"OOMOfChild", oomOfChild},
		{"Throttled", throttled},
		{"AgentStartedLate", agentStartedLate},
		{"AgentKilled", agentKilled},
		{"AgentAway", agentAway},
		{"AgentTerminated", agentTerminated},
		{"ForgedLabels", forgedLabels},
		{"Secrets", secrets},
		{"NoCapability", noCapability},
		{"OnlyReads", onlyReads},
		{"Account", accountOfMany},
	} {
		t.Run(c.name, func(t *testing.T) { c.body(t, m) })
	}
}

// wants lists what a job's record must say of each stage.
func (j *gitlabJob) wants(t *testing.T, m *machine) []wanted {
	t.Helper()
	var all []wanted
	for _, s := range j.Stages {
		w := wanted{Stage: s.Name, CPU: j.Spent[s.Name], Truth: m.truth(t, j.truthName(s.Name))}
		for _, step := range s.Steps {
			name, _, _ := strings.Cut(step, "=")
			w.Memory = w.Memory || name == "mem"
			w.Network = w.Network || name == "send" || name == "receive"
			w.Disk = w.Disk || name == "write" || name == "read"
		}
		all = append(all, w)
	}
	return all
}

// names lists the job's stages in order, with prepare_executor.
func (j *gitlabJob) names() []string {
	names := []string{"prepare_executor"}
	for _, s := range j.Stages {
		names = append(names, s.Name)
	}
	return names
}

// checkGitLab compares a job's record with all that is known of it.
func checkGitLab(t *testing.T, m *machine, j *gitlabJob, r *cimeter.Record) {
	t.Helper()
	check(t, r, j.wants(t, m))
	checkPrepare(t, m, j, r)
	checkOrder(t, r, j.names()...)
	checkComplete(t, r)
	checkSum(t, r)
	if r.CI != "gitlab" || r.Server != gitlabServer || r.Project != j.Project || r.Number != strconv.Itoa(j.ID) || r.Name != j.Name || r.Runner.ShortToken != runnerToken || r.Runner.ID != j.SystemID {
		t.Errorf("%s: identity %+v, want that of job %d of %s", r.Key, r.Build, j.ID, j.Project)
	}
	if s := stageOf(r, "service:postgres", 1); j.Service != nil && s != nil && !s.Alongside {
		t.Errorf("%s: the service does not run alongside", r.Key)
	}
}

// checkPrepare compares prepare_executor and the service beside it, which goes
// on from its burn to a sleep meanwhile, with what both used together.
func checkPrepare(t *testing.T, m *machine, j *gitlabJob, r *cimeter.Record) {
	t.Helper()
	prepare := stageOf(r, "prepare_executor", 1)
	if prepare == nil {
		t.Errorf("%s: no stage prepare_executor in %q", r.Key, stageNames(r))
		return
	}
	sum := prepare.Usage.CPUSeconds.Total
	if j.Service != nil {
		service := stageOf(r, "service:postgres", 1)
		if service == nil {
			t.Errorf("%s: no stage service:postgres in %q", r.Key, stageNames(r))
			return
		}
		got, burnt := service.Usage.CPUSeconds.Total.Value, time.Duration(m.truth(t, j.truthName("service")).CgroupCPU)
		if got < burnt.Seconds() {
			t.Errorf("%s service:postgres: CPU %v s, less than the %v that it burnt", r.Key, got, burnt)
		}
		sum.Value += got
	}
	checkCPU(t, r.Key+" prepare_executor and its service", sum, j.Spent["prepare_executor"])
}

func gitlabOld(t *testing.T, m *machine) {
	list := newJobList(t, m)
	a := startAgent(t, m, agentConfig(list))
	a.watchCounters()
	j := sampleJob(m, 4242)
	j.List = list
	if err := j.playOld(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r := a.await(j.Key())
	checkGitLab(t, m, j, &r)
	got := a.metric("cimeter_stage_cpu_seconds_total", `project="group/app"`, `stage="step_script"`)
	checkCPU(t, "step_script in /metrics", cimeter.Some(got), j.Spent["step_script"])
}

func gitlabNew(t *testing.T, m *machine) {
	list := newJobList(t, m)
	a := startAgent(t, m, agentConfig(list))
	a.watchCounters()
	j := sampleJob(m, 4243)
	j.SystemID, j.List = "s_a1b2c3d4e5f6", list
	if err := j.playNew(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r := a.await(j.Key())
	checkGitLab(t, m, j, &r)
}

// gitlabWithoutJobList has only command lines and order to name stages, in
// both shapes, with stages that were skipped and a script that fails.
func gitlabWithoutJobList(t *testing.T, m *machine) {
	a := startAgent(t, m, agentConfig(nil))
	for i, play := range []func(*gitlabJob, context.Context, *machine) error{(*gitlabJob).playOld, (*gitlabJob).playNew} {
		j := &gitlabJob{
			ID: 4250 + i, Project: "group/app", Name: "failing", Random: "0123456789abcdef",
			Stages: []gitlabStage{
				{Name: "prepare_script", Steps: []string{"cpu=0.01"}},
				{Name: "get_sources", Steps: []string{"cpu=0.1"}},
				{Name: "step_script", Steps: []string{"cpu=0.2", "exit=3"}, Code: 3},
				{Name: "after_script", Steps: []string{"cpu=0.1"}},
				{Name: "upload_artifacts_on_failure", Steps: []string{"cpu=0.1"}},
			},
		}
		if err := play(j, t.Context(), m); err != nil {
			t.Fatal(err)
		}
		r := a.await(j.Key())
		checkGitLab(t, m, j, &r)
	}
}

func drone(t *testing.T, m *machine) {
	a := startAgent(t, m, agentConfig(nil))
	s := &droneStage{Number: 11, Slug: "acme/app", Random: "pt4306jSfhaW8L19g", Steps: sampleSteps}
	before, err := m.CPU()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.play(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r := a.await(s.Key())
	checkSteps(t, m, &r, s.Steps, s.truthName, before)
	if r.CI != "drone" || r.Server != droneServer || r.Project != s.Slug || r.Number != "11" {
		t.Errorf("identity %+v, want that of build 11 of %s", r.Build, s.Slug)
	}
}

func woodpecker(t *testing.T, m *machine) {
	a := startAgent(t, m, agentConfig(nil))
	w := &woodpeckerWorkflow{Number: 12, Repo: "acme/app", Name: "test", ULID: "01M8NMM1NTF6EZH63G92QP4W", Steps: sampleSteps}
	before, err := m.CPU()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.play(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	key := fmt.Sprintf("woodpecker/%s/%s/%d/%s", woodpeckerServer, w.Repo, w.Number, w.Name)
	r := a.await(key)
	checkSteps(t, m, &r, w.Steps, w.truthName, before)
	if r.CI != "woodpecker" || r.Project != w.Repo || r.Number != "12" || r.Name != w.Name {
		t.Errorf("identity %+v, want that of pipeline 12 of %s", r.Build, w.Repo)
	}
}

// checkSteps compares a record with the truths of its steps and, as a whole,
// with what the parent cgroup used since before.
func checkSteps(t *testing.T, m *machine, r *cimeter.Record, steps []step, truthName func(string) string, before time.Duration) {
	t.Helper()
	after, err := m.CPU()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		v := m.truth(t, truthName(s.Name))
		i := slices.IndexFunc(r.Stages, func(g cimeter.Stage) bool { return g.Name == s.Name || g.Name == "service:"+s.Name })
		if i < 0 {
			t.Errorf("%s: no stage %s in %q", r.Key, s.Name, stageNames(r))
			continue
		}
		g := r.Stages[i]
		// What burn and its shell use after the last reading is not in the truth.
		floor := time.Duration(v.CgroupCPU)
		if got := time.Duration(g.Usage.CPUSeconds.Total.Value * float64(time.Second)); got < floor-floor/100 {
			t.Errorf("%s %s: CPU %v, less than the %v that burn saw", r.Key, s.Name, got, floor)
		}
		if g.Boundary != cimeter.BoundaryContainer {
			t.Errorf("%s %s: boundary %q, want %q", r.Key, s.Name, g.Boundary, cimeter.BoundaryContainer)
		}
	}
	checkCPU(t, r.Key, r.Usage.CPUSeconds.Total, after-before)
	checkComplete(t, r)
	checkSum(t, r)
}

// shortLived runs many containers that live for a fraction of a second: what
// a poller misses.
func shortLived(t *testing.T, m *machine) {
	n := 200
	if slow {
		n = 30
	}
	a := startAgent(t, m, agentConfig(nil))
	rnd := rand.New(rand.NewPCG(seed(t), 0))
	s := &droneStage{Number: 13, Slug: "acme/short", Random: "ROWCTbx4pAgK4xRX3"}
	before, err := m.CPU()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range n {
		labels := s.labels()
		name := fmt.Sprintf("step-%03d", i)
		labels["io.drone.step.name"], labels["io.drone.step.number"] = name, strconv.Itoa(i+1)
		id, err := m.Create(t.Context(), testdocker.Spec{
			Name: fmt.Sprintf("drone-%s%03d", s.Random, i), Labels: labels,
			Cmd: []string{"burn", fmt.Sprintf("cpu=%.3f", 0.04+0.24*rnd.Float64())},
		})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	var wg sync.WaitGroup
	next := make(chan string)
	for range 4 {
		wg.Go(func() {
			for id := range next {
				if exit, err := m.Play(t.Context(), id, ""); err != nil || exit.Code != 0 {
					t.Errorf("container %.12s: exit %d: %s: %v", id, exit.Code, exit.Output, err)
				}
			}
		})
	}
	for _, id := range ids {
		next <- id
	}
	close(next)
	wg.Wait()
	after, err := m.CPU()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if err := m.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	r := a.await(s.Key())
	if len(r.Stages) != n {
		t.Errorf("%d of %d containers were seen", len(r.Stages), n)
	}
	got, want := r.Usage.CPUSeconds.Total.Value, (after - before).Seconds()
	t.Logf("%d containers: %.3f s of %.3f s of CPU captured (%.2f %%)", n, got, want, 100*got/want)
	// The share that is aimed at, 99.5 %, is a figure of a quiet machine: it is
	// printed here and measured by make bench. What must hold anywhere is less.
	if got < 0.98*want || got > 1.001*want {
		t.Errorf("captured %.3f s of CPU, want 98 %% of %.3f s at least", got, want)
	}
}

// seed is the seed of a test's random numbers: CIMETER_TEST_SEED, or the time.
func seed(t *testing.T) uint64 {
	t.Helper()
	n := uint64(time.Now().UnixNano())
	if s := os.Getenv("CIMETER_TEST_SEED"); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("CIMETER_TEST_SEED: %v", err)
		}
	}
	t.Logf("CIMETER_TEST_SEED=%d replays this", n)
	return n
}

// smallJob is a job of few stages.
func smallJob(id int) *gitlabJob {
	return &gitlabJob{
		ID: id, Project: "group/small", Name: "unit", Random: fmt.Sprintf("%016x", id),
		Stages: []gitlabStage{
			{Name: "prepare_script", Steps: []string{"cpu=0.01"}},
			{Name: "get_sources", Steps: []string{"cpu=0.1"}},
			{Name: "step_script", Steps: []string{"cpu=0.2"}},
			{Name: "archive_cache", Steps: []string{"cpu=0.1"}},
		},
	}
}

// hostNetwork runs a job on the host's network: its traffic is not metered,
// and the record says nothing about it rather than zero.
func hostNetwork(t *testing.T, m *machine) {
	a := startAgent(t, m, agentConfig(nil))
	j := smallJob(4300)
	j.Network = "host"
	if err := j.playOld(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r := a.await(j.Key())
	checkGitLab(t, m, j, &r)
	if r.Usage.NetworkBytes != nil {
		t.Errorf("network bytes %+v, want none: the host's traffic is not the build's", *r.Usage.NetworkBytes)
	}
}

// oom runs a script whose process is killed for memory.
func oom(t *testing.T, m *machine) {
	const limit = 64 << 20
	a := startAgent(t, m, agentConfig(nil))
	j := smallJob(4310)
	j.Memory = limit
	j.Stages[2] = gitlabStage{Name: "step_script", Steps: []string{"cpu=0.1", "oom"}, Code: 137}
	j.Stages[3].Name = "archive_cache_on_failure"
	if err := j.playNew(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r := a.await(j.Key())
	checkGitLab(t, m, j, &r)
	i := slices.IndexFunc(r.Verdicts, func(v cimeter.Verdict) bool { return v.Kind == "oom" })
	if i < 0 || r.Verdicts[i].Stage != "step_script" {
		t.Errorf("verdicts %+v, want oom of step_script", r.Verdicts)
	}
	if r.Limits == nil || r.Limits.MemoryBytes != cimeter.Some[uint64](limit) || !strings.HasPrefix(r.Limits.MemorySetBy, m.CgroupParent()+"/") {
		t.Errorf("limits %+v, want %d bytes set by the container below %s", r.Limits, limit, m.CgroupParent())
	}
	if s := stageOf(&r, "step_script", 1); s != nil {
		if n := s.Usage.OOMKills; !n.Known || n.Value < 1 {
			t.Errorf("OOM kills %+v, want one at least", n)
		}
		// The kernel lets a task that is being killed go over the limit by some pages.
		if v := s.Usage.MemoryBytes; v == nil || v.Peak.Value < limit || v.Peak.Value > limit+1<<20 {
			t.Errorf("memory %+v, want a peak of %d", v, limit)
		}
	}
}

// oomOfChild has a child of the script killed for memory; the script goes on
// and its exit code is ordinary.
func oomOfChild(t *testing.T, m *machine) {
	a := startAgent(t, m, agentConfig(nil))
	j := smallJob(4311)
	j.Memory = 64 << 20
	j.Stages[2].Steps = []string{"cpu=0.1", "oomchild"}
	if err := j.playNew(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r := a.await(j.Key())
	checkGitLab(t, m, j, &r)
	if i := slices.IndexFunc(r.Verdicts, func(v cimeter.Verdict) bool { return v.Kind == "oom" }); i < 0 || r.Verdicts[i].Stage != "step_script" {
		t.Errorf("verdicts %+v, want oom of step_script", r.Verdicts)
	}
}

// throttled runs a script that may use so little of a CPU that a busy machine gives
// it more.
func throttled(t *testing.T, m *machine) {
	a := startAgent(t, m, agentConfig(nil))
	j := smallJob(4320)
	j.NanoCPU = 50_000_000
	j.Stages[2].Steps = []string{"cpu=0.1", "throttle=3"}
	if err := j.playNew(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r := a.await(j.Key())
	checkGitLab(t, m, j, &r)
	if r.Limits == nil || r.Limits.CPUCores != cimeter.Some(0.05) {
		t.Errorf("limits %+v, want 0.05 cores", r.Limits)
	}
	s := stageOf(&r, "step_script", 1)
	if s == nil {
		return
	}
	truth := m.truth(t, j.truthName("step_script"))
	got := s.Usage.CPUThrottledPeriods
	more := uint64(3) // a period or two may be throttled after burn looked
	if slow {
		more = 15
	}
	if !got.Known || got.Value < uint64(truth.Throttled) || got.Value > uint64(truth.Throttled)+more {
		t.Errorf("throttled in %+v periods, want %d", got, truth.Throttled)
	}
	if v := s.Usage.CPUThrottledSeconds; !v.Known || v.Value <= 0 {
		t.Errorf("throttled for %+v seconds, want more than none", v)
	}
}

// accountOfMany runs many jobs of both shapes at once and settles the account.
func accountOfMany(t *testing.T, m *machine) {
	workers, rounds := 4, 3
	if slow {
		workers, rounds = 2, 2
	}
	list := newJobList(t, m)
	a := startAgent(t, m, agentConfig(list))
	a.watchCounters()
	c := account{want: map[string]time.Duration{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				j := smallJob(5000 + 10*w + i)
				j.Slot, j.List, j.Cgroup = w, list, fmt.Sprintf("%s/job-%d-%d", m.CgroupParent(), w, i)
				play := (*gitlabJob).playOld
				if i%2 == 1 {
					play, j.SystemID = (*gitlabJob).playNew, "s_a1b2c3d4e5f6"
				}
				if err := play(j, t.Context(), m); err != nil {
					t.Errorf("job %d: %v", j.ID, err)
					return
				}
				cpu, err := testdocker.CgroupCPU(j.Cgroup)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				c.want[j.Key()] = cpu
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	c.settle(t, a)
}

// secrets plants secrets wherever a build can put them and looks for them in
// everything that the agent writes, serves and says.
func secrets(t *testing.T, m *machine) {
	list := newJobList(t, m)
	a := startAgent(t, m, agentConfig(list))
	j := sampleJob(m, 4400)
	j.List = list
	if err := j.playOld(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if exit, err := m.Run(t.Context(), testdocker.Spec{
		Name: "drone-" + strings.Repeat("x", 20), Labels: map[string]string{"deploy.token": plantedSecret, "io.drone": "true", "io.drone.repo.slug": "a/b"},
		Env: []string{"PASSWORD=" + plantedSecret}, Cmd: []string{"sh", "-c", "true " + plantedSecret},
	}); err != nil || exit.Code != 0 {
		t.Fatalf("exit %d: %v", exit.Code, err)
	}
	a.await(j.Key())
	a.eventually("nothing is left to be written", func() error {
		n := a.metric("cimeter_agent_records_pending")
		for _, project := range []string{`project="group/app"`, `project="a/b"`} {
			n += a.metric("cimeter_builds_running", project)
		}
		if n > 0 {
			return fmt.Errorf("%v builds run or wait for the disk", n)
		}
		return nil
	})
	texts := map[string]string{"the log": a.log.String()}
	for _, page := range []string{"/metrics", "/api/v1/builds", "/api/v1/builds/" + j.Key(), "/healthz", "/readyz", "/version", "/"} {
		b, err := a.get(page)
		if err != nil && page != "/" {
			t.Error(err)
		}
		texts[page] = string(b)
	}
	for _, line := range [][]string{{"builds"}, {"builds", "--format", "json"}, {"builds", "--format", "csv"}, {"summary", j.Key()}, {"summary", "--json", j.Key()}, {"summary", "--markdown", j.Key()}} {
		texts[strings.Join(line, " ")] = a.tool(line...)
	}
	err := filepath.WalkDir(a.data, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil // a checkpoint goes when its record is there
		}
		if err != nil {
			return err
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %v, want 0600", path, info.Mode())
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		texts[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(a.data); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%s has the mode %v (%v), want 0700", a.data, info.Mode(), err)
	}
	if len(texts) < 15 {
		t.Errorf("looked at %d texts only; the agent keeps no file in %s", len(texts), a.data)
	}
	for where, text := range texts {
		for _, secret := range []string{plantedSecret, secretOf(j), "PlantedSecret", "PlantedJobToken"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds the planted secret %q", where, secret)
			}
		}
	}
}
