package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
	"go.yaml.in/yaml/v3"

	"github.com/cimeter/cimeter/internal/testdocker"
)

// exec runs a command in a running container, as docker exec does, and returns
// what it said and its exit code.
func (m *machine) exec(ctx context.Context, id string, env []string, command ...string) (string, int, error) {
	made, err := m.Client().ExecCreate(ctx, id, client.ExecCreateOptions{Cmd: command, Env: env, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return "", 0, err
	}
	a, err := m.Client().ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return "", 0, err
	}
	defer a.Close()
	var out bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, &out, a.Reader); err != nil {
		return "", 0, err
	}
	done, err := m.Client().ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
	return out.String(), done.ExitCode, err
}

// steps starts a container that waits, runs scripts in it one by one as steps,
// each by a shell of its own, and returns their logs.
func (s *site) steps(t *testing.T, spec testdocker.Spec, env []string, scripts ...string) (logs []string) {
	t.Helper()
	id, err := s.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Remove(t.Context(), id)
	if err := s.Begin(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for _, script := range scripts {
		log, code, err := s.exec(t.Context(), id, env, "sh", "-e", "-c", patient(script))
		if err != nil || code != 0 {
			t.Fatalf("step %q: exit %d: %v: %s", script, code, err, log)
		}
		logs = append(logs, log)
	}
	return logs
}

// workflow is of a workflow file what its snippet has.
type workflow struct {
	volumes []string
	cost    string // the step's script, as run after a success
}

func parseWorkflow(t *testing.T, b block) (w workflow) {
	t.Helper()
	var doc struct {
		Jobs map[string]struct {
			RunsOn    string `yaml:"runs-on"`
			Container struct {
				Image   string
				Volumes []string
			}
			Steps []struct{ Name, If, Run string }
		}
	}
	if err := yaml.Unmarshal([]byte(b.text), &doc); err != nil {
		t.Fatalf("%v in\n%s", err, b.text)
	}
	job := doc.Jobs["build"]
	last := job.Steps[len(job.Steps)-1]
	if job.RunsOn == "" || last.Name != "cost" || last.If != "always()" {
		t.Fatalf("%+v: want a job that runs somewhere, and a last step cost that always runs", job)
	}
	return workflow{job.Container.Volumes, strings.ReplaceAll(last.Run, "${{ job.status }}", "success")}
}

const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

// stepSummary runs steps of a workflow, and more scripts, and fails the test when
// the last one's summary is not in its log, or not on the page of the job, which is
// a file that the runner gives it.
func (s *site) stepSummary(t *testing.T, spec testdocker.Spec, w workflow, more ...string) {
	t.Helper()
	dir := t.TempDir()
	page := filepath.Join(dir, "step_summary")
	if err := os.WriteFile(page, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	spec.Binds = append(append(spec.Binds, s.binds()...), dir+":/work")
	env := []string{"CI=true", "GITHUB_ACTIONS=true", "GITHUB_STEP_SUMMARY=/work/step_summary"}
	for _, log := range s.steps(t, spec, env, append([]string{"burn cpu=0.3", w.cost}, more...)...)[1:] {
		printed(t, log)
	}
	if b, err := os.ReadFile(page); err != nil || !bytes.Contains(b, []byte("| ")) {
		t.Errorf("the page of the job: %v: %s", err, b)
	}
	r := s.agent.await(s.keys(t, 1)[0])
	s.look(t, &r)
}

// snippetGitHub has a job container of GitHub's runner print the summary, and the
// script of the runner's hook where the agent knows whose process it is.
func snippetGitHub(t *testing.T, m *machine) {
	s := newSite(t, m, "github")
	w := parseWorkflow(t, pick(t, s.blocks, ".github/workflows/build.yaml"))
	hook := pick(t, s.blocks, variables(t, pick(t, s.blocks, ".env in the runner's folder"))["ACTIONS_RUNNER_HOOK_JOB_COMPLETED"])
	network := "github_network_0123456789abcdef0123456789abcdef"
	if err := m.AddNetwork(t.Context(), network, nil); err != nil {
		t.Fatal(err)
	}
	defer m.RemoveNetwork(t.Context(), network)
	s.stepSummary(t, testdocker.Spec{
		Name: "0a1b2c3d4e5f6071829304a5b6c7d8e9_debian12_5e9f1c", Labels: map[string]string{"5e9f1c": ""}, Networks: []string{network},
		Env: []string{"HOME=/github/home", "GITHUB_ACTIONS=true", "CI=true"}, Entrypoint: []string{"tail"}, Cmd: []string{"-f", "/dev/null"},
		Binds: s.rebind(t, w.volumes),
	}, w, hook.text)
}

// snippetAct is the same for a runner that descends from act: Gitea's, Forgejo's.
// It lets only those folders into a container that its configuration names twice.
func snippetAct(t *testing.T, m *machine, page, config, file string, spec testdocker.Spec) {
	s := newSite(t, m, page)
	var c struct {
		Container struct {
			Options      string
			ValidVolumes []string `yaml:"valid_volumes"`
		}
	}
	b := pick(t, s.blocks, config)
	if err := yaml.Unmarshal([]byte(b.text), &c); err != nil {
		t.Fatalf("%v in\n%s", err, b.text)
	}
	options := strings.Fields(c.Container.Options)
	for len(options) >= 2 && options[0] == "-v" {
		host, _, _ := strings.Cut(options[1], ":")
		valid := false
		for _, pattern := range c.Container.ValidVolumes {
			ok, err := filepath.Match(pattern, host)
			valid = valid || err == nil && ok
		}
		if !valid {
			t.Errorf("valid_volumes %q do not let %s in", c.Container.ValidVolumes, host)
		}
		spec.Binds = append(spec.Binds, rebind(t, options[1], s.hosts))
		options = options[2:]
	}
	if len(options) > 0 {
		t.Errorf("options %q: want -v MOUNT only", options)
	}
	s.stepSummary(t, spec, parseWorkflow(t, pick(t, s.blocks, file)))
}

func snippetGitea(t *testing.T, m *machine) {
	snippetAct(t, m, "gitea", "/etc/act_runner/config.yaml", ".gitea/workflows/build.yaml", testdocker.Spec{
		Name: "GITEA-ACTIONS-TASK-771-WORKFLOW-build-JOB-build-" + hash, Entrypoint: []string{"/bin/sleep", "10800"},
		Env: []string{"RUNNER_TOOL_CACHE=/opt/hostedtoolcache", "RUNNER_OS=Linux"},
	})
}

func snippetForgejo(t *testing.T, m *machine) {
	snippetAct(t, m, "forgejo", "/etc/forgejo-runner/config.yaml", ".forgejo/workflows/build.yaml", testdocker.Spec{
		Name: "FORGEJO-ACTIONS-TASK-772_WORKFLOW-" + hash + "_JOB-build", Entrypoint: []string{"tail", "-f", "/dev/null"},
		Env: []string{"RUNNER_TOOL_CACHE=/opt/hostedtoolcache", "RUNNER_OS=Linux"},
	})
}

// snippetBuildkite plays Buildkite's docker plugin: one container, with labels,
// for the commands of a step.
func snippetBuildkite(t *testing.T, m *machine) {
	s := newSite(t, m, "buildkite")
	b := pick(t, s.blocks, ".buildkite/pipeline.yml")
	var doc struct {
		Steps []struct {
			Label    string
			Commands []string
			Plugins  []map[string]struct {
				Image   string
				Volumes []string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(b.text), &doc); err != nil || len(doc.Steps) != 1 || len(doc.Steps[0].Plugins) != 1 {
		t.Fatalf("%v, %+v in\n%s", err, doc, b.text)
	}
	const p, job = "com.buildkite.", "0190046e-e199-453b-a302-a21a4d649d31"
	spec := testdocker.Spec{
		Labels: map[string]string{
			p + "job-id": job, p + "pipeline_name": "App", p + "pipeline_slug": "app", p + "build_number": "27", p + "job_id": job,
			p + "job_label": doc.Steps[0].Label, p + "step_key": "", p + "agent_name": "agent-1", p + "agent_id": "0190046e-e199-453b-a302-a21a4d649d30",
		},
		Entrypoint: []string{"/bin/sh", "-e", "-c"}, Binds: m.binds(),
	}
	for name, plugin := range doc.Steps[0].Plugins[0] {
		if !strings.HasPrefix(name, "docker#v") || plugin.Image == "" {
			t.Errorf("plugin %s, image %q", name, plugin.Image)
		}
		spec.Binds = append(spec.Binds, s.rebind(t, plugin.Volumes)...)
	}
	commands := strings.Join(doc.Steps[0].Commands, "\n")
	if !strings.Contains(commands, "make test\n") {
		t.Fatalf("commands %q: want make test and the summary", commands)
	}
	spec.Cmd = []string{patient(strings.Replace(commands, "make test", "burn cpu=0.3", 1))}
	exit, err := m.Run(t.Context(), spec)
	if err != nil || exit.Code != 0 {
		t.Fatalf("exit %d: %v: %s", exit.Code, err, exit.Output)
	}
	// There is no buildkite-agent in the container: the annotation is printed.
	if !strings.Contains(exit.Output, "| ") || !strings.Contains(exit.Output, "command") {
		t.Errorf("no annotation in the log:\n%s", exit.Output)
	}
	r := s.agent.await(s.keys(t, 1)[0])
	if r.CI != "buildkite" || r.Project != "app" || r.Name != "test" || r.Pipeline != "27" || r.Number != job {
		t.Errorf("build %+v: want what the labels say", r.Build)
	}
	s.look(t, &r)
}

var (
	inside = regexp.MustCompile(`\.inside\('((?:-v \S+ ?)+)'\)`)
	shStep = regexp.MustCompile(`sh ['"](.*)['"]\n`)
)

// snippetJenkins plays Jenkins' Docker Pipeline plugin: a container that runs
// cat, and gets every step by docker exec.
func snippetJenkins(t *testing.T, m *machine) {
	s := newSite(t, m, "jenkins")
	var text string
	for _, b := range s.blocks {
		if b.kind == "groovy" {
			text = b.text
		}
	}
	mounts, steps := inside.FindStringSubmatch(text), shStep.FindAllStringSubmatch(text, -1)
	if mounts == nil || len(steps) != 2 || steps[0][1] != "make test" {
		t.Fatalf("no container with mounts, or not make test and the summary, in\n%s", text)
	}
	var volumes []string
	for v := range strings.SplitSeq(strings.TrimPrefix(strings.TrimSpace(mounts[1]), "-v "), " -v ") {
		volumes = append(volumes, v)
	}
	const url = "https://jenkins.example.com/"
	env := []string{"JENKINS_URL=" + url, "JOB_NAME=group/app", "BUILD_NUMBER=31", "BUILD_URL=" + url + "job/group/job/app/31/"}
	spec := testdocker.Spec{Env: env, Stdin: true, Cmd: []string{"cat"}, Binds: append(m.binds(), s.rebind(t, volumes)...)} // waits for its input, as with a terminal
	cost := strings.ReplaceAll(steps[1][1], "${currentBuild.currentResult}", "SUCCESS")
	printed(t, s.steps(t, spec, env, "burn cpu=0.3", cost)[1])
	r := s.agent.await(s.keys(t, 1)[0])
	if r.CI != "jenkins" || r.Server != "jenkins.example.com" || r.Project != "group/app" || r.Number != "31" {
		t.Errorf("build %+v: want what the variables say", r.Build)
	}
	s.look(t, &r)
}

// keys waits until there are n records.
func (s *site) keys(t *testing.T, n int) (keys []string) {
	t.Helper()
	s.agent.eventually("there are records", func() (err error) {
		if keys, err = s.agent.keys(); err == nil && len(keys) < n {
			err = fmt.Errorf("%d records: want %d", len(keys), n)
		}
		return err
	})
	return keys
}
