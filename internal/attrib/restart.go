package attrib

import (
	"time"

	"github.com/cimeter/cimeter/internal/counter"
)

// Restart forgets what a segment that is of no build has spent before t: its
// container has waited for a build, which begins later. Counting goes on from the
// last sample.
func (l *Ledger) Restart(s *Segment, t time.Time) {
	if s.build != nil || !s.data.Ended.IsZero() {
		return
	}
	old := s.part
	s.part = &part{PartState: PartState{Started: t, Ticked: t, Limits: old.Limits, NotMetered: old.NotMetered, PeakBase: max(old.PeakBase, old.Account.Peak.Value)}}
	s.data.Started = t
	if s.data.Baseline.Has != 0 {
		s.data.Baseline.FromBirth = true // of the build: none of it was before
	}
	s.before, s.gaps = counter.Delta{}, nil
}
