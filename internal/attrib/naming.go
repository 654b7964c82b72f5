package attrib

import (
	"maps"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/tally"
)

func (l *Ledger) decide(b *build, p *part, n StageName) {
	p.key = b.Build.Key
	p.decide(n, l.opts.Tally.Stage(tally.Labels{
		CI: b.Build.CI, Project: b.Build.Project, Machine: l.opts.Machine, Runner: b.Build.Runner.Key(), Stage: n.Name,
	}))
}

// resolve decides the names of a build's parts that its stager is sure of, or
// that have waited long enough.
func (l *Ledger) resolve(b *build, t time.Time) {
	for _, p := range b.parts {
		b.tellEnd(p, t)
		if p.Decided || p.Split {
			continue
		}
		n := StageName{Name: "job", Attempt: 1, Source: p.boundary(), Final: true}
		if b.stager != nil {
			n = b.stager.Stage(p.Segment)
		} else {
			n.Attempt = b.attempt(n.Name, p.Started)
		}
		if n.Name != "" && (n.Final || t.Sub(p.Started) >= decideAfter) {
			l.decide(b, p, n)
		}
	}
}

// Command notes that a process in the segment is one that the CI runner runs in
// the given stage.
func (l *Ledger) Command(s *Segment, t time.Time, stage string) {
	if s.build == nil || s.part.Split {
		return
	}
	s.build.tell(Evidence{Kind: "command", Segment: s.part.Segment, Stage: stage})
	l.resolve(s.build, t)
}

// JobList notes that the runner's list of jobs showed the segment's build in the
// given stage; the list was asked for while the segment ran.
func (l *Ledger) JobList(s *Segment, t time.Time, stage string) {
	if s.build == nil || s.part.Split {
		return
	}
	s.build.tell(Evidence{Kind: "job_list", Segment: s.part.Segment, Stage: stage})
	l.resolve(s.build, t)
}

// SetNotMetered notes why a reading of the segment is absent (see
// cimeter.Usage.NotMetered).
func (l *Ledger) SetNotMetered(s *Segment, member, reason string) {
	m := maps.Clone(s.part.NotMetered) // a checkpoint may share it
	if m == nil {
		m = make(map[string]string)
	}
	m[member] = reason
	s.part.NotMetered = m
}

// Enter notes that the segment is in the given stage from t on: evidence from
// inside it, for a container that goes through several stages. A segment whose
// stage was open gets that name; one that was in another stage is split. In
// cimeter.StageWaiting it is in none: that has one attempt, and its time is not the
// build's. The caller has just advanced it by sample, what it showed at the boundary; a
// MemoryPeak of 0 in it says that the kernel begins a new one there. t may lie back,
// as far as the last tick.
func (l *Ledger) Enter(s *Segment, t time.Time, stage string, source cimeter.Boundary, sample *cimeter.Sample) {
	b := s.build
	if b == nil || s.part.Decided && s.part.Name == stage {
		return
	}
	if !s.part.Decided {
		l.decide(b, s.part, StageName{Name: stage, Attempt: b.attempt(stage, s.part.Started), Source: source})
		return
	}
	if len(b.parts) >= maxParts {
		return
	}
	old := s.part
	if t.Before(old.Ticked) {
		t = old.Ticked
	}
	old.end(t)
	peak, known := sample.Gauge(cimeter.MemoryPeak)
	s.part = &part{PartState: PartState{
		Segment: old.Segment, Role: old.Role, Alongside: stage == cimeter.StageWaiting, Split: true,
		Started: t, Ticked: t, Limits: old.Limits, NotMetered: old.NotMetered, PeakBase: peak, PeakOwn: known && peak == 0,
	}}
	l.attach(b, s)
	attempt := 1
	if stage != cimeter.StageWaiting {
		attempt = b.attempt(stage, t)
	}
	l.decide(b, s.part, StageName{Name: stage, Attempt: attempt, Source: source})
}
