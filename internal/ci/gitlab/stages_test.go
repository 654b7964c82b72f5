package gitlab

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
)

// play runs a job through Stages. Each line is "h" or "b" (a helper or build
// container starts and, unless it ends in "...", exits), then in any order exit=N, cmd=STAGE,
// list=STAGE (a reading within), stale=STAGE (a reading that straddles the segment's start).
// A container's name stands after @.
func play(s *Stages, script string) (segs []int) {
	for line := range strings.Lines(script) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		role, name := cimeter.RoleHelper, "predefined"
		if f[0] == "b" {
			role, name = cimeter.RoleBuild, "build"
		}
		exit, runs := cimeter.Some(0), false
		before := s.Running()
		for _, w := range f[1:] {
			if n, ok := strings.CutPrefix(w, "@"); ok {
				name = n
			}
		}
		seg := s.Started(role, name)
		segs = append(segs, seg)
		for _, w := range f[1:] {
			key, value, _ := strings.Cut(w, "=")
			switch key {
			case "exit":
				if value == "?" {
					exit = cimeter.Opt[int]{}
				} else {
					fmt.Sscan(value, &exit.Value)
				}
			case "cmd":
				s.Command(seg, value)
			case "list":
				s.JobList(value, s.Running(), s.Running())
			case "stale":
				s.JobList(value, before, s.Running())
			case "...":
				runs = true
			}
		}
		if !runs {
			s.Ended(seg, exit)
		}
	}
	return segs
}

func told(s *Stages, segs []int) string {
	var b strings.Builder
	for i, seg := range segs {
		st := s.Stage(seg)
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(st.Name)
		if st.Attempt != 1 {
			fmt.Fprintf(&b, "#%d", st.Attempt)
		}
		switch st.Source {
		case cimeter.BoundaryJobList:
			b.WriteString(" list")
		case cimeter.BoundaryCommand:
			b.WriteString(" command")
		}
	}
	return b.String()
}

func TestStages(t *testing.T) {
	tests := []struct {
		name, script, want string
		missed             bool
	}{
		{
			name:   "everything by order",
			script: "h\nh\nh\nh\nb\nb\nh\nh\nh",
			want:   "prepare_script\nget_sources\nrestore_cache\ndownload_artifacts\nstep_script\nafter_script\narchive_cache\nupload_artifacts_on_success\ncleanup_file_variables",
		},
		{
			name:   "no cache, no artifacts",
			script: "h\nh\nb",
			want:   "prepare_script\nget_sources\nstep_script",
		},
		{
			name:   "third helper ran artifacts-downloader",
			script: "h\nh cmd=get_sources\nh cmd=download_artifacts\nb\nh",
			want:   "prepare_script\nget_sources command\ndownload_artifacts command\nstep_script\nupload_artifacts_on_success",
		},
		{
			name:   "only the third is known by its command: it aligns the rest",
			script: "h\nh\nh cmd=restore_cache\nh\nb\nh\nh",
			want:   "prepare_script\nget_sources\nrestore_cache command\ndownload_artifacts\nstep_script\narchive_cache\nupload_artifacts_on_success",
		},
		{
			name:   "script failed: artifacts of the failure, no cache",
			script: "h\nh\nh\nb exit=3\nb\nh",
			want:   "prepare_script\nget_sources\nrestore_cache\nstep_script\nafter_script\nupload_artifacts_on_failure",
		},
		{
			name:   "script failed: cache is kept too",
			script: "h\nh\nh\nb exit=1\nh\nh",
			want:   "prepare_script\nget_sources\nrestore_cache\nstep_script\narchive_cache_on_failure\nupload_artifacts_on_failure",
		},
		{
			name:   "an uploader's command with a failed script",
			script: "h\nh\nb exit=1\nh cmd=upload_artifacts",
			want:   "prepare_script\nget_sources\nstep_script\nupload_artifacts_on_failure command",
		},
		{
			name:   "an archiver's command with a failed script",
			script: "h\nh\nb exit=1\nh cmd=archive_cache",
			want:   "prepare_script\nget_sources\nstep_script\narchive_cache_on_failure command",
		},
		{
			name:   "job list says the outcome, the exit code is not known",
			script: "h\nh\nb exit=?\nh list=upload_artifacts_on_failure",
			want:   "prepare_script\nget_sources\nstep_script\nupload_artifacts_on_failure list",
		},
		{
			name:   "sources fetched again after clear_worktree",
			script: "h\nh exit=1\nh\nh\nb",
			want:   "prepare_script\nget_sources\nclear_worktree\nget_sources#2\nstep_script",
		},
		{
			name:   "sources fetched again, shown by git",
			script: "h\nh exit=1 cmd=get_sources\nh cmd=get_sources\nb",
			want:   "prepare_script\nget_sources command\nget_sources#2 command\nstep_script",
		},
		{
			name:   "three attempts by the job list",
			script: "h list=prepare_script\nh exit=1 list=get_sources\nh list=clear_worktree\nh exit=1 list=get_sources\nh list=clear_worktree\nh list=get_sources\nb list=step_script",
			want:   "prepare_script list\nget_sources list\nclear_worktree list\nget_sources#2 list\nclear_worktree#2 list\nget_sources#3 list\nstep_script list",
		},
		{
			name:   "sources not to be had: no script, artifacts of the failure",
			script: "h\nh exit=1\nh cmd=upload_artifacts",
			want:   "prepare_script\nget_sources\nupload_artifacts_on_failure command",
		},
		{
			name:   "restored twice",
			script: "h\nh\nh exit=1 cmd=restore_cache\nh cmd=restore_cache\nb",
			want:   "prepare_script\nget_sources\nrestore_cache command\nrestore_cache#2 command\nstep_script",
		},
		{
			name:   "a release between script and after_script",
			script: "h\nh\nb\nb\nb\nh",
			want:   "prepare_script\nget_sources\nstep_script\nstep_release\nafter_script\nupload_artifacts_on_success",
		},
		{
			name:   "the job list's own name for the script",
			script: "h\nh\nb list=build_script\nb list=after_script",
			want:   "prepare_script\nget_sources\nbuild_script list\nafter_script list",
		},
		{
			name:   "a step of a name that nobody foresaw",
			script: "h\nh\nb list=step_script\nb list=step_deploy\nb",
			want:   "prepare_script\nget_sources\nstep_script list\nstep_deploy list\nafter_script",
		},
		{
			name:   "a stage of a newer runner, read twice",
			script: "h\nh list=verify_sources list=verify_sources\nb",
			want:   "prepare_script\nverify_sources list\nstep_script",
		},
		{
			name:   "git in the script is no evidence",
			script: "h\nh\nb cmd=get_sources\nh",
			want:   "prepare_script\nget_sources\nstep_script\nupload_artifacts_on_success",
		},
		{
			name:   "a reading just before the boundary does not rename the next segment",
			script: "h list=prepare_script\nh stale=prepare_script\nh stale=get_sources\nb stale=restore_cache\nb stale=step_script",
			want:   "prepare_script list\nget_sources\nrestore_cache\nstep_script\nafter_script",
		},
		{
			name:   "one late reading of the stage before does not rename a segment",
			script: "h\nh list=get_sources\nh list=get_sources\nb list=step_script\nb list=step_script",
			want:   "prepare_script\nget_sources list\nrestore_cache\nstep_script list\nafter_script",
		},
		{
			name:   "one reading of the stage to come does not either",
			script: "h\nh list=get_sources list=restore_cache\nh list=restore_cache\nb list=after_script list=step_script\nb list=after_script",
			want:   "prepare_script\nget_sources list\nrestore_cache list\nstep_script list\nafter_script list",
		},
		{
			name:   "begun in the middle, by the numbers of the names",
			script: "h @runner-t-project-1-concurrent-0-0123456789abcdef-predefined-2\nb @runner-t-project-1-concurrent-0-0123456789abcdef-build-3\nh @runner-t-project-1-concurrent-0-0123456789abcdef-predefined-4",
			want:   "restore_cache\nstep_script\narchive_cache",
		},
		{
			name:   "begun after the script, by the numbers of the names",
			script: "h @runner-t-project-1-concurrent-0-0123456789abcdef-predefined-4\nh @runner-t-project-1-concurrent-0-0123456789abcdef-predefined-5",
			want:   "archive_cache\nupload_artifacts_on_success",
		},
		{
			name:   "begun in the middle of the script",
			script: "b\nb\nh\nh",
			missed: true,
			want:   "step_script\nafter_script\narchive_cache\nupload_artifacts_on_success",
		},
		{
			name:   "nothing but a job list after the middle",
			script: "h list=download_artifacts\nb list=step_script",
			missed: true,
			want:   "download_artifacts list\nstep_script list",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s Stages
			if tt.missed {
				s.Missed()
			}
			segs := play(&s, tt.script)
			s.Finish()
			if got := told(&s, segs); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}
