package gitlab

import (
	"strings"

	"github.com/cimeter/cimeter"
)

// The stages of a job (common/build.go BuildStage). Those before
// StagePrepareScript run in the manager.
const (
	StagePrepareExecutor = "prepare_executor"
	StagePrepareScript   = "prepare_script"
	StageClearWorktree   = "clear_worktree" // before a repeated get_sources
	StageGetSources      = "get_sources"
	StageRestoreCache    = "restore_cache"
	StageDownload        = "download_artifacts"
	StageScript          = "step_script"
	StageRelease         = "step_release"
	StageAfterScript     = "after_script"
	StageArchive         = "archive_cache"
	StageArchiveFailure  = "archive_cache_on_failure"
	StageUploadSuccess   = "upload_artifacts_on_success"
	StageUploadFailure   = "upload_artifacts_on_failure"
	StageCleanup         = "cleanup_file_variables"
	// StageUnknown names a segment beyond the bound of segments of one job.
	StageUnknown = "unknown"
	// StageUpload is what a command line tells of an upload: it is the same for
	// both outcomes of the job.
	StageUpload = "upload_artifacts"
)

// step is a place in the order in which a runner goes through its stages. A
// stage whose place depends on the outcome of the script has two.
type step uint8

const (
	stepPrepare step = iota
	stepClear
	stepGet
	stepRestore
	stepDownload
	stepScript
	stepMore // step_release, or another step of the script's kind
	stepAfterOK
	stepAfterFailed
	stepArchiveOK
	stepArchiveFailed
	stepUploadOK
	stepUploadFailed
	stepCleanup
	steps // how many there are
)

var stepNames = [steps]string{
	StagePrepareScript, StageClearWorktree, StageGetSources, StageRestoreCache, StageDownload,
	StageScript, StageRelease, StageAfterScript, StageAfterScript,
	StageArchive, StageArchiveFailure, StageUploadSuccess, StageUploadFailure, StageCleanup,
}

func (s step) role() cimeter.Role {
	if s >= stepScript && s <= stepAfterFailed {
		return cimeter.RoleBuild
	}
	return cimeter.RoleHelper
}

func (s step) before() bool { return s <= stepDownload }
func (s step) after() bool  { return s >= stepArchiveOK }

// failed reports whether s runs only for a job whose script did not succeed.
func (s step) failed() bool {
	return s == stepAfterFailed || s == stepArchiveFailed || s == stepUploadFailed
}

// is reports whether the stage that a runner's job list or a command names can
// be s.
func (s step) is(stage string) bool {
	switch s {
	case stepScript:
		return stage == StageScript || stage == scriptOld || stage == scriptRun || stage == "concrete"
	case stepMore:
		return strings.HasPrefix(stage, "step_") && !stepScript.is(stage)
	case stepArchiveOK, stepArchiveFailed:
		return stage == stepNames[s] || stage == archiveEither
	case stepUploadOK, stepUploadFailed:
		return stage == stepNames[s] || stage == StageUpload
	}
	return stage == stepNames[s]
}

// archiveEither is what a command line tells of an archived cache inside
// [Stages]; the job list's archive_cache is that of a job that succeeded.
const archiveEither = "archive_cache*"

// roleOf returns the role of the container that runs stage; ok is false for
// stages that no container runs and for unknown ones.
func roleOf(stage string) (r cimeter.Role, ok bool) {
	for s := range steps {
		if s.is(stage) {
			return s.role(), true
		}
	}
	return "", false
}

// What it costs an account of a job to depart from what runners usually do. Only
// the order of the numbers matters: the account with the least sum is taken.
const (
	costNever    = 1 << 12 // contradicts a container's role, or a name already given
	costBackward = 30      // stages do not run out of order
	costOdd      = 12      // a job without a script that succeeded, an outcome that changed
	costSkipGet  = 8       // sources are fetched even with GIT_STRATEGY none: the script is not empty
	costOutcome  = 6       // the script's exit code says another outcome
	costRepeat   = 6       // a stage that succeeded is not run again
	costCleanup  = 3       // there is something to clean up after few jobs
	costNoCache  = 1       // no cache is as common as a cache, nearly
	costHasCache = 2       // a job with a cache restores it, and archives it when it succeeds
	costUseCache = 8       // a job without one does neither
)

// moves says how the runner goes from one stage to the next, given whether the
// job has a cache: the cost of next after prev, which exited with exit.
func moves(prev, next step, exit cimeter.Opt[int], cache bool) int {
	code, known := exit.Get()
	failed := known && code != 0
	switch {
	case prev == next:
		return again(prev, failed)
	case prev == stepGet && next == stepClear && failed:
		return 1
	case prev == stepClear && next == stepGet:
		return 0
	case prev == stepClear:
		return costOdd
	case next == stepClear:
		return costBackward
	case prev.before() && next.before():
		return forward(prev, next, cache) + penalty(failed, costOutcome)
	case prev.before() && next == stepScript:
		return forward(prev, next, cache) + penalty(failed, costOutcome)
	case prev.before() && next.after():
		if !failed || !next.failed() && next != stepCleanup {
			return costOdd + leave(next, cache)
		}
		return 2 + leave(next, cache)
	case prev == stepScript || prev == stepMore:
		return afterScript(prev, next, known, failed, cache)
	case prev == stepAfterOK || prev == stepAfterFailed:
		if !next.after() {
			return costBackward
		}
		return leave(next, cache) + penalty(next != stepCleanup && next.failed() != prev.failed(), costOdd)
	case prev.after() && next > prev:
		if next == stepCleanup {
			return costCleanup + penalty(prev == stepArchiveOK || prev == stepArchiveFailed, 1)
		}
		return penalty(next.failed() != prev.failed(), costOdd)
	}
	return costBackward
}

// again is the cost of running a stage twice in a row: retries are for stages
// that failed (GET_SOURCES_ATTEMPTS and the like).
func again(s step, failed bool) int {
	switch {
	case failed && (s == stepRestore || s == stepDownload):
		return 1
	case failed:
		return 4
	}
	return costRepeat
}

// forward is the cost of the stages left out between prev and next, which is at
// most the script.
func forward(prev, next step, cache bool) (cost int) {
	if next < prev {
		return costBackward
	}
	if next == stepRestore {
		cost += penalty(!cache, costUseCache)
	}
	for s := prev + 1; s < next; s++ {
		switch s {
		case stepGet:
			cost += costSkipGet
		case stepRestore:
			cost += penalty(cache, costHasCache)
		case stepDownload:
			cost++
		}
	}
	return cost
}

// afterScript is the cost of what follows a stage of the script.
func afterScript(prev, next step, known, failed, cache bool) int {
	wrong := next != stepCleanup && next.failed() != failed
	outcome := penalty(wrong, costOutcome)
	if !known {
		outcome = penalty(next.failed(), 1)
	}
	switch {
	case next == stepMore && prev == stepScript:
		return 1 + penalty(failed, costOdd)
	case next == stepAfterOK || next == stepAfterFailed:
		return outcome
	case next.after():
		return outcome + leave(next, cache)
	}
	return costBackward
}

// leave is the cost of next as the first helper stage after the script. What is
// archived and uploaded of a job that failed is what asked for it; caches seldom do.
func leave(next step, cache bool) int {
	switch next {
	case stepArchiveOK:
		return penalty(!cache, costUseCache)
	case stepArchiveFailed:
		return 2 + penalty(!cache, costUseCache)
	case stepUploadOK:
		return penalty(cache, costHasCache)
	case stepCleanup:
		return costCleanup
	}
	return 0
}

// opens is the cost of s as the first stage seen of a job that was seen from its
// beginning, or was not.
func opens(s step, missed, cache bool) int {
	if !missed {
		switch {
		case s == stepPrepare:
			return 0
		case s.before() && s != stepClear:
			return costOutcome + forward(stepPrepare, s, cache)
		}
		return costOdd
	}
	switch s {
	case stepScript:
		return 0
	case stepGet, stepRestore, stepDownload, stepAfterOK:
		return 2
	case stepArchiveOK, stepUploadOK:
		return 3
	}
	return 4
}

// closes is the cost of s, which exited with exit, as the last stage of a job.
func closes(s step, exit cimeter.Opt[int]) int {
	code, known := exit.Get()
	switch {
	case s == stepClear:
		return costOdd
	case s.before() && known && code == 0:
		return 3 // cancelled between two stages
	}
	return 0
}

func penalty(when bool, cost int) int {
	if when {
		return cost
	}
	return 0
}
