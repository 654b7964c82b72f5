package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// yamlBlock reads a block of a page into v.
func yamlBlock(t *testing.T, blocks []block, title string, v any) {
	t.Helper()
	b := pick(t, blocks, title)
	if err := yaml.Unmarshal([]byte(b.text), v); err != nil {
		t.Fatalf("%v in\n%s", err, b.text)
	}
}

// hostLines are the lines that pages of docs/runners have a job on the host run, by
// its runner's program.
func hostLines(t *testing.T) map[string]string {
	t.Helper()
	_, blocks := runnerPage(t, "gitlab-shell")
	var conf struct {
		Agent struct{ Socket struct{ Path string } }
	}
	if yamlBlock(t, blocks, "/etc/cimeter/agent.yaml", &conf); conf.Agent.Socket.Path != socketFolder+"/job.sock" {
		t.Errorf("socket %q: want where cimeter summary looks", conf.Agent.Socket.Path)
	}
	var gitlab struct {
		Default struct {
			AfterScript []string `yaml:"after_script"`
		}
	}
	yamlBlock(t, blocks, ".gitlab-ci.yml", &gitlab)
	if post := decodeRunner(t, pick(t, blocks, "/etc/gitlab-runner/config.toml", "post_build_script")).Runners[0]; post.Executor != "shell" || post.PostBuildScript == "" {
		t.Errorf("%+v: want the shell executor with a post_build_script", post)
	}
	_, blocks = runnerPage(t, "github")
	hook := pick(t, blocks, variables(t, pick(t, blocks, ".env in the runner's folder"))["ACTIONS_RUNNER_HOOK_JOB_COMPLETED"])
	_, blocks = runnerPage(t, "drone")
	var drone struct{ Steps []struct{ Commands []string } }
	yamlBlock(t, blocks, ".drone.yml of an exec pipeline", &drone)
	_, blocks = runnerPage(t, "buildkite")
	var buildkite struct{ Steps []struct{ Commands []string } }
	yamlBlock(t, blocks, ".buildkite/pipeline.yml", &buildkite)
	_, blocks = runnerPage(t, "woodpecker")
	var woodpecker struct{ Steps []struct{ Commands []string } }
	yamlBlock(t, blocks, ".woodpecker.yaml", &woodpecker)
	text, _ := runnerPage(t, "jenkins")
	steps := shStep.FindAllStringSubmatch(text, -1)
	return map[string]string{
		"gitlab-runner":     gitlab.Default.AfterScript[0],
		"Runner.Worker":     hook.text,
		"drone-runner-exec": drone.Steps[0].Commands[0],
		"buildkite-agent":   buildkite.Steps[0].Commands[1],
		"woodpecker-agent":  woodpecker.Steps[0].Commands[0],
		"java":              strings.ReplaceAll(steps[1][1], "${currentBuild.currentResult}", "SUCCESS"),
	}
}

// Jobs without containers print their summaries as the pages of their runners say.
func TestShell_pages(t *testing.T) {
	b := newBare(t)
	socket, config := shellSocket(t)
	a := startAgent(t, b, shellConfig("events")+config)
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(agentProgram(t), filepath.Join(bin, "cimeter")); err != nil {
		t.Fatal(err)
	}
	n := jobNumber(650)
	env := map[string][]string{
		"gitlab-runner": nil, // its script exports them
		"Runner.Worker": {"GITHUB_ACTIONS=true", "GITHUB_SERVER_URL=https://github.example.com", "GITHUB_REPOSITORY=acme/app", fmt.Sprintf("GITHUB_RUN_ID=%d", n),
			"GITHUB_RUN_ATTEMPT=1", "GITHUB_JOB=unit", "GITHUB_ACTION=__run", "RUNNER_NAME=host-1"},
		"drone-runner-exec": {"DRONE_REPO=acme/app", fmt.Sprintf("DRONE_BUILD_NUMBER=%d", n), "DRONE_STAGE_NUMBER=1", "DRONE_STAGE_NAME=default", "DRONE_SYSTEM_HOST=drone.example.com"},
		"buildkite-agent": {"BUILDKITE=true", fmt.Sprintf("BUILDKITE_JOB_ID=0190c0de-0000-4000-8000-%012d", n), "BUILDKITE_BUILD_URL=https://buildkite.com/acme/app/builds/17",
			"BUILDKITE_BUILD_NUMBER=17"},
		"woodpecker-agent": {"CI_SYSTEM_NAME=woodpecker", "CI_SYSTEM_URL=https://ci.example.com", "CI_REPO=acme/app", fmt.Sprintf("CI_PIPELINE_NUMBER=%d", n),
			"CI_WORKFLOW_NAME=build", "CI_WORKFLOW_NUMBER=1", "CI_STEP_NAME=cost", "CI_STEP_TYPE=commands"},
		"java": {"JENKINS_URL=https://ci.example.com/", "JOB_NAME=team/app", fmt.Sprintf("BUILD_NUMBER=%d", n), "STAGE_NAME=Test"},
	}
	for name, line := range hostLines(t) {
		file := filepath.Join(dir, name+".log")
		script := short(5, 5000) + "{ " + strings.TrimSpace(patient(line)) + "\n} >" + file + " 2>&1\n"
		if name == "gitlab-runner" {
			script = gitlabExports(n) + script
		}
		r := startRunner(t, name, []shellBuild{{Shells: []shellRun{{
			Stdin: script, Env: append([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "CIMETER_SOCKET=" + socket}, env[name]...),
		}}}})
		r.run()
		r.end()
		log, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if name == "buildkite-agent" { // an annotation, printed where its program is not
			if !strings.Contains(string(log), "| ") {
				t.Errorf("%s: no annotation in the log of the job:\n%s", name, log)
			}
			continue
		}
		if !strings.Contains(string(log), "cimeter: ") || !strings.Contains(string(log), " CPU (") {
			t.Errorf("%s: no summary in the log of the job:\n%s", name, log)
		}
	}
	if n := a.metric("cimeter_agent_job_questions_total", `result="answered"`); n != 6 {
		t.Errorf("%v answers are counted, want 6", n)
	}
}
