package e2e_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/testdocker"
)

// secret is in the environment and on the command lines of builds, and must not
// get out of there.
const secret = "glcbt-geheim"

// kind is a runner with a build, and what its record must be.
type kind struct {
	name   string // of the runner's program
	key    string
	shells func(join string) []shellRun
	stages []string // name/boundary
}

func shellKinds(t *testing.T) []kind {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	helper := linkSelf(t, filepath.Join(dir, "helper"), "gitlab-runner")
	git := linkSelf(t, filepath.Join(dir, "bin"), "git")
	n := jobNumber(500)
	github := func(step string) []string {
		return []string{
			"GITHUB_ACTIONS=true", "GITHUB_SERVER_URL=https://github.example.com", "GITHUB_REPOSITORY=acme/app", fmt.Sprintf("GITHUB_RUN_ID=%d", n),
			"GITHUB_RUN_ATTEMPT=2", "GITHUB_RUN_NUMBER=7", "GITHUB_JOB=unit", "GITHUB_ACTION=" + step, "RUNNER_NAME=host-1", "GITHUB_TOKEN=" + secret,
		}
	}
	custom := func(stage string) []string {
		return []string{"CUSTOM_ENV_GITLAB_CI=true", fmt.Sprintf("CUSTOM_ENV_CI_JOB_ID=%d", n+1), "CUSTOM_ENV_CI_SERVER_URL=https://gitlab.example.com",
			"CUSTOM_ENV_CI_PROJECT_PATH=acme/app", "CUSTOM_ENV_CI_JOB_TOKEN=" + secret}
	}
	work := short(10, 5000)
	return []kind{
		{
			"gitlab-runner", gitlabKey(n), func(join string) []shellRun {
				say := func(lines string) shellRun {
					return shellRun{Stdin: join + gitlabExports(n) + "export " + playHelper + "=1\n" + lines}
				}
				return []shellRun{say(work), say(git + " clone x\n"), say(work), say(helper + " cache-archiver --token " + secret + "\n"), say(work)}
			},
			[]string{"prepare_script/order", "get_sources/order", "step_script/order", "archive_cache/command", "cleanup_file_variables/order"},
		},
		{
			"gitlab-runner-custom", gitlabKey(n + 1), func(join string) []shellRun {
				driver := file("driver", "#!/bin/sh\n"+join+work)
				return []shellRun{
					{Args: []string{driver, "prepare"}, Env: custom("")}, {Args: []string{driver, "/tmp/script1", "get_sources"}, Env: custom("")},
					{Args: []string{driver, "/tmp/script2", "step_script"}, Env: custom("")}, {Args: []string{driver, "cleanup"}, Env: custom("")},
				}
			},
			[]string{"prepare_executor/command", "get_sources/command", "step_script/command", "cleanup_file_variables/command"},
		},
		{
			"Runner.Worker", fmt.Sprintf("github/github.example.com/acme/app/%d/2/host-1/unit", n), func(join string) []shellRun {
				// The first step leaves a daemon behind that works on.
				return []shellRun{
					{Env: github("__run"), Stdin: join + "setsid sh -c '" + strings.ReplaceAll(short(20, 5000), "'", "") + "' >/dev/null 2>&1 </dev/null &\n" + work},
					{Env: github("__run_2"), Stdin: join + work + work},
				}
			},
			[]string{"__run/process", "__run_2/process"},
		},
		{
			"buildkite-agent", "buildkite/buildkite.com/acme/app/17/0190c0de-0000-4000-8000-" + fmt.Sprintf("%012d", n), func(join string) []shellRun {
				return []shellRun{{Stdin: join + work, Env: []string{"BUILDKITE=true", "BUILDKITE_JOB_ID=0190c0de-0000-4000-8000-" + fmt.Sprintf("%012d", n),
					"BUILDKITE_BUILD_URL=https://buildkite.com/acme/app/builds/17", "BUILDKITE_BUILD_NUMBER=17", "BUILDKITE_AGENT_ACCESS_TOKEN=" + secret}}}
			},
			[]string{"job/process"},
		},
		{
			"java", fmt.Sprintf("jenkins/ci.example.com/team/app/%d", n), func(join string) []shellRun {
				// As durable-task does it: the wrapper is left behind at once.
				return []shellRun{{Args: []string{"/bin/sh", "-c", "nohup sh -c '" + file("script.sh", join+work+work) + "' >/dev/null 2>&1 </dev/null &"}, Env: []string{
					"JENKINS_URL=https://ci.example.com/", "JOB_NAME=team/app", fmt.Sprintf("BUILD_NUMBER=%d", n),
					fmt.Sprintf("BUILD_URL=https://ci.example.com/job/team/job/app/%d/", n), "STAGE_NAME=Test", "CREDENTIALS=" + secret,
				}}}
			},
			[]string{"Test/process"},
		},
		{
			"drone-runner-exec", fmt.Sprintf("drone/drone.example.com/acme/app/%d/1", n), func(join string) []shellRun {
				return []shellRun{{Args: []string{"/bin/sh", "-e", file("drone-a1b2c3/opt/unit-tests.sh", join+work)}, Env: []string{"DRONE_REPO=acme/app",
					fmt.Sprintf("DRONE_BUILD_NUMBER=%d", n), "DRONE_STAGE_NUMBER=1", "DRONE_STAGE_NAME=default", "DRONE_SYSTEM_HOST=drone.example.com", "DRONE_NETRC_PASSWORD=" + secret}}}
			},
			[]string{"unit-tests/command"},
		},
		{
			"woodpecker-agent", fmt.Sprintf("woodpecker/ci.example.com/acme/app/%d/build", n), func(join string) []shellRun {
				env := func(step string) []string {
					return []string{"CI_SYSTEM_NAME=woodpecker", "CI_SYSTEM_URL=https://ci.example.com", "CI_REPO=acme/app", fmt.Sprintf("CI_PIPELINE_NUMBER=%d", n),
						"CI_WORKFLOW_NAME=build", "CI_WORKFLOW_NUMBER=1", "CI_STEP_NAME=" + step, "CI_STEP_TYPE=commands", "CI_NETRC_PASSWORD=" + secret}
				}
				return []shellRun{{Env: env("compile"), Stdin: join + work}, {Env: env("test"), Stdin: join + work}}
			},
			[]string{"compile/process", "test/process"},
		},
	}
}

// Every runner's builds have their key, their stages and what they used; nothing
// of their secrets gets out; and two builds at once are told apart.
func TestShell_kinds(t *testing.T) {
	b := newBare(t)
	a := startAgent(t, b, shellConfig("events"))
	kinds := shellKinds(t)
	for i, k := range kinds {
		group := fmt.Sprintf("%s/kind-%d", b.parent, i)
		if err := testdocker.MakeCgroup(group); err != nil {
			t.Fatal(err)
		}
		r := startRunner(t, k.name, []shellBuild{{Shells: k.shells(joins(t, group))}})
		r.run()
		defer r.end() // a worker's build is over when the worker is
		if k.name == "Runner.Worker" {
			r.end()
		}
	}
	for i, k := range kinds {
		r := a.await(k.key)
		used, err := testdocker.CgroupCPU(fmt.Sprintf("%s/kind-%d", b.parent, i))
		if err != nil {
			t.Fatal(err)
		}
		var stages []string
		for _, s := range r.Stages {
			stages = append(stages, s.Name+"/"+string(s.Boundary))
		}
		if got, want := fmt.Sprint(stages), fmt.Sprint(k.stages); got != want {
			t.Errorf("%s: stages %s, want %s", k.key, got, want)
		}
		// A program's start before it joins its cgroup is not in the cgroup's account.
		got, want := r.Usage.CPUSeconds.Total.Value, used.Seconds()
		if tolerance := 0.05*want + 0.02*float64(len(r.Stages)); math.Abs(got-want) > tolerance {
			t.Errorf("%s: %.3f s of CPU time, want %.3f by its cgroup, give or take %.3f", k.key, got, want, tolerance)
		}
		if u := r.Usage; u.NetworkBytes != nil || u.NotMetered["network_bytes"] == "" || !strings.HasSuffix(u.NotMetered["memory_bytes.peak"], "ss)") { // Pss or Rss
			t.Errorf("%s: network %v, not metered %v", k.key, u.NetworkBytes, u.NotMetered)
		}
		if sum := r.Usage.CPUSeconds; math.Abs(sum.User.Value+sum.System.Value-sum.Total.Value) > 0.001 {
			t.Errorf("%s: user and system time are not the total: %+v", k.key, sum)
		}
		if !r.Complete || len(r.Verdicts) > 0 {
			t.Errorf("%s: gaps %+v, verdicts %+v", k.key, r.Gaps, r.Verdicts)
		}
	}
	keys, err := a.keys()
	if err != nil {
		t.Fatal(err)
	}
	own := slices.DeleteFunc(keys, func(key string) bool { return !strings.Contains(key, fmt.Sprint(jobNumber(500)/100)) }) // others test on this machine
	if len(own) != len(kinds) {
		t.Errorf("records %v, want those of %d builds", own, len(kinds))
	}
	checkNoSecret(t, a)
}

// checkNoSecret looks for the secret wherever the agent puts something.
func checkNoSecret(t *testing.T, a *agent) {
	t.Helper()
	page, err := a.get("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(page), secret) || strings.Contains(a.log.String(), secret) {
		t.Error("a secret of a build is in the metrics or the log")
	}
	err = filepath.WalkDir(a.data, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // removed meanwhile
		}
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), secret) {
			t.Errorf("a secret of a build is in %s", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Without events a build whose processes have no parent of theirs keeps what its
// variables say, and the record says how it was seen.
func TestShell_scannedOrphan(t *testing.T) {
	t.Parallel() // beside TestInGuest
	b := newBare(t)
	group := b.parent + "/orphan"
	if err := testdocker.MakeCgroup(group); err != nil {
		t.Fatal(err)
	}
	stop := filepath.Join(t.TempDir(), "stop")
	number := jobNumber(700)
	script := filepath.Join(t.TempDir(), "script.sh")
	text := "#!/bin/sh\n" + joins(t, group) + "while [ ! -e " + stop + " ]; do " + strings.ReplaceAll(short(20, 5000), "\n", "; ") + " true; done\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	r := startRunner(t, "java", []shellBuild{{Shells: []shellRun{{Args: []string{"/bin/sh", "-c", "nohup " + script + " >/dev/null 2>&1 </dev/null &"}, Env: []string{
		"JENKINS_URL=https://ci.example.com/", "JOB_NAME=orphan", fmt.Sprintf("BUILD_NUMBER=%d", number),
	}}}}})
	a := startAgent(t, b, shellConfig("scan")) // looks for runners at its start, and then each 30 s
	a.eventually("the runner is seen", func() error { return atLeast(a, "cimeter_agent_process_runners", 1) })
	r.run()
	key := fmt.Sprintf("jenkins/ci.example.com/orphan/%d", number)
	a.eventually("the build is seen", func() error { // all processes are looked at each 5 s
		b, err := a.get("/api/v1/running")
		if err == nil && !strings.Contains(string(b), `"`+key+`"`) {
			err = fmt.Errorf("running: %s", b)
		}
		return err
	})
	before, err := testdocker.CgroupCPU(group)
	if err != nil {
		t.Fatal(err)
	}
	a.eventually("the build is metered", func() error {
		if spent, err := testdocker.CgroupCPU(group); err != nil || (spent-before).Seconds() < 2 {
			return fmt.Errorf("it has used %v (%v)", spent, err)
		}
		return nil
	})
	if err := os.WriteFile(stop, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	rec := a.await(key)
	used, err := testdocker.CgroupCPU(group)
	if err != nil {
		t.Fatal(err)
	}
	if got := rec.Usage.CPUSeconds.Total.Value / used.Seconds(); got < 0.7 || got > 1.02 {
		t.Errorf("%.1f %% of its CPU time is in the record", 100*got)
	}
	if u := rec.Usage; u.MemoryBytes == nil || u.MemoryBytes.Max < 100<<10 || u.IOBytes == nil || !u.ProcessesMax.Known {
		t.Errorf("memory %+v, IO %+v, processes %+v", u.MemoryBytes, u.IOBytes, u.ProcessesMax)
	}
	checkMarked(t, &rec, cimeter.GapProcessesScanned)
}

// A runner in a container, and what it starts, is the container's.
func TestShell_inAContainer(t *testing.T) {
	b := newBare(t)
	a := startAgent(t, b, shellConfig("events"))
	container := fmt.Sprintf("%s/%064x", b.parent, jobNumber(800))
	if err := testdocker.MakeCgroup(container); err != nil {
		t.Fatal(err)
	}
	build := func(job int) []shellBuild { // of more than the 40 ms that events may gather
		return []shellBuild{{Shells: []shellRun{{Stdin: gitlabExports(job) + short(40, 2000)}}}}
	}
	inside := startRunnerIn(t, "gitlab-runner", joins(t, container), build(jobNumber(800)))
	inside.run()
	outside := startRunner(t, "gitlab-runner", build(jobNumber(801)))
	outside.run()
	a.await(gitlabKey(jobNumber(801)))
	if r, err := a.record(gitlabKey(jobNumber(800))); err == nil {
		t.Errorf("a build in a container is metered as processes: %+v", r)
	}
	if err := atLeast(a, "cimeter_agent_process_runners", 2); err == nil {
		t.Error("the runner in the container is followed")
	}
	inside.end() // its cgroup is removed after it
}
