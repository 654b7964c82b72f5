package attrib

import (
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/tally"
)

// build is one running build.
type build struct {
	BuildState
	parts    []*part
	open     []*Segment
	stager   Stager
	cell     *tally.Build
	restored []*SegmentState // segments of a checkpoint that nobody has resumed
}

// BuildState is what a checkpoint keeps of a running build.
type BuildState struct {
	Build      cimeter.Build
	Group      string
	Started    time.Time
	Pulled     time.Time `json:",omitzero"`  // when the last image of its was pulled before it started; zero: none was
	Image      string    `json:",omitempty"` // of the last container that ran its commands
	Ended      time.Time // of the segment that ended last
	Ticked     time.Time
	Account    Account
	Tracer     Tracer
	CPU        uint64 // nanoseconds attributed to any build while this one ran
	MachineCPU uint64 // nanoseconds that the machine was busy in the same time; 0: not known
	Gaps       []cimeter.Gap
	Disputed   int // containers that claimed this build and were refused
	Evidence   []Evidence
	Segments   int             // started so far
	Resumed    bool            // taken up from a checkpoint
	MissedWork bool            // a container that did its work was never read
	Containers map[string]bool // containers that exist
	Pieces     []PieceState    `json:",omitempty"` // nested in its containers or beside them
}

// Evidence is one thing that a Stager was told, kept so that it can be told
// again after a restart.
type Evidence struct {
	Kind      string // missed, started, command, job_list, ended
	Segment   int
	Role      cimeter.Role     `json:",omitempty"`
	Container string           `json:",omitempty"`
	Stage     string           `json:",omitempty"`
	Exit      cimeter.Opt[int] `json:",omitzero"`
}

func (b *build) tell(e Evidence) {
	if b.stager == nil {
		return
	}
	apply(b.stager, e)
	if len(b.Evidence) < maxEvidence {
		b.Evidence = append(b.Evidence, e)
	}
}

func apply(s Stager, e Evidence) {
	switch e.Kind {
	case "missed":
		s.Missed()
	case "started":
		s.Started(e.Segment, e.Role, e.Container)
	case "command":
		s.Command(e.Segment, e.Stage)
	case "job_list":
		s.JobList(e.Segment, e.Stage)
	case "ended":
		s.Ended(e.Segment, e.Exit)
	}
}

func (b *build) gap(g cimeter.Gap) {
	if len(b.Gaps) < maxGaps {
		b.Gaps = append(b.Gaps, g)
	}
}

// tick ends the build's interval at t.
func (b *build) tick(t time.Time, paused bool) {
	// Levels of a build are the sums over its open segments, now.
	var now [numLevels]cimeter.Opt[uint64]
	for _, s := range b.open {
		for l, v := range s.part.Account.Now {
			if v.Known {
				now[l] = cimeter.Some(now[l].Value + v.Value)
			}
		}
	}
	b.Account.Now = now
	if !paused {
		rise := b.Account.Open
		b.Tracer.Add(b.Ticked.Sub(b.Started), t.Sub(b.Started), &rise, now[levelMemory], now[levelWorkingSet])
	}
	b.Account.Tick(t.Sub(b.Ticked), paused)
	b.Ticked = t
}

// tellEnd tells the stager of a part's end, once its exit code is known or has
// been waited for.
func (b *build) tellEnd(p *part, t time.Time) {
	if !p.Staged || p.EndTold || p.Ended.IsZero() || !p.Exit.Known && t.Sub(p.Ended) < exitAfter {
		return
	}
	p.EndTold = true
	b.tell(Evidence{Kind: "ended", Segment: p.Segment, Exit: p.Exit})
}

// attempt counts the parts of the given name that ended before t.
func (b *build) attempt(name string, t time.Time) int {
	n := 1
	for _, p := range b.parts {
		if p.Decided && p.Name == name && !p.Ended.IsZero() && !p.Ended.After(t) {
			n = max(n, p.Attempt+1)
		}
	}
	return n
}

// over reports whether the build is over at t.
func (b *build) over(t time.Time, o *Options) bool {
	if len(b.open) > 0 || len(b.restored) > 0 {
		return false
	}
	quiet := t.Sub(b.Ended)
	if len(b.Containers) == 0 && b.worked() {
		return quiet >= o.Grace
	}
	return quiet >= max(o.Quiet, o.Grace)
}

// worked reports whether a container of the build has run more than
// preparations: between those and the work a runner may pull an image.
func (b *build) worked() bool {
	for _, p := range b.parts {
		if works(p.Role) {
			return true
		}
	}
	return b.MissedWork
}

func works(r cimeter.Role) bool {
	return r != cimeter.RoleCache && r != cimeter.RoleWait && r != cimeter.RoleService && r != cimeter.RolePod
}
