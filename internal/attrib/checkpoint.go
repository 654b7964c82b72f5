package attrib

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/tally"
)

// checkpointVersion is the version of the checkpoint's form; another one is refused.
const checkpointVersion = 1

// Snapshot is the state of a running build at one moment. It shares nothing
// with the ledger: it may be marshalled by another goroutine.
type Snapshot struct {
	Version  int
	Build    BuildState
	Parts    []PartState
	Segments []SegmentState // those that run
}

// Marshal returns the snapshot as Restore takes it.
func (s *Snapshot) Marshal() ([]byte, error) { return json.Marshal(s) }

// Checkpoint returns the state of the running build key, from which Restore
// goes on in another process. cimeter.ErrNotFound: no such build runs.
func (l *Ledger) Checkpoint(key string) (*Snapshot, error) {
	b := l.builds[key]
	if b == nil {
		return nil, fmt.Errorf("checkpoint of build %s: %w", key, cimeter.ErrNotFound)
	}
	c := &Snapshot{Version: checkpointVersion, Build: b.BuildState}
	c.Build.Gaps = slices.Clone(b.Gaps)
	c.Build.Evidence = slices.Clone(b.Evidence)
	c.Build.Pieces = slices.Clone(b.Pieces)
	c.Build.Containers = maps.Clone(b.Containers)
	c.Build.Tracer.Steps = slices.Clone(b.Tracer.Steps)
	c.Parts = make([]PartState, 0, len(b.parts))
	for _, p := range b.parts {
		c.Parts = append(c.Parts, p.PartState)
	}
	for _, s := range b.open {
		c.Segments = append(c.Segments, s.data)
	}
	for _, s := range b.restored {
		c.Segments = append(c.Segments, *s)
	}
	return c, nil
}

// Restore takes up a running build from its checkpoint at t. Its segments wait
// to be resumed: Resume those that still run, then Abandon the rest.
func (l *Ledger) Restore(state []byte, t time.Time) error {
	var c Snapshot
	if err := json.Unmarshal(state, &c); err != nil {
		return fmt.Errorf("restore a build: %w: %w", cimeter.ErrInvalid, err)
	}
	key := c.Build.Build.Key
	switch {
	case c.Version != checkpointVersion:
		return fmt.Errorf("restore build %q: checkpoint version %d, want %d: %w", key, c.Version, checkpointVersion, cimeter.ErrInvalid)
	case key == "":
		return fmt.Errorf("restore a build: no key: %w", cimeter.ErrInvalid)
	case l.builds[key] != nil:
		return fmt.Errorf("restore build %s: it runs already: %w", key, cimeter.ErrConflict)
	}
	for _, s := range c.Segments {
		if s.Part < 0 || s.Part >= len(c.Parts) {
			return fmt.Errorf("restore build %s: segment of part %d, want 0 to %d: %w", key, s.Part, len(c.Parts)-1, cimeter.ErrInvalid)
		}
	}
	b := &build{BuildState: c.Build}
	if b.Containers == nil {
		b.Containers = make(map[string]bool)
	}
	l.equip(b)
	for _, e := range b.Evidence {
		if b.stager != nil {
			apply(b.stager, e)
		}
	}
	for _, p := range c.Parts {
		b.parts = append(b.parts, &part{PartState: p})
	}
	for _, s := range c.Segments {
		b.restored = append(b.restored, &s)
	}
	b.notAfter(t)
	b.gap(cimeter.Gap{From: b.Ticked, To: t, Reason: cimeter.GapAgentRestart})
	b.Ticked, b.Resumed = t, true
	l.builds[key] = b
	return nil
}

// notAfter moves times of a restored build that lie after t to it: the clock was
// set back while nobody looked, and a time in the future makes a duration
// negative and a build endless.
func (b *build) notAfter(t time.Time) {
	times := []*time.Time{&b.Started, &b.Ended, &b.Ticked}
	for _, p := range b.parts {
		times = append(times, &p.Started, &p.Ended, &p.Ticked)
	}
	for _, s := range b.restored {
		times = append(times, &s.Started, &s.Ended)
	}
	for _, x := range times {
		if x.After(t) {
			*x = t
		}
	}
}

// Resume returns the segment of a restored build whose container still runs in
// the same cgroup, to be advanced from the counters where it was left; nil if
// there is none.
func (l *Ledger) Resume(container string, inode uint64, t time.Time) *Segment {
	for _, b := range l.builds {
		for i, d := range b.restored {
			if d.Container != container || d.Inode != inode {
				continue
			}
			b.restored = append(b.restored[:i], b.restored[i+1:]...)
			p := b.parts[d.Part]
			p.Ticked = t
			if p.Decided {
				p.key = b.Build.Key
				p.cell = l.opts.Tally.Stage(tally.Labels{
					CI: b.Build.CI, Project: b.Build.Project, Machine: l.opts.Machine, Runner: b.Build.Runner.Key(), Stage: p.Name,
				})
				p.share = p.cell.Share()
			}
			s := &Segment{data: *d, build: b, part: p, resumed: true}
			b.open = append(b.open, s)
			return s
		}
	}
	return nil
}

// Abandon closes the segments that nobody resumed, at the time they were last
// seen: their ends were missed.
func (l *Ledger) Abandon(t time.Time) {
	for _, b := range l.builds {
		for _, d := range b.restored {
			p := b.parts[d.Part]
			p.Ended = p.Ticked
			b.gap(cimeter.Gap{From: p.Ticked, To: t, Reason: cimeter.GapMissedEnd})
			if p.Ended.After(b.Ended) {
				b.Ended = p.Ended
			}
		}
		b.restored = nil
		l.resolve(b, t)
	}
}

// Keep leaves only those containers of restored builds that exist.
func (l *Ledger) Keep(exists func(container string) bool) {
	for _, b := range l.builds {
		for id := range b.Containers {
			if !exists(id) {
				delete(b.Containers, id)
			}
		}
	}
}

// Keys returns the keys of the running builds.
func (l *Ledger) Keys() []string {
	keys := make([]string, 0, len(l.builds))
	for k := range l.builds {
		keys = append(keys, k)
	}
	return keys
}
