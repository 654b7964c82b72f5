package gitlab

import (
	"strings"

	"github.com/cimeter/cimeter"
)

// maxSegments bounds the segments of one job whose stage is told. A job has at
// most a dozen, and three times GET_SOURCES_ATTEMPTS (at most 10) and its like more.
const maxSegments = 96

// maxReadings bounds how much weight one stage in the job list can gain.
const maxReadings = 4

// What it costs an account of a job to deny a piece of evidence.
const (
	costReading = 5  // for each reading of the job list, at most maxReadings: one alone does not outweigh costRepeat
	costCommand = 12 // the helper's own sub-commands belong to one stage each
	costGit     = 3  // git runs in get_sources, and may in others
)

// Stages names the segments of one job: the lives of its helper and its build
// containers. It works for runners that make a container for each stage (seen of
// 15.4) and for those that start one helper and one build container again for
// each (19.x). Services, wait and cache containers are not given to it.
//
// A job is accounted for as a whole: of all ways in which a runner can have gone
// through its stages, the one is taken that departs least from the usual order,
// the exit codes, the command lines seen and the readings of the runner's job list.
// So evidence for one segment also aligns those beside it, and one reading that
// came late cannot rename the segment it fell into. The answer depends on nothing
// but the calls and their order.
//
// The zero value is ready for a job that is seen from its beginning. Not safe for
// use from several goroutines.
type Stages struct {
	segs     []segment
	index    []int // of the segment that Started returned in segs
	cells    [2][][steps]cell
	valid    int  // cells of that many segments hold
	next     int  // number of the next container, where names hold numbers
	missed   bool // the job's beginning was not seen
	gap      bool // some segment between was not seen
	finished bool
}

// SegmentStage is what is known of a segment's stage.
type SegmentStage struct {
	Name    string
	Attempt int              // 1, or more when the stage was run before in this job
	Source  cimeter.Boundary // job_list, command, or order
	// Final is set when nothing that comes later changes Name, Attempt or Source
	// for a better one. It is set at the latest by Finish.
	Final bool
}

// segment is one life of a container. One that was not seen has no role.
type segment struct {
	role      cimeter.Role
	container string
	exit      cimeter.Opt[int]
	ended     bool
	readings  []reading
	command   string // stage that the helper's sub-command names
	git       bool   // git was seen
	step      step
	stage     SegmentStage
}

type reading struct {
	stage string
	count int
}

// cell is the best account of a job that ends with a segment in a step.
type cell struct {
	cost int
	from step
}

// Missed says that the job began before its first segment that is told. Where
// container names hold numbers this is seen without it.
func (s *Stages) Missed() {
	s.missed = true
	s.settle(0)
}

// Started says that a helper or build container began to run, and returns the
// number by which the other methods know this segment. Segments are told in the
// order of their start.
func (s *Stages) Started(role cimeter.Role, containerName string) (seg int) {
	if role != cimeter.RoleHelper && role != cimeter.RoleBuild || len(s.segs) >= maxSegments {
		s.index = append(s.index, -1)
		return len(s.index) - 1
	}
	s.unseen(containerName)
	s.index = append(s.index, len(s.segs))
	s.segs = append(s.segs, segment{role: role, container: containerName})
	s.settle(len(s.segs) - 1)
	return len(s.index) - 1
}

// unseen puts in a segment for each container that, by the number in the next
// one's name, came before it and was not told.
func (s *Stages) unseen(container string) {
	index, ok := containerIndex(container)
	if !ok {
		return
	}
	for i := range s.segs {
		if s.segs[i].container == container {
			return
		}
	}
	for ; s.next < index && len(s.segs) < maxSegments-1; s.next++ {
		s.gap, s.valid = true, 0
		s.segs = append(s.segs, segment{ended: true})
	}
	s.next = index + 1
}

// Running returns the segment that started last if it still runs, and -1
// otherwise.
func (s *Stages) Running() int {
	if n := len(s.index) - 1; n >= 0 && s.index[n] >= 0 && !s.segs[s.index[n]].ended {
		return n
	}
	return -1
}

// Command says that a process of the segment runs a command of stage, as
// [StageOfCommand] tells it. Commands that cannot run in the segment's kind of
// container (git in a script) are no evidence.
func (s *Stages) Command(seg int, stage string) {
	g := s.segment(seg)
	if g == nil {
		return
	}
	if stage == StageArchive || stage == StageArchiveFailure {
		stage = archiveEither
	}
	if r, ok := roleOf(stage); !ok || r != g.role || strings.HasPrefix(stage, "step_") && stage != StageScript && stage != StageRelease {
		return
	}
	switch {
	case stage == StageGetSources && !g.git:
		g.git = true
	case stage != StageGetSources && g.command == "":
		g.command = stage
	default:
		return
	}
	s.settle(s.index[seg])
}

// JobList says that the runner's job list named stage. sent and received are
// the segments that Running returned before the request and after the answer: a
// reading that straddles a boundary tells nothing of either side. Nor does one of
// a stage that does not run in the segment's kind of container: the runner had
// gone on, or had not come that far.
func (s *Stages) JobList(stage string, sent, received int) {
	g := s.segment(received)
	if g == nil || sent != received || g.ended || stage == "" {
		return
	}
	if r, ok := roleOf(stage); ok && r != g.role || !ok && !plausible(stage) {
		return
	}
	for i := range g.readings {
		if r := &g.readings[i]; r.stage == stage {
			if r.count == maxReadings {
				return
			}
			r.count++
			s.settle(s.index[received])
			return
		}
	}
	if len(g.readings) < maxReadings {
		g.readings = append(g.readings, reading{stage: stage, count: 1})
		s.settle(s.index[received])
	}
}

// plausible reports whether an unknown name may be that of a stage of a newer
// runner that a container runs.
func plausible(stage string) bool {
	if len(stage) > 40 || stage == StagePrepareExecutor || stage == "resolve_secrets" || strings.Contains(stage, "referee") {
		return false
	}
	for i := range len(stage) {
		if b := stage[i]; (b < 'a' || b > 'z') && (b < '0' || b > '9') && b != '_' {
			return false
		}
	}
	return true
}

// Ended says that the segment's container exited.
func (s *Stages) Ended(seg int, exitCode cimeter.Opt[int]) {
	if g := s.segment(seg); g != nil && !g.ended {
		g.ended, g.exit = true, exitCode
		s.settle(s.index[seg] + 1)
	}
}

// Finish says that the job is over. Every stage is final from then on.
func (s *Stages) Finish() {
	for i := range s.segs {
		s.segs[i].ended = true
	}
	s.finished = true
	s.settle(len(s.segs))
}

// Stage returns what is known of a segment's stage.
func (s *Stages) Stage(seg int) SegmentStage {
	if g := s.segment(seg); g != nil {
		return g.stage
	}
	return SegmentStage{Name: StageUnknown, Attempt: 1, Source: cimeter.BoundaryOrder, Final: true}
}

func (s *Stages) segment(seg int) *segment {
	if seg < 0 || seg >= len(s.index) || s.index[seg] < 0 {
		return nil
	}
	return &s.segs[s.index[seg]]
}
