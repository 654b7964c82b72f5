package gitlab_test

import (
	"strings"
	"testing"

	"github.com/cimeter/cimeter/internal/ci/gitlab"
)

func cmdline(args ...string) []byte { return []byte(strings.Join(args, "\x00") + "\x00") }

func TestStageOfCommand(t *testing.T) {
	tests := []struct {
		in   []byte
		want string
	}{
		{cmdline("git", "fetch", "origin"), "get_sources"},
		{cmdline("/usr/libexec/git-core/git-remote-https", "origin", "https://x:y@h/g/a.git"), "get_sources"},
		{cmdline("/usr/bin/gitlab-runner-helper", "cache-extractor", "--file", "../../cache/k/cache.zip", "--timeout", "10"), "restore_cache"},
		{cmdline("gitlab-runner-helper", "cache-archiver", "--file", "x", "--path", "big"), "archive_cache"},
		{cmdline("gitlab-runner-helper", "artifacts-downloader", "--url", "http://h", "--token", "planted", "--id", "1"), "download_artifacts"},
		{cmdline("gitlab-runner-helper", "artifacts-uploader", "--url", "http://h", "--token", "planted", "--id", "1"), "upload_artifacts"},
		{cmdline("/usr/bin/gitlab-runner", "--log-level", "debug", "artifacts-uploader", "--id", "1"), "upload_artifacts"},
		{cmdline("gitlab-runner-helper", "cache-init", "/cache"), "prepare_executor"},
		{cmdline("gitlab-runner-helper", "health-check"), "prepare_executor"},
		{cmdline("sh", "/scripts-12-345/step_script"), "step_script"},
		{cmdline("sh", "-c", "/base/scripts-12-345/upload_artifacts_on_failure"), "upload_artifacts_on_failure"},
		{[]byte("/scripts-12-345/get_sources"), "get_sources"},

		{nil, ""},
		{[]byte{0}, ""},
		{cmdline("gitlab-runner-helper"), ""},
		{cmdline("gitlab-runner", "run", "--config", "artifacts-uploader"), ""},
		{cmdline("gitlab-runner-helper", "read-logs", "--path", "/logs-1-2/output.log", "cache-archiver"), ""},
		{cmdline("gitlab-runner-build"), ""},
		{cmdline("sh", "git", "cache-extractor"), ""},
		{cmdline("mygit"), ""},
		{cmdline("sh", "/scripts-12-345/rm_rf"), ""},
		{cmdline("sh", "/scripts-12/step_script"), ""},
		{cmdline("sh", "/scripts-a-b/step_script"), ""},
		{cmdline("sh", "/scripts-12-345/step_script/more"), ""},
		{cmdline("gitlab-runner-helper", strings.Repeat("-x\x00", 100), "cache-extractor"), ""},
	}
	for _, tt := range tests {
		got, ok := gitlab.StageOfCommand(tt.in)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%q: got %q, %v, want %q", tt.in, got, ok, tt.want)
		}
	}
}

// It runs for every process of a helper container at every look.
func TestStageOfCommandAllocates(t *testing.T) {
	lines := [][]byte{
		cmdline("gitlab-runner-helper", "artifacts-uploader", "--id", "1"), cmdline("git", "fetch"), cmdline("sh", "-c", "make"),
	}
	if n := testing.AllocsPerRun(100, func() {
		for _, l := range lines {
			gitlab.StageOfCommand(l)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestOfOutcome(t *testing.T) {
	for _, tt := range []struct {
		stage  string
		failed bool
		want   string
	}{
		{"archive_cache", false, "archive_cache"},
		{"archive_cache", true, "archive_cache_on_failure"},
		{"upload_artifacts", false, "upload_artifacts_on_success"},
		{"upload_artifacts", true, "upload_artifacts_on_failure"},
		{"get_sources", true, "get_sources"},
	} {
		if got := gitlab.OfOutcome(tt.stage, tt.failed); got != tt.want {
			t.Errorf("OfOutcome(%q, %v) = %q, want %q", tt.stage, tt.failed, got, tt.want)
		}
	}
}

func FuzzStageOfCommand(f *testing.F) {
	f.Add(cmdline("gitlab-runner-helper", "artifacts-uploader", "--token", "x"))
	f.Add(cmdline("sh", "/scripts-12-345/step_script"))
	f.Add([]byte("\x00\x00/scripts--/\x00/"))
	known := map[string]bool{"prepare_executor": true, "prepare_script": true, "clear_worktree": true, "get_sources": true, "restore_cache": true,
		"download_artifacts": true, "step_script": true, "step_release": true, "after_script": true, "archive_cache": true, "archive_cache_on_failure": true,
		"upload_artifacts": true, "upload_artifacts_on_success": true, "upload_artifacts_on_failure": true, "cleanup_file_variables": true}
	f.Fuzz(func(t *testing.T, b []byte) {
		if stage, ok := gitlab.StageOfCommand(b); ok != known[stage] {
			t.Errorf("%q gives %q, %v", b, stage, ok)
		}
	})
}
