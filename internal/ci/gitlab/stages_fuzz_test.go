package gitlab

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
)

// obey runs what ops say on Stages and reports what is wrong at any time: a final
// stage that changed, a stage in a container of another role, an attempt that was left
// out. With anew, the job is accounted for from its beginning at every step.
func obey(t *testing.T, ops []byte, anew bool) string {
	stages := []string{"prepare_script", "get_sources", "restore_cache", "download_artifacts", "step_script", "step_release", "after_script",
		"archive_cache", "upload_artifacts", "upload_artifacts_on_failure", "cleanup_file_variables", "clear_worktree", "new_stage", "", "prepare_executor", "A b"}
	var s Stages
	var segs []int
	var roles []cimeter.Role
	final := make(map[int]SegmentStage)
	check := func(op string) {
		for i, seg := range segs {
			st := s.Stage(seg)
			if was, ok := final[i]; ok && was != st {
				t.Fatalf("%s: final %+v became %+v", op, was, st)
			}
			if st.Final {
				final[i] = st
			}
			if r, ok := roleOf(st.Name); ok && r != roles[i] {
				t.Fatalf("%s: %s in a %s container", op, st.Name, roles[i])
			}
			if st.Name == "" || st.Attempt < 1 || st.Source == "" {
				t.Fatalf("%s: stage %+v", op, st)
			}
		}
	}
	for len(ops) >= 2 {
		op, arg := ops[0]%8, ops[1]
		ops = ops[2:]
		stage := stages[int(arg)%len(stages)]
		switch op {
		case 0, 1:
			role, name := cimeter.RoleHelper, fmt.Sprintf("runner-t-project-1-concurrent-0-0123456789abcdef-predefined-%d", arg%12)
			if op == 1 {
				role, name = cimeter.RoleBuild, "build"
			}
			segs = append(segs, s.Started(role, name))
			roles = append(roles, role)
		case 2:
			s.Command(s.Running(), stage)
		case 3, 4:
			s.JobList(stage, s.Running(), s.Running())
		case 5:
			s.Ended(s.Running(), cimeter.Some(int(arg%2)))
		case 6:
			s.Ended(s.Running(), cimeter.Opt[int]{})
		case 7:
			if arg == 7 {
				s.Missed()
			}
		}
		if anew {
			s.settle(0)
		}
		check(fmt.Sprint("op ", op, " ", arg))
	}
	s.Finish()
	check("finish")
	var b strings.Builder
	for _, seg := range segs {
		st := s.Stage(seg)
		if !st.Final {
			t.Fatalf("%+v is not final at the end", st)
		}
		fmt.Fprintln(&b, st)
	}
	return b.String()
}

func FuzzStages(f *testing.F) {
	f.Add([]byte("\x00\x00\x05\x00\x00\x01\x03\x01\x05\x00\x01\x00\x03\x04\x05\x01\x01\x00\x05\x00\x00\x04\x02\x08\x05\x00"))
	f.Add([]byte("\x07\x07\x01\x00\x03\x0c\x03\x0c\x06\x00\x00\x0b\x02\x00"))
	f.Add([]byte(strings.Repeat("\x00\x00\x05\x01\x01\x00\x06\x00", 60)))
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) > 200 {
			return
		}
		if a, b := obey(t, ops, false), obey(t, ops, true); a != b {
			t.Errorf("told step by step:\n%s\ntold anew at each step:\n%s", a, b)
		}
	})
}

// Each stage is told while the job runs, as soon as it can be.
func TestStagesFinal(t *testing.T) {
	var s Stages
	finals := func() (names []string) {
		for i := range s.index {
			if st := s.Stage(i); st.Final {
				names = append(names, st.Name)
			}
		}
		return names
	}
	check := func(when, want string) {
		t.Helper()
		if got := strings.Join(finals(), " "); got != want {
			t.Errorf("%s: final are %q, want %q", when, got, want)
		}
	}
	play(&s, "h\nh\nh")
	check("before the script", "")
	seg := play(&s, "b ...")[0]
	check("in the script", "prepare_script get_sources restore_cache")
	if st := s.Stage(seg); st.Name != "step_script" {
		t.Errorf("the running script is %+v", st)
	}
	s.Ended(seg, cimeter.Some(0))
	check("after the script", "prepare_script get_sources restore_cache step_script")
	play(&s, "b")
	check("after after_script, or step_release", "prepare_script get_sources restore_cache step_script")
	play(&s, "h cmd=archive_cache")
	check("in the end", "prepare_script get_sources restore_cache step_script after_script")
	play(&s, "h")
	check("after the cache", "prepare_script get_sources restore_cache step_script after_script archive_cache")
	s.Finish()
	check("at the end", "prepare_script get_sources restore_cache step_script after_script archive_cache upload_artifacts_on_success")
}

// Both shapes are told alike: containers for each stage, or two that are started
// again.
func TestStagesShapes(t *testing.T) {
	const name = "@runner-t-project-1-concurrent-0-0123456789abcdef-"
	var a, b Stages
	old := play(&a, "h "+name+"predefined-0\nh "+name+"predefined-1\nh "+name+"predefined-2\nb "+name+"build-3 exit=1\nb "+name+"build-3\nh "+name+"predefined-4")
	shape := play(&b, "h "+name+"predefined\nh "+name+"predefined\nh "+name+"predefined\nb "+name+"build exit=1\nb "+name+"build\nh "+name+"predefined")
	a.Finish()
	b.Finish()
	if got, want := told(&b, shape), told(&a, old); got != want || a.gap || b.gap {
		t.Errorf("restarted containers:\n%s\ncontainers for each stage:\n%s", got, want)
	}
}

func TestStagesBounds(t *testing.T) {
	var s Stages
	for range maxSegments + 10 {
		s.Ended(s.Started(cimeter.RoleHelper, "predefined"), cimeter.Some(0))
	}
	if len(s.segs) != maxSegments {
		t.Errorf("%d segments are kept, want %d", len(s.segs), maxSegments)
	}
	for seg, want := range map[int]string{maxSegments + 5: StageUnknown, -1: StageUnknown, 1000: StageUnknown, 0: StagePrepareScript} {
		if st := s.Stage(seg); st.Name != want {
			t.Errorf("segment %d is %+v, want %s", seg, st, want)
		}
	}
	if seg := s.Started(cimeter.RoleService, "db"); s.Stage(seg).Name != StageUnknown || s.Running() != -1 {
		t.Errorf("a service has a place among the stages: %+v", s.Stage(seg))
	}
}

// A reading of the job list that tells nothing new costs nothing.
func TestStagesJobListAllocates(t *testing.T) {
	var s Stages
	play(&s, "h\nh\nb ... list=step_script list=step_script list=step_script list=step_script")
	if n := testing.AllocsPerRun(100, func() { s.JobList("step_script", s.Running(), s.Running()) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
