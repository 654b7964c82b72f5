package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/cimeter/cimeter"
)

// site is a machine with an agent that has the configuration of a page of
// docs/runners, with the test's paths and ports for those of a real machine.
type site struct {
	*machine
	agent   *agent
	blocks  []block
	sockets string // for /run/cimeter
	hosts   map[string]string
}

// newSite starts the agent as the page says.
func newSite(t *testing.T, m *machine, page string) *site {
	t.Helper()
	_, blocks := runnerPage(t, page)
	sockets, err := os.MkdirTemp("", "cimeter-job-") // short: a unix address has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	if err := os.Chmod(sockets, 0o755); err != nil {
		t.Fatal(err)
	}
	list := newJobList(t, m)
	config := pick(t, blocks, "/etc/cimeter/agent.yaml").text
	config = strings.NewReplacer(
		"/run/cimeter/", sockets+"/", "http://127.0.0.1:9252/debug/jobs/list", list.address, "\nagent:\n", "\nagent:\n  grace: 1s\n  processes: \"off\"\n", // other tests play runners on this machine
	).Replace(config)
	s := &site{machine: m, blocks: blocks, sockets: sockets, hosts: map[string]string{
		"/run/cimeter": sockets, "/usr/bin/cimeter": agentProgram(t),
	}}
	s.agent = startAgent(t, m, config)
	return s
}

// rebind are the mounts of a runner's configuration, from this test's folders.
// A volume without a folder of the host ("/cache") is none of ours.
func (s *site) rebind(t *testing.T, mounts []string) (binds []string) {
	t.Helper()
	for _, v := range mounts {
		if strings.Contains(v, ":") {
			binds = append(binds, rebind(t, v, s.hosts))
		}
	}
	return binds
}

// patient gives the commands of a page the time that a busy test machine takes:
// time is not what is tested.
func patient(script string) string {
	return strings.ReplaceAll(script, "cimeter summary", "cimeter summary --timeout 30s")
}

// printed fails the test when a job's log has no summary with these stages.
func printed(t *testing.T, log string, stages ...string) {
	t.Helper()
	if !strings.Contains(log, "cimeter: ") || !strings.Contains(log, " s CPU") {
		t.Errorf("no summary in the log of the job:\n%s", log)
	}
	for _, s := range stages {
		if !strings.Contains(log, "\n"+s+" ") {
			t.Errorf("no stage %s in the log of the job:\n%s", s, log)
		}
	}
}

// look runs the page's section Check after a build, as far as it is cimeter's:
// the shell finds the agent where the test has it.
func (s *site) look(t *testing.T, r *cimeter.Record) {
	t.Helper()
	bin := t.TempDir()
	if err := os.Symlink(agentProgram(t), filepath.Join(bin, "cimeter")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "systemctl"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer("127.0.0.1:9808", s.agent.address, "/etc/cimeter/agent.yaml", s.agent.config, "KEY", r.Key).Replace(shellBlock(t, s.blocks, "Check"))
	if out := s.shell(t, bin, script); !strings.Contains(out, "cimeter_builds_total{") || !strings.Contains(out, r.Key+"\n") || !strings.Contains(out, "total ") {
		t.Errorf("the page's commands say:\n%s", out)
	}
	// The page of machines that come and go asks a server, which answers the same.
	_, blocks := runnerPage(t, "gitlab-autoscaler")
	token := filepath.Join(bin, "token")
	if err := os.WriteFile(token, []byte("cmt_of-a-test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	script = strings.NewReplacer("127.0.0.1:9808", s.agent.address, "/etc/cimeter/agent.yaml", s.agent.config,
		"https://cimeter.example.com", "http://"+s.agent.address, "--token-file token", "--token-file "+token).Replace(shellBlock(t, blocks, "Check"))
	if out := s.shell(t, bin, script); !strings.Contains(out, "cimeter_builds_total{") || !strings.Contains(out, r.Key+"\n") {
		t.Errorf("the page's commands say:\n%s", out)
	}
}

// shell runs a script beside the agent, with the programs of a folder.
func (s *site) shell(t *testing.T, bin, script string) string {
	t.Helper()
	cmd := s.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "CIMETER_SERVER=http://" + s.agent.address, "HOME=/nonexistent"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestSnippets does what docs/runners tells for each runner that starts
// containers, and has its jobs print their summaries: one daemon for all, and an
// agent with the page's own configuration for each.
func TestSnippets(t *testing.T) {
	t.Parallel() // beside TestInGuest
	m := newMachine(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *machine)
	}{
		{"gitlab", snippetGitLab}, {"drone", snippetDrone}, {"woodpecker", snippetWoodpecker},
		{"github", snippetGitHub}, {"gitea", snippetGitea}, {"forgejo", snippetForgejo}, {"jenkins", snippetJenkins}, {"buildkite", snippetBuildkite},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, m) })
	}
}

// gitlabScript is the script of the build stage as the runner's shell writes it
// for sh: pre_build_script, the job's and post_build_script as one text, which a
// pipe's last part evaluates.
func gitlabScript(pre, script, post string) string {
	var parts []string
	for _, s := range []string{pre, script, post} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	quoted := strings.ReplaceAll(strings.Join(parts, "\n"), "'", `'\''`)
	return "if set -o | grep pipefail > /dev/null; then set -o pipefail; fi; set -o errexit\nset +o noclobber\n: | eval '" + quoted + "'\nexit 0\n"
}

// snippetGitLab has GitLab Runner's config.toml put the summary into the
// logs of jobs: of one that succeeds, and of one that fails.
func snippetGitLab(t *testing.T, m *machine) {
	s := newSite(t, m, "gitlab-docker")
	post := decodeRunner(t, pick(t, s.blocks, "/etc/gitlab-runner/config.toml", "post_build_script")).Runners[0]
	pre := decodeRunner(t, pick(t, s.blocks, "/etc/gitlab-runner/config.toml", "pre_build_script")).Runners[0]
	if post.Executor != "docker" || !slices.Contains(post.Docker.Volumes, "/cache") {
		t.Errorf("%+v: want the docker executor, and its usual volume kept", post)
	}
	play := func(id int, script string, code int) string {
		t.Helper()
		j := &gitlabJob{ID: id, Project: "group/app", Name: "job", Random: fmt.Sprintf("%016x", id), SystemID: "s_1", Slot: id % 10}
		var out string
		for _, stage := range []struct {
			suffix, script string
			code           int
		}{{"predefined", j.script(gitlabStage{Name: "get_sources", Steps: []string{"cpu=0.1"}}), 0}, {"build", patient(script), code}} {
			spec := j.spec(s.machine, stage.suffix, stage.suffix)
			spec.Stdin, spec.Hostname, spec.Cmd = true, j.unique(), []string{"sh"}
			if stage.suffix == "build" { // the runner gives the volumes to both, the script runs in this one
				spec.Binds = append(spec.Binds, s.rebind(t, post.Docker.Volumes)...)
			}
			container, err := s.Create(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Remove(t.Context(), container)
			exit, err := s.Play(t.Context(), container, stage.script)
			if err != nil || exit.Code != stage.code {
				t.Fatalf("stage %s of job %d: exit %d, want %d: %v: %s", stage.suffix, id, exit.Code, stage.code, err, exit.Output)
			}
			out = exit.Output
		}
		return out
	}
	log := play(4401, gitlabScript("", "burn cpu=0.2", post.PostBuildScript), 0)
	printed(t, log, "get_sources", "step_script")
	if !strings.Contains(log, "section_start:") {
		t.Errorf("no section in the log:\n%s", log)
	}
	if log := play(4402, gitlabScript("", "burn cpu=0.2; false", post.PostBuildScript), 1); strings.Contains(log, "cimeter") {
		t.Errorf("post_build_script ran after a failure:\n%s", log)
	}
	printed(t, play(4403, gitlabScript(pre.PreBuildScript, "burn cpu=0.2", ""), 0), "get_sources", "step_script")
	if log := play(4404, gitlabScript(pre.PreBuildScript, "burn cpu=0.2\nfalse", ""), 1); !strings.Contains(log, "cimeter: ") || strings.Count(log, "\n") > 1 {
		t.Errorf("in the log of a failed job: want one line\n%s", log)
	}
	r := s.agent.await((&gitlabJob{ID: 4401}).Key())
	s.look(t, &r)
}

// pipelineStep reads the only step of a pipeline of Drone or Woodpecker.
func pipelineStep(t *testing.T, b block) (name string, commands []string) {
	t.Helper()
	var p struct {
		Steps []struct {
			Name     string
			Image    string
			Commands []string
		}
	}
	if err := yaml.Unmarshal([]byte(b.text), &p); err != nil || len(p.Steps) != 1 || p.Steps[0].Image == "" {
		t.Fatalf("%v, steps %+v in\n%s", err, p.Steps, b.text)
	}
	return p.Steps[0].Name, p.Steps[0].Commands
}

// snippetDrone has a Drone runner mount socket and program, and a step print
// the summary.
func snippetDrone(t *testing.T, m *machine) {
	s := newSite(t, m, "drone")
	// The host's part, in folders of the test's.
	root := t.TempDir()
	script := strings.NewReplacer("/run/cimeter", s.sockets, "/run/for-jobs", root+"/run", "/opt/for-jobs", root+"/opt", "/usr/bin/cimeter", agentProgram(t)).
		Replace(shellBlock(t, s.blocks, "In the job's log"))
	// The mounts are undone in any case, the last one first.
	t.Cleanup(func() {
		for _, dir := range []string{root + "/opt", root + "/run/cimeter"} {
			if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
				t.Errorf("umount %s: %v: %s", dir, err, out)
			}
		}
	})
	if out, err := exec.Command("bash", "-eu", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var binds []string
	for v := range strings.SplitSeq(variables(t, pick(t, s.blocks, "of the runner"))["DRONE_RUNNER_VOLUMES"], ",") {
		if strings.Count(v, ":") != 1 {
			t.Fatalf("mount %q: the runner wants SOURCE:TARGET", v) // envconfig's map
		}
		binds = append(binds, rebind(t, v, map[string]string{"/run/for-jobs/cimeter": root + "/run/cimeter", "/opt/for-jobs": root + "/opt"}))
	}
	name, commands := pipelineStep(t, pick(t, s.blocks, ".drone.yml"))
	stage := &droneStage{Number: 61, Slug: "acme/app", Random: "ZLpmnUx4slHVaLx2p", Steps: []step{
		{Name: "compile", Steps: []string{"cpu=0.2"}},
		// Whoever has the mounts cannot write there.
		{Name: name, Script: patient(strings.Join(commands, "\n")) + "\n! touch /run/cimeter/x /opt/cimeter/x 2>/dev/null\n"},
	}, Binds: binds}
	if err := stage.play(t.Context(), s.machine); err != nil {
		t.Fatal(err)
	}
	printed(t, stage.Logs[name], "compile")
	if !strings.Contains(stage.Logs[name], "\x1b]1338;") {
		t.Errorf("no card in the log:\n%q", stage.Logs[name])
	}
	r := s.agent.await(stage.Key())
	s.look(t, &r)
}

// snippetWoodpecker is the same for a Woodpecker agent.
func snippetWoodpecker(t *testing.T, m *machine) {
	s := newSite(t, m, "woodpecker")
	mounts := strings.Split(variables(t, pick(t, s.blocks, "of the agent"))["WOODPECKER_BACKEND_DOCKER_VOLUMES"], ",")
	name, commands := pipelineStep(t, pick(t, s.blocks, ".woodpecker.yaml"))
	w := &woodpeckerWorkflow{Number: 62, Repo: "acme/app", Name: "test", ULID: "01M8NMM1NTF6EZH63G9415QC", Steps: []step{
		{Name: "compile", Steps: []string{"cpu=0.2"}},
		{Name: name, Script: patient(strings.Join(commands, "\n")) + "\n! touch /run/cimeter/x 2>/dev/null\n"},
	}, Binds: s.rebind(t, mounts)}
	if err := w.play(t.Context(), s.machine); err != nil {
		t.Fatal(err)
	}
	printed(t, w.Logs[name], "compile")
	keys := s.keys(t, 1)
	r := s.agent.await(keys[0])
	s.look(t, &r)
}
