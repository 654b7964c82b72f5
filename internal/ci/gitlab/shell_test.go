package gitlab_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
)

func shellEnv(prefix string) map[string]string {
	return map[string]string{
		prefix + "GITLAB_CI": "true", prefix + "CI_JOB_ID": "4711", prefix + "CI_JOB_NAME": "unit", prefix + "CI_JOB_STAGE": "test",
		prefix + "CI_JOB_URL": "https://user:pw@gitlab.example.com/group/app/-/jobs/4711", prefix + "CI_PROJECT_PATH": "group/app",
		prefix + "CI_PIPELINE_ID": "991", prefix + "CI_COMMIT_REF_NAME": "main", prefix + "CI_RUNNER_SHORT_TOKEN": "Zx8k2mQpL",
	}
}

func TestOfProcess(t *testing.T) {
	want := cimeter.Identity{
		Build: cimeter.Build{
			Key: "gitlab/gitlab.example.com/4711", CI: "gitlab", Server: "gitlab.example.com", Project: "group/app", Number: "4711",
			Name: "unit", Pipeline: "991", PipelineStage: "test", Ref: "main", URL: "https://gitlab.example.com/group/app/-/jobs/4711",
			Runner: cimeter.Runner{ShortToken: "Zx8k2mQpL"},
		},
		Role: cimeter.RoleBuild,
	}
	for _, prefix := range []string{"", "CUSTOM_ENV_"} {
		id, ok := gitlab.OfProcess(shellEnv(prefix))
		if !ok || id != want {
			t.Errorf("prefix %q: %+v, %v, want %+v", prefix, id, ok, want)
		}
	}
	// A custom executor's driver may itself run where another job's variables are.
	both := shellEnv("CUSTOM_ENV_")
	for name := range shellEnv("") {
		both[name] = "12"
	}
	both["GITLAB_CI"] = "true"
	if id, ok := gitlab.OfProcess(both); !ok || id != want {
		t.Errorf("%+v, %v, want %+v", id, ok, want)
	}
	env := shellEnv("")
	env["CI_JOB_ID"] = "12"
	if id, _ := gitlab.OfProcess(env); !strings.HasPrefix(id.Doubt, "job id") {
		t.Errorf("doubt %q where the job's address says another id", id.Doubt)
	}
	for name, change := range map[string]func(map[string]string){
		"no GITLAB_CI":    func(e map[string]string) { delete(e, "GITLAB_CI") },
		"no job":          func(e map[string]string) { delete(e, "CI_JOB_ID") },
		"a job of a word": func(e map[string]string) { e["CI_JOB_ID"] = "4711x" },
		"another's":       func(e map[string]string) { maps.DeleteFunc(e, func(string, string) bool { return true }) },
	} {
		env := shellEnv("")
		change(env)
		if id, ok := gitlab.OfProcess(env); ok {
			t.Errorf("%s: taken for %+v", name, id)
		}
	}
	if slices.ContainsFunc(gitlab.ShellVariables(), func(v string) bool { return strings.Contains(v, "JOB_TOKEN") || strings.Contains(v, "PASSW") }) {
		t.Error("a secret is among the variables that are read")
	}
}

func TestDriverStage(t *testing.T) {
	for args, want := range map[string]string{
		"/opt/driver prepare":                                     "prepare_executor",
		"/opt/driver config":                                      "prepare_executor",
		"/bin/bash /opt/driver cleanup":                           "cleanup_file_variables",
		"/opt/driver /tmp/custom-executor12/script get_sources":   "get_sources",
		"/opt/driver run /tmp/custom-executor12/script step_test": "step_test",
		"/opt/driver /tmp/script build_script":                    "step_script",
		"/opt/driver --token glcbt-geheim":                        "",
		"/opt/driver get_sources":                                 "",
		"get_sources":                                             "",
		"":                                                        "",
	} {
		line := strings.ReplaceAll(args, " ", "\x00") + "\x00"
		if got, ok := gitlab.DriverStage([]byte(line)); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v, want %q", args, got, ok, want)
		}
	}
}

func FuzzDriverStage(f *testing.F) {
	f.Add([]byte("a\x00b\x00get_sources\x00"))
	f.Add([]byte("\x00\x00step_\x00"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if stage, ok := gitlab.DriverStage(line); ok != (stage != "") || len(stage) > 80 {
			t.Errorf("%q, %v", stage, ok)
		}
	})
}

func TestShellStages(t *testing.T) {
	type step struct {
		command, list string
		exit          int
	}
	tests := []struct {
		name   string
		missed bool
		steps  []step
		want   string
	}{
		{"the usual", false, []step{{}, {command: "get_sources"}, {}, {}}, "prepare_script/order get_sources/order step_script/order cleanup_file_variables/order"},
		{"with after_script", false, []step{{}, {}, {}, {}, {}}, "prepare_script/order get_sources/order step_script/order after_script/order cleanup_file_variables/order"},
		{"with cache and artifacts", false, []step{{}, {}, {command: "restore_cache"}, {command: "download_artifacts"}, {}, {command: "archive_cache"}, {command: "upload_artifacts"}, {}},
			"prepare_script/order get_sources/order restore_cache/command download_artifacts/command step_script/order archive_cache/command upload_artifacts_on_success/command cleanup_file_variables/order"},
		{"a failing script", false, []step{{}, {}, {exit: 1}, {command: "archive_cache"}, {command: "upload_artifacts"}, {}},
			"prepare_script/order get_sources/order step_script/order archive_cache_on_failure/command upload_artifacts_on_failure/command cleanup_file_variables/order"},
		{"git in the script", false, []step{{}, {}, {command: "get_sources"}, {}}, "prepare_script/order get_sources/order step_script/order cleanup_file_variables/order"},
		{"the job list wins", false, []step{{}, {list: "get_sources"}, {list: "step_script"}, {list: "after_script"}},
			"prepare_script/order get_sources/job_list step_script/job_list after_script/job_list"},
		{"its beginning was missed", true, []step{{command: "get_sources"}, {}, {}}, "get_sources/order step_script/order cleanup_file_variables/order"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s gitlab.ShellStages
			if tt.missed {
				s.Missed()
			}
			for _, st := range tt.steps {
				n := s.Started()
				if st.command != "" {
					s.Command(n, st.command)
				}
				if st.list != "" {
					s.JobList(n, st.list)
				}
				s.Ended(n, cimeter.Some(st.exit))
			}
			s.Finish()
			var got []string
			for i := range tt.steps {
				st := s.Stage(i)
				got = append(got, fmt.Sprintf("%s/%s", st.Name, st.Source))
				if !st.Final || st.Attempt != 1 {
					t.Errorf("shell %d: %+v, want the last word, and the first attempt", i, st)
				}
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, " "), tt.want)
			}
		})
	}
}

func TestShellStages_bounded(t *testing.T) {
	var s gitlab.ShellStages
	last := 0
	for range 1000 {
		last = s.Started()
	}
	if st := s.Stage(last); last != -1 || st.Name != gitlab.StageUnknown {
		t.Errorf("shell %d of a thousand: %+v", last, st)
	}
	s.Command(-1, "get_sources")
	s.JobList(5000, "get_sources")
	s.Ended(5000, cimeter.Opt[int]{})
}

// A job's variables tell the project's default branch, whatever runs it.
func TestDefaultBranch(t *testing.T) {
	env := shellEnv("")
	env["CI_DEFAULT_BRANCH"] = "trunk"
	if id, ok := gitlab.OfProcess(env); !ok || id.Build.DefaultBranch != "trunk" {
		t.Errorf("of a process: %+v, %v", id.Build, ok)
	}
	if id, ok := gitlab.Identify(container("$CI_DEFAULT_BRANCH", "trunk")); !ok || id.Build.DefaultBranch != "trunk" {
		t.Errorf("of a container: %+v, %v", id.Build, ok)
	}
}
