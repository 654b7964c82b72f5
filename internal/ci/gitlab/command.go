package gitlab

import (
	"bytes"

	"github.com/cimeter/cimeter/internal/ci"
)

// maxArgs bounds how many arguments of a command line are looked at: options
// of the program itself may stand before its sub-command.
const maxArgs = 16

// subcommands of gitlab-runner-helper (and of gitlab-runner, where it is its own
// helper), with the stage that runs each (shells/abstract.go). "" tells no stage.
var subcommands = [...]struct{ name, stage string }{
	{"cache-extractor", StageRestoreCache},
	{"cache-archiver", StageArchive},
	{"artifacts-downloader", StageDownload},
	{"artifacts-uploader", StageUpload},
	{"cache-init", StagePrepareExecutor},
	{"health-check", StagePrepareExecutor},
	{"read-logs", ""},
	{"proxy-exec", ""},
	{"steps", ""},
	{"run", ""},
}

// StageOfCommand tells the stage of a job that a process belongs to by its
// command line: the arguments, each ended by a zero byte, as in /proc/<pid>/cmdline.
// ok is false for a command that tells none.
//
// A cache-archiver says archive_cache and an artifacts-uploader
// upload_artifacts whatever became of the script: [Stages] tells which of the two
// stages it is, and [OfOutcome] for callers that know.
//
// The command line is only compared. It may hold a token and nothing of it is kept:
// stage is a constant of this package.
func StageOfCommand(cmdline []byte) (stage string, ok bool) {
	program, rest, _ := bytes.Cut(cmdline, []byte{0})
	program = program[bytes.LastIndexByte(program, '/')+1:]
	switch string(program) {
	case "git", "git-lfs", "git-remote-http", "git-remote-https":
		return StageGetSources, true
	case "gitlab-runner-helper", "gitlab-runner":
		return subcommand(rest)
	}
	return scriptPath(cmdline)
}

func subcommand(args []byte) (stage string, ok bool) {
	for range maxArgs {
		arg, rest, more := bytes.Cut(args, []byte{0})
		for _, c := range subcommands {
			if string(arg) == c.name {
				return c.stage, c.stage != ""
			}
		}
		if !more {
			return "", false
		}
		args = rest
	}
	return "", false
}

// StageInside tells the stage that a container is in now, as [StageOfCommand]
// does, by the path of a stage's script in the command line: where one container
// goes through several stages.
func StageInside(cmdline []byte) (stage string, ok bool) { return scriptPath(cmdline) }

// scriptPath is scriptOf without the job.
func scriptPath(args []byte) (stage string, ok bool) {
	stage, _, ok = scriptOf(args)
	return stage, ok
}

// scriptOf finds /scripts-<project id>-<job id>/<stage> at the end of an
// argument: how the Kubernetes executor names the scripts of its stages.
func scriptOf(args []byte) (stage, job string, ok bool) {
	for range maxArgs {
		arg, rest, more := bytes.Cut(args, []byte{0})
		if i := bytes.LastIndex(arg, []byte("/scripts-")); i >= 0 {
			ids, name, _ := bytes.Cut(arg[i+len("/scripts-"):], []byte{'/'})
			project, job, _ := bytes.Cut(ids, []byte{'-'})
			if ci.IsDecimal(string(project)) && ci.IsDecimal(string(job)) {
				if stage, ok := knownScript(name); ok {
					return stage, string(job), true
				}
			}
		}
		if !more {
			return "", "", false
		}
		args = rest
	}
	return "", "", false
}

// knownScript returns the name of a stage that has a script, as a constant.
func knownScript(name []byte) (stage string, ok bool) {
	for _, known := range stepNames {
		if string(name) == known {
			return known, true
		}
	}
	switch string(name) {
	case scriptOld:
		return scriptOld, true
	case scriptRun:
		return scriptRun, true
	}
	return "", false
}

// The names that the script of a job has besides StageScript.
const (
	scriptOld = "build_script" // before runners had steps
	scriptRun = "step_run"     // of a job with run:
)

// OfOutcome returns the stage of a command, as [StageOfCommand] tells it, for a
// job whose script failed or did not.
func OfOutcome(stage string, failed bool) string {
	switch {
	case stage == StageArchive && failed:
		return StageArchiveFailure
	case stage == StageUpload && failed:
		return StageUploadFailure
	case stage == StageUpload:
		return StageUploadSuccess
	}
	return stage
}
