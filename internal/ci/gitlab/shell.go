package gitlab

import (
	"bytes"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// ShellContainer stands for the name of a container in builds that have none:
// [ShellStages] and not [Stages] tells the stages of those.
const ShellContainer = "shell"

// customPrefix stands before each variable of the job in the environment of a
// custom executor's driver (executors/custom/api/const.go).
const customPrefix = "CUSTOM_ENV_"

// shellVariables are read of the processes of a job without containers.
var shellVariables = [...]string{
	"GITLAB_CI", "CI_JOB_ID", "CI_JOB_URL", "CI_JOB_NAME", "CI_JOB_STAGE", "CI_PROJECT_PATH", "CI_PIPELINE_ID", "CI_PIPELINE_SOURCE",
	"CI_COMMIT_REF_NAME", "CI_DEFAULT_BRANCH", "CI_COMMIT_SHA", "CI_SERVER_URL", "CI_RUNNER_SHORT_TOKEN", "CI_RUNNER_DESCRIPTION",
}

// ShellVariables returns the environment variables worth reading of a job's
// processes, and of those of a custom executor's driver. None holds a secret.
func ShellVariables() []string {
	var all []string
	for _, v := range shellVariables {
		all = append(all, v, customPrefix+v)
	}
	return all
}

// OfProcess tells by the variables of a process which job it belongs to: one of
// the shell executor, or the driver of a custom one. The shell that runs a stage
// has none of them (its script exports them), its children do. The stage is told by
// [DriverStage] or [ShellStages].
func OfProcess(env map[string]string) (id cimeter.Identity, ok bool) {
	v := func(name string) string {
		if s, custom := env[customPrefix+name]; custom {
			return s
		}
		return env[name]
	}
	job := v("CI_JOB_ID")
	if v("GITLAB_CI") != "true" || !ci.IsDecimal(job) {
		return id, false
	}
	page, paged := ParseJobURL(v("CI_JOB_URL"))
	server := page.Server
	if server == "" {
		server = ci.ServerOf(v("CI_SERVER_URL"))
	}
	id.Build = cimeter.Build{
		Key: key(server, v("CI_RUNNER_SHORT_TOKEN"), job), CI: CI, Server: server, Project: project(page.Project, v("CI_PROJECT_PATH")), Number: job,
		Name: v("CI_JOB_NAME"), Pipeline: v("CI_PIPELINE_ID"), PipelineStage: v("CI_JOB_STAGE"),
		Ref: v("CI_COMMIT_REF_NAME"), DefaultBranch: v("CI_DEFAULT_BRANCH"), SHA: v("CI_COMMIT_SHA"), Event: v("CI_PIPELINE_SOURCE"),
		Runner: cimeter.Runner{ShortToken: v("CI_RUNNER_SHORT_TOKEN"), Name: v("CI_RUNNER_DESCRIPTION")},
	}
	if paged {
		id.Build.URL = ci.PageOf(v("CI_JOB_URL"))
	}
	id.Role = cimeter.RoleBuild
	id.Doubt = ci.Disagree("job id", "variable CI_JOB_ID", job, "variable CI_JOB_URL", page.Job)
	return id, true
}

// DriverStage tells the stage of a job by the command line of a custom
// executor's driver: <program>... <script> <stage> in a stage, and where the
// operator gives them as arguments (config_args, prepare_args, cleanup_args) the
// words config, prepare or cleanup. The command line is only compared.
func DriverStage(cmdline []byte) (stage string, ok bool) {
	args := bytes.Split(bytes.TrimRight(cmdline, "\x00"), []byte{0})
	if len(args) < 2 {
		return "", false
	}
	last := string(args[len(args)-1])
	switch last {
	case "config", "prepare":
		return StagePrepareExecutor, true
	case "cleanup":
		return StageCleanup, true
	case "build_script":
		return StageScript, true // its name before GitLab Runner 13
	}
	if len(args) < 3 {
		return "", false
	}
	for _, known := range stepNames {
		if last == known {
			return known, true
		}
	}
	if name, ok := strings.CutPrefix(last, "step_"); ok && name != "" && len(name) <= 64 && isWord(name) {
		return "step_" + strings.Clone(name), true
	}
	return "", false
}

func isWord(s string) bool {
	for i := range len(s) {
		if b := s[i]; (b < 'a' || b > 'z') && (b < '0' || b > '9') && b != '_' && b != '-' {
			return false
		}
	}
	return true
}

// ShellStages names the stages of a job of the shell executor: each is a shell of
// its own, a child of the runner, and nothing about the shell tells which. It goes by
// the helper's sub-commands and git among its children, by the runner's job list,
// and by the order. The zero value is ready. Not safe for use from several goroutines.
type ShellStages struct {
	shells   []shell
	missed   bool
	finished bool
}

// shell is one shell of the job.
type shell struct {
	told   string // by a sub-command or the job list
	source cimeter.Boundary
	git    bool
	ended  bool
	failed bool
}

// Missed says that the job began before its first shell that is told.
func (s *ShellStages) Missed() { s.missed = true }

// Started says that a shell began, and returns its number.
func (s *ShellStages) Started() int {
	if len(s.shells) >= maxSegments {
		return -1
	}
	s.shells = append(s.shells, shell{})
	return len(s.shells) - 1
}

// Command says that a process of the shell runs a command of a stage, as
// [StageOfCommand] tells it.
func (s *ShellStages) Command(n int, stage string) {
	switch {
	case n < 0 || n >= len(s.shells):
	case stage == StageGetSources:
		s.shells[n].git = true
	case s.shells[n].told == "":
		s.shells[n].told, s.shells[n].source = stage, cimeter.BoundaryCommand
	}
}

// JobList says that the runner's list showed stage while the shell ran.
func (s *ShellStages) JobList(n int, stage string) {
	if n >= 0 && n < len(s.shells) && s.shells[n].source != cimeter.BoundaryJobList {
		s.shells[n].told, s.shells[n].source = stage, cimeter.BoundaryJobList
	}
}

// Ended says that the shell ended.
func (s *ShellStages) Ended(n int, exit cimeter.Opt[int]) {
	if n >= 0 && n < len(s.shells) {
		s.shells[n].ended, s.shells[n].failed = true, exit.Known && exit.Value != 0
	}
}

// Finish says that the job is over.
func (s *ShellStages) Finish() { s.finished = true }

// Stage returns what is known of a shell's stage.
func (s *ShellStages) Stage(n int) SegmentStage {
	if n < 0 || n >= len(s.shells) {
		return SegmentStage{Name: StageUnknown, Attempt: 1, Source: cimeter.BoundaryOrder, Final: true}
	}
	failed := false
	names := make([]SegmentStage, n+1)
	script := -1
	for i := range names {
		names[i] = s.name(i, script)
		if names[i].Name == StageScript || strings.HasPrefix(names[i].Name, "step_") {
			script = i
			failed = failed || s.shells[i].failed
		}
	}
	st := names[n]
	st.Name = OfOutcome(st.Name, failed)
	st.Attempt = 1
	for _, earlier := range names[:n] {
		if OfOutcome(earlier.Name, failed) == st.Name {
			st.Attempt++
		}
	}
	return st
}

// name tells the stage of shell i, whose job's script was shell script (-1: not yet).
func (s *ShellStages) name(i, script int) SegmentStage {
	h := &s.shells[i]
	if h.told != "" {
		return SegmentStage{Name: h.told, Source: h.source, Final: true}
	}
	last := i == len(s.shells)-1
	order := SegmentStage{Source: cimeter.BoundaryOrder, Final: s.finished || !last}
	switch {
	case !s.missed && i == 0:
		order.Name, order.Final = StagePrepareScript, true
	case !s.missed && i == 1:
		order.Name, order.Final = StageGetSources, true
	case s.missed && i == 0 && h.git:
		order.Name = StageGetSources
	case script < 0:
		order.Name = StageScript
	// After the script only after_script and the last stage have no command of
	// their own; the last one is there since GitLab Runner 13.8.
	case last:
		order.Name = StageCleanup
	default:
		order.Name = StageAfterScript
	}
	return order
}
