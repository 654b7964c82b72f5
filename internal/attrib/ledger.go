package attrib

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/counter"
	"github.com/cimeter/cimeter/internal/tally"
)

// Ledger books segments on builds. Make it with New.
type Ledger struct {
	opts   Options
	builds map[string]*build
	// finished are keys of builds that are over, and when they ended.
	finished map[string]time.Time
	ticked   time.Time
	// attributed is the CPU time in nanoseconds booked on builds so far.
	attributed uint64
	beside     uint64           // CPU time in nanoseconds of what is beside builds, see BesideCPU
	machine    counter.Baseline // of the machine's CPU time
}

// New returns an empty ledger.
func New(o Options) *Ledger {
	return &Ledger{opts: o, builds: make(map[string]*build), finished: make(map[string]time.Time)}
}

// Parts returns the number of parts that a running build's checkpoint holds.
func (l *Ledger) Parts(key string) int {
	if b := l.builds[key]; b != nil {
		return len(b.parts)
	}
	return 0
}

// Builds returns the number of running builds.
func (l *Ledger) Builds() int { return len(l.builds) }

// AttributedCPU returns the CPU time in nanoseconds booked on builds so far.
func (l *Ledger) AttributedCPU() uint64 { return l.attributed }

// Open returns a new segment of a container whose cgroup was seen at t.
// fromBirth says that its counters were 0 then; else its first sample is where
// counting begins, and its build has a gap before it.
func (l *Ledger) Open(container, path string, inode uint64, t time.Time, fromBirth bool) *Segment {
	return &Segment{
		data: SegmentState{
			Container: container, Path: path, Inode: inode, Started: t, Part: -1,
			Baseline: counter.Baseline{FromBirth: fromBirth},
		},
		part: &part{PartState: PartState{Started: t, Ticked: t}},
	}
}

// Advance books what the segment spent since its last sample.
func (l *Ledger) Advance(s *Segment, sample *cimeter.Sample) {
	var d counter.Delta
	if !s.data.Baseline.FromBirth && s.data.Baseline.Has == 0 {
		for c := range cimeter.NumCounters {
			if v, ok := sample.Counter(c); ok {
				s.before.Set(c, v)
			}
		}
	}
	s.data.Baseline.Advance(sample, &d)
	if s.pod != nil {
		s.pod.data.Owed.add(&d, -1)
	}
	resumed := s.resumed
	s.resumed = false
	if resumed && s.part.PeakOwn { // what kept it is gone: the peak is that of the cgroup's life again
		s.part.PeakBase, s.part.PeakOwn = 0, false
		if v, ok := sample.Gauge(cimeter.MemoryPeak); ok {
			s.part.PeakBase = v
		}
	}
	s.part.book(&d, sample, !resumed)
	if s.build == nil {
		return
	}
	if resumed {
		s.part.Account.Open = Interval{}
		s.build.Account.Total.Add(&d)
		return
	}
	s.build.Account.Add(&d)
	l.attributed += d.Values[cimeter.CPUTotal]
}

// SetLimits notes what limits the segment's cgroup has.
func (l *Ledger) SetLimits(s *Segment, lim cimeter.Limits) {
	lim.Requested = s.data.Limits.Requested
	s.data.Limits = lim
	s.part.Limits = lim
}

// Bind gives a segment to the build that id names. It may come late, even after
// the segment's end. It refuses a segment whose identity is in doubt or that
// claims a build of another group, and says why: cimeter.ErrConflict.
func (l *Ledger) Bind(s *Segment, t time.Time, container string, id cimeter.Identity) error {
	if s.build != nil {
		s.build.Build = s.build.Build.Merge(id.Build)
		return nil
	}
	b, err := l.claim(id, s.data.Started, s.data.Container)
	if err != nil {
		return err
	}
	l.adopt(b, s, t, container, id)
	return nil
}

// claim returns the build that id names, which it begins at t if need be.
func (l *Ledger) claim(id cimeter.Identity, t time.Time, container string) (*build, error) {
	key := id.Build.Key
	b := l.builds[key]
	if id.Doubt != "" {
		if b != nil {
			b.Disputed++
		}
		return nil, fmt.Errorf("container %.12s claims build %s: %s: %w", container, key, id.Doubt, cimeter.ErrConflict)
	}
	if b == nil {
		if ended, over := l.finished[key]; over {
			return nil, fmt.Errorf("container %.12s of build %s: the build was over at %s: %w",
				container, key, ended.UTC().Format(time.RFC3339), cimeter.ErrUnavailable)
		}
		if len(l.builds) >= maxBuilds {
			return nil, fmt.Errorf("build %s: %d builds run already: %w", key, maxBuilds, cimeter.ErrUnavailable)
		}
		b = l.begin(t, id)
	}
	if id.Group != "" && b.Group != "" && id.Group != b.Group {
		b.Disputed++
		return nil, fmt.Errorf("container %.12s claims build %s, which runs as %q, not %q: %w",
			container, key, b.Group, id.Group, cimeter.ErrConflict)
	}
	if b.Group == "" {
		b.Group = id.Group
	}
	b.Build = b.Build.Merge(id.Build)
	return b, nil
}

// Miss marks a container of the build that id names whose counters were never
// read.
func (l *Ledger) Miss(t time.Time, id cimeter.Identity, g cimeter.Gap) {
	if b, err := l.claim(id, t, ""); err == nil {
		b.gap(g)
		b.MissedWork = b.MissedWork || works(id.Role)
	}
}

func (l *Ledger) begin(t time.Time, id cimeter.Identity) *build {
	b := &build{
		BuildState: BuildState{
			Build: id.Build, Group: id.Group, Started: t, Ticked: t, Ended: t,
			Tracer:     Tracer{StepSeconds: l.opts.Interval.Seconds()},
			Containers: make(map[string]bool),
		},
	}
	b.Build.Machine = l.opts.Machine
	l.equip(b)
	l.builds[id.Build.Key] = b
	return b
}

// equip gives a build its counters and its stager.
func (l *Ledger) equip(b *build) {
	b.cell = l.opts.Tally.Build(tally.BuildLabels{
		CI: b.Build.CI, Project: b.Build.Project, Machine: l.opts.Machine, Runner: b.Build.Runner.Key(),
	})
	b.cell.Started()
	if l.opts.Stager != nil {
		b.stager = l.opts.Stager(b.Build.CI)
	}
}

// adopt makes s a segment of b.
func (l *Ledger) adopt(b *build, s *Segment, t time.Time, container string, id cimeter.Identity) {
	s.build = b
	p := s.part
	p.Segment, p.Role, p.Alongside = b.Segments, id.Role, id.Alongside
	b.Segments++
	l.attach(b, s)
	if !s.data.Pod {
		b.Containers[s.data.Container] = true
	}
	b.Account.Add(&p.Account.Total)
	l.attributed += p.Account.Total.Values[cimeter.CPUTotal]
	if s.data.Started.Before(b.Started) {
		b.Started = s.data.Started
	}
	if s.data.Ended.IsZero() {
		b.open = append(b.open, s)
	} else if s.data.Ended.After(b.Ended) {
		b.Ended = s.data.Ended
	}
	switch {
	case s.data.Baseline.FromBirth:
	case b.Resumed:
		// It began after the checkpoint that the build was taken up from: what it
		// has used is on no account yet, and in no counter of this process.
		p.Account.Total.Add(&s.before)
		b.Account.Total.Add(&s.before)
		if s.pod != nil && s.pod.data.Started.Before(s.data.Started) {
			s.pod.data.Owed.add(&s.before, -1)
		}
	default:
		b.gap(cimeter.Gap{To: s.data.Started, Reason: cimeter.GapBeforeAgent})
		if p.Segment == 0 {
			b.tell(Evidence{Kind: "missed"})
		}
	}
	for _, g := range s.gaps {
		b.gap(g)
	}
	s.gaps = nil
	if id.Stage != "" {
		attempt := 1
		if id.Role != cimeter.RoleCache && id.Role != cimeter.RoleWait && id.Role != cimeter.RolePod && id.Stage != cimeter.StageWaiting {
			attempt = b.attempt(id.Stage, p.Started)
		}
		l.decide(b, p, StageName{Name: id.Stage, Attempt: attempt, Source: p.boundary()})
		return
	}
	p.Staged = true
	b.tell(Evidence{Kind: "started", Segment: p.Segment, Role: id.Role, Container: container})
	l.resolve(b, t)
}

func (l *Ledger) attach(b *build, s *Segment) {
	s.data.Part = len(b.parts)
	b.parts = append(b.parts, s.part)
}

// Close ends the segment at t, after its last sample. exit may come later: SetExit.
func (l *Ledger) Close(s *Segment, t time.Time, exit cimeter.Opt[int]) {
	if !s.data.Ended.IsZero() {
		return
	}
	s.data.Ended = t
	s.part.Exit = exit
	s.part.end(t)
	if b := s.build; b != nil {
		b.open = slices.DeleteFunc(b.open, func(o *Segment) bool { return o == s })
		if t.After(b.Ended) {
			b.Ended = t
		}
		b.tellEnd(s.part, t)
		l.resolve(b, t)
	}
}

// SetExit notes the exit code of a segment's container.
func (l *Ledger) SetExit(s *Segment, t time.Time, code int) {
	if s.part.Exit.Known {
		return
	}
	s.part.Exit = cimeter.Some(code)
	if b := s.build; b != nil {
		b.tellEnd(s.part, t)
		l.resolve(b, t)
	}
}

// Known notes that a container of the build exists: the build is not over
// before it is gone, or quiet for long.
func (l *Ledger) Known(key, container string) {
	if b := l.builds[key]; b != nil {
		b.Containers[container] = true
	}
}

// pullCounts is how long before a build's start its image can have been pulled for it.
const pullCounts = 10 * time.Minute

// Pulled notes that an image of a container of the build was pulled at t. What was
// pulled after it started, or long before, is none of its wait.
func (l *Ledger) Pulled(key string, t time.Time) {
	b := l.builds[key]
	if b == nil || t.After(b.Started) || b.Started.Sub(t) > pullCounts || !t.After(b.Pulled) {
		return
	}
	b.Pulled = t.UTC().Round(0)
}

// Image notes the image of a container that runs the build's commands, as it was asked
// for. The last one stands.
func (l *Ledger) Image(key, image string) {
	if b := l.builds[key]; b != nil && len(image) <= maxImage {
		b.Image = strings.Clone(image)
	}
}

// maxImage bounds the name of an image, in bytes: a longer one is nobody's.
const maxImage = 512

// Gone notes that a container was removed.
func (l *Ledger) Gone(container string) {
	for _, b := range l.builds {
		delete(b.Containers, container)
	}
}

// Gap marks a hole in a build: something of it was not seen.
func (l *Ledger) Gap(key string, g cimeter.Gap) {
	if b := l.builds[key]; b != nil {
		b.gap(g)
	}
}

// SegmentGap marks a hole in the build of s, now or when s is bound.
func (l *Ledger) SegmentGap(s *Segment, g cimeter.Gap) {
	if s.build != nil {
		s.build.gap(g)
		return
	}
	s.gaps = append(s.gaps, g)
}

// Tick ends an interval of every running segment and build at t. machineCPU is
// how long the machine's CPUs have been busy since boot, in nanoseconds, where
// known.
func (l *Ledger) Tick(t time.Time, machineCPU cimeter.Opt[uint64]) {
	limit := max(5*l.opts.Interval, 5*time.Second)
	paused := !l.ticked.IsZero() && t.Sub(l.ticked) > limit
	for _, b := range l.builds {
		paused := paused && !b.Ticked.After(l.ticked)
		if paused {
			b.gap(cimeter.Gap{From: b.Ticked, To: t, Reason: cimeter.GapLongInterval})
		}
		for _, s := range b.open {
			s.part.tick(t, paused)
		}
		b.tick(t, paused)
		l.resolve(b, t)
	}
	l.cover(machineCPU)
	l.ticked = t
}

// cover adds an interval to the coverage of every running build.
func (l *Ledger) cover(machineCPU cimeter.Opt[uint64]) {
	var s cimeter.Sample
	if machineCPU.Known {
		s.SetCounter(cimeter.CPUTotal, machineCPU.Value)
	}
	s.SetCounter(cimeter.CPUUser, l.attributed+l.beside) // rides along: the rise of what was attributed
	var d counter.Delta
	l.machine.Advance(&s, &d)
	busy, ok := d.Get(cimeter.CPUTotal)
	if !ok {
		return
	}
	for _, b := range l.builds {
		b.MachineCPU += busy
		b.CPU += d.Values[cimeter.CPUUser]
	}
}
