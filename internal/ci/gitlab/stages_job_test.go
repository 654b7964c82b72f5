package gitlab

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
)

// ran is a stage that a runner ran.
type ran struct {
	stage string
	exit  int
}

// job is what a runner does for one kind of job: executeScript of common/build.go.
func job(cache, download, artifacts, after, release, clean, always bool, failAt string, getAttempts int) (all []ran) {
	run := func(stage string) bool {
		exit := 0
		if stage == failAt {
			exit = 1
		}
		all = append(all, ran{stage, exit})
		return exit == 0
	}
	run(StagePrepareScript)
	var ok bool
	for attempt := 1; ; attempt++ {
		if attempt > 1 {
			run(StageClearWorktree)
		}
		if attempt == getAttempts {
			ok = run(StageGetSources)
			break
		}
		all = append(all, ran{StageGetSources, 1})
	}
	ok = ok && (!cache || run(StageRestoreCache))
	ok = ok && (!download || run(StageDownload))
	if ok {
		ok = run(StageScript) && (!release || run(StageRelease))
		if after {
			run(StageAfterScript)
		}
	}
	if cache && ok {
		run(StageArchive)
	}
	if cache && !ok && always {
		run(StageArchiveFailure)
	}
	if artifacts && ok {
		run(StageUploadSuccess)
	}
	if artifacts && !ok && always {
		run(StageUploadFailure)
	}
	if clean {
		run(StageCleanup)
	}
	return all
}

// every calls fn for each kind of job.
func every(fn func(name string, all []ran)) {
	for bits := range 1 << 7 {
		on := func(i int) bool { return bits>>i&1 == 1 }
		for _, failAt := range []string{"", StageScript, StageGetSources, StageDownload} {
			for attempts := 1; attempts <= 3; attempts++ {
				name := fmt.Sprintf("%07b fail %q attempts %d", bits, failAt, attempts)
				fn(name, job(on(0), on(1), on(2), on(3), on(4), on(5), on(6), failAt, attempts))
			}
		}
	}
}

// tell plays the job with the evidence that a meter has, and returns the names told and true.
func tell(all []ran, evidence func(s *Stages, seg int, stage string)) (got, want string) {
	var s Stages
	var segs []int
	var truth []string
	for _, r := range all {
		role, _ := roleOf(r.stage)
		seg := s.Started(role, string(role))
		evidence(&s, seg, r.stage)
		s.Ended(seg, cimeter.Some(r.exit))
		segs = append(segs, seg)
		truth = append(truth, r.stage)
	}
	s.Finish()
	var names []string
	for _, seg := range segs {
		names = append(names, s.Stage(seg).Name)
	}
	return strings.Join(names, " "), strings.Join(truth, " ")
}

// With one reading of the job list in each segment every stage of every kind of job
// is told right, and so it is when a reading that is late by one stage is among them.
func TestStagesEveryJobByJobList(t *testing.T) {
	every(func(name string, all []ran) {
		got, want := tell(all, func(s *Stages, seg int, stage string) { s.JobList(stage, seg, seg) })
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	})
	every(func(name string, all []ran) {
		before := ""
		got, want := tell(all, func(s *Stages, seg int, stage string) {
			if before != "" {
				s.JobList(before, seg, seg)
			}
			for range 2 {
				s.JobList(stage, seg, seg)
			}
			before = stage
		})
		if got != want {
			t.Errorf("late readings: %s:\ngot  %s\nwant %s", name, got, want)
		}
	})
}

// With the command lines seen every stage is told right too, but for what has
// no command of its own: a clean-up looks like an upload that was too short to be seen.
func TestStagesEveryJobByCommand(t *testing.T) {
	commands := map[string]string{
		StageGetSources: StageGetSources, StageRestoreCache: StageRestoreCache, StageDownload: StageDownload, StageArchive: StageArchive,
		StageArchiveFailure: StageArchive, StageUploadSuccess: StageUpload, StageUploadFailure: StageUpload,
	}
	every(func(name string, all []ran) {
		if all[len(all)-1].stage == StageCleanup {
			return
		}
		got, want := tell(all, func(s *Stages, seg int, stage string) {
			if c := commands[stage]; c != "" {
				s.Command(seg, c)
			}
		})
		// Two kinds of stage of the script cannot be told apart by commands.
		got, want = strings.ReplaceAll(got, StageRelease, StageAfterScript), strings.ReplaceAll(want, StageRelease, StageAfterScript)
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	})
}

// By order alone a third of all kinds of job are told right: of many the segments
// are the same, and the commonest is taken.
func TestStagesEveryJobByOrder(t *testing.T) {
	right, all := 0, 0
	every(func(_ string, ran []ran) {
		got, want := tell(ran, func(*Stages, int, string) {})
		all++
		if got == want {
			right++
		}
	})
	t.Logf("%d of %d kinds of job", right, all)
	if right*3 < all {
		t.Errorf("%d of %d kinds of job are told by order alone, want a third", right, all)
	}
}
