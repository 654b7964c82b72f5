package attrib

import (
	"cmp"
	"slices"
	"time"

	"github.com/cimeter/cimeter"
)

// Bounds of the parts of a build.
const (
	// maxPieces bounds those that a running build has: those who run in a
	// container make as many cgroups in it as they like. Over it the smallest of
	// those that ended are added up.
	maxPieces = 128
	// maxRecordParts bounds those in a record, sums of the others not counted: a
	// record is read by people and kept for years.
	maxRecordParts = 32
)

// Piece is what was read of a cgroup that is a part of a build: counters since it
// was made.
type Piece struct {
	Path        string // of its cgroup, which with the inode tells it from others
	Inode       uint64
	Kind        cimeter.PartKind
	ID          string
	Attribution cimeter.Attribution
	Started     time.Time
	Ended       time.Time // zero while it runs
	// Late says that it had run when counting of the container around it began:
	// what its first reading shows is not the build's.
	Late  bool
	CPU   cimeter.Opt[uint64] // nanoseconds
	Peak  cimeter.Opt[uint64] // bytes
	Kills cimeter.Opt[uint64]
}

// PieceState is what a checkpoint keeps of a part.
type PieceState struct {
	Piece
	Within  string // container id; "" beside
	Segment int    // of the build, that it is nested in
	Base    uint64 // CPU nanoseconds before counting began
	Count   int    // of how many it is the sum; 0 is one
	seen    bool   // read by this process
}

func (p *PieceState) count() int { return max(p.Count, 1) }

// Piece books what was read of a part of the build of that key, and reports
// whether such a build runs. within is the segment that it is nested in, nil
// beside. What it used counts in the totals of the build only by what it is
// nested in.
func (l *Ledger) Piece(key string, within *Segment, p *Piece) bool {
	b := l.builds[key]
	if b == nil {
		return false
	}
	i := slices.IndexFunc(b.Pieces, func(s PieceState) bool { return s.Count == 0 && s.Path == p.Path && s.Inode == p.Inode })
	if i < 0 {
		if !b.room() && p.Ended.IsZero() {
			return true // told again when it ends
		}
		s := PieceState{Piece: *p, Segment: -1, seen: true}
		if within != nil && within.build == b {
			s.Within, s.Segment = within.Container(), within.part.Segment
		}
		if p.Late {
			s.Base = p.CPU.Value
		} else if within == nil {
			l.beside += p.CPU.Value
		}
		if len(b.Pieces) < maxPieces {
			b.Pieces = append(b.Pieces, s)
		} else {
			b.Pieces = sum(b.Pieces, s)
		}
		return true
	}
	s := &b.Pieces[i]
	if s.Segment < 0 && s.seen && p.CPU.Value > s.CPU.Value {
		l.beside += p.CPU.Value - s.CPU.Value
	}
	s.seen, s.Ended = true, p.Ended
	for _, f := range []struct{ to, from *cimeter.Opt[uint64] }{{&s.CPU, &p.CPU}, {&s.Peak, &p.Peak}, {&s.Kills, &p.Kills}} {
		if f.from.Known && f.from.Value >= f.to.Value {
			*f.to = *f.from
		}
	}
	return true
}

// room makes room for one more part, where one has ended.
func (b *build) room() bool {
	if len(b.Pieces) < maxPieces {
		return true
	}
	least := -1
	for i := range b.Pieces {
		if p := &b.Pieces[i]; p.Count == 0 && !p.Ended.IsZero() && (least < 0 || p.used() < b.Pieces[least].used()) {
			least = i
		}
	}
	if least < 0 {
		return false
	}
	p := b.Pieces[least]
	b.Pieces = sum(slices.Delete(b.Pieces, least, least+1), p)
	return len(b.Pieces) < maxPieces
}

func (p *PieceState) used() uint64 { return p.CPU.Value - min(p.Base, p.CPU.Value) }

// sum adds p to the sum of its like in all, which it begins if need be.
func sum(all []PieceState, p PieceState) []PieceState {
	i := slices.IndexFunc(all, func(s PieceState) bool {
		return s.Count > 0 && s.Kind == p.Kind && s.Attribution == p.Attribution
	})
	p.CPU.Value, p.Base = p.used(), 0
	if i < 0 {
		p.Path, p.Inode, p.ID, p.Within, p.Segment, p.Count = "", 0, "", "", -1, p.count()
		return append(all, p)
	}
	s := &all[i]
	s.Count += p.count()
	if p.Started.Before(s.Started) {
		s.Started = p.Started
	}
	if p.Ended.IsZero() || !s.Ended.IsZero() && p.Ended.After(s.Ended) {
		s.Ended = p.Ended
	}
	s.CPU = cimeter.Opt[uint64]{Known: s.CPU.Known || p.CPU.Known, Value: s.CPU.Value + p.CPU.Value}
	s.Kills = cimeter.Opt[uint64]{Known: s.Kills.Known || p.Kills.Known, Value: s.Kills.Value + p.Kills.Value}
	s.Peak = cimeter.Opt[uint64]{Known: s.Peak.Known || p.Peak.Known, Value: max(s.Peak.Value, p.Peak.Value)}
	return all
}

// recordParts renders the parts of the build as they stand at end: the largest by
// CPU in the order of their start, then the sums of the rest.
func (b *build) recordParts(end time.Time) []cimeter.Part {
	if len(b.Pieces) == 0 {
		return nil
	}
	all := slices.Clone(b.Pieces)
	slices.SortStableFunc(all, func(x, y PieceState) int {
		return cmp.Or(cmp.Compare(x.Count, y.Count), -cmp.Compare(x.used(), y.used()))
	})
	var sums []PieceState
	single := 0
	for _, p := range all {
		if p.Count == 0 && single < maxRecordParts {
			all[single] = p
			single++
		} else {
			sums = sum(sums, p)
		}
	}
	all = all[:single]
	slices.SortStableFunc(all, func(x, y PieceState) int { return x.Started.Compare(y.Started) })
	parts := make([]cimeter.Part, 0, single+len(sums))
	for _, p := range append(all, sums...) {
		parts = append(parts, b.recordPart(&p, end))
	}
	return parts
}

func (b *build) recordPart(p *PieceState, end time.Time) cimeter.Part {
	stage, last := b.stageAt(p.Segment, p.Started)
	if p.Ended.IsZero() && p.Count == 0 {
		p.Ended = last // it ended with what it was in, if that has ended
	}
	if p.Ended.IsZero() || p.Ended.After(end) {
		p.Ended = end
	}
	if p.Started.After(p.Ended) {
		p.Started = p.Ended
	}
	out := cimeter.Part{
		Kind: p.Kind, ID: p.ID, Within: p.Within, Counted: p.Attribution == cimeter.AttributedNested,
		Attribution: p.Attribution, Confidence: p.Attribution.Confidence(),
		StartedAt: b.Started.Add(p.Started.Sub(b.Started)).UTC().Round(0), EndedAt: b.Started.Add(p.Ended.Sub(b.Started)).UTC().Round(0),
		MemoryPeakBytes: p.Peak, OOMKills: p.Kills, Stage: stage,
	}
	if p.Count > 1 {
		out.Count = p.Count
	}
	if p.CPU.Known {
		out.CPUSeconds = cimeter.Some(float64(p.used()) / 1e9)
	}
	return out
}

// stageAt is the name of the stage that the segment was in at t, and when the
// segment ended; the zero time: it runs.
func (b *build) stageAt(segment int, t time.Time) (name string, ended time.Time) {
	if segment < 0 {
		return "", time.Time{}
	}
	for _, p := range b.parts {
		if p.Segment != segment {
			continue
		}
		ended = p.Ended
		if name != "" && p.Started.After(t) {
			continue
		}
		if name = p.Name; !p.Decided {
			name, _, _ = b.guess(&p.PartState)
		}
	}
	return name, ended
}

// BesideCPU returns the CPU time in nanoseconds of what is beside builds and was
// attributed to one. It is in no usage.
func (l *Ledger) BesideCPU() uint64 { return l.beside }
