// Package section refines the stages of a finished record by the sections of its
// job's log: names and times, and nothing else of it.
//
// A record is immutable, and a log is its author's to forge. So nothing here changes
// a record: [Split] computes from a record and the sections of its log what each
// section spent, whenever somebody wants to see it. What is kept beside a record is a
// [Log], a few KiB of JSON of names and times; better arithmetic serves old builds
// too. Within a stage whose bounds are known better, a section only divides: it never
// moves a bound of the stage, and the parts of a stage add up to it exactly.
//
// How a stage's totals fall on its parts is an estimate, told by the shape over time
// that the record's trace has; [Parts.ErrorSeconds] bounds how far off the borders may be.
//
// It is pure: no input or output, no clock, no state. Start with [Split].
package section

import (
	"cmp"
	"slices"
	"time"

	"github.com/cimeter/cimeter"
)

const (
	// MaxSections bounds the sections of one log: more are no overview.
	MaxSections = 256
	// MaxName bounds a section's name, in bytes.
	MaxName = 128
)

// Section is a span of a log that a marker began, and another ended. Times are by the
// clock of whoever wrote them.
type Section struct {
	Name string    `json:"name"`
	From time.Time `json:"from"`
	To   time.Time `json:"to,omitzero"` // zero: it was never ended
	// Stage says that it has the name of a stage of the runner: whoever wrote it, it is
	// compared with the record's stages and divides none that a better source bounds.
	Stage bool `json:"stage,omitempty"`
}

// Log is what is kept of a job's log.
type Log struct {
	Sections []Section `json:"sections"` // in the order of their start in the log
	// Stamped says that each line has its time, to the microsecond: all times are by
	// the clock of the runner then. Otherwise they are whole seconds of whichever
	// machine the marker was written on.
	Stamped bool `json:"stamped,omitempty"`
	// Dropped is how many sections there were beyond MaxSections.
	Dropped int `json:"dropped,omitempty"`
}

// Part is what one section of a stage, or what is in none of them, spent.
type Part struct {
	Stage     string        `json:"stage"`
	Attempt   int           `json:"attempt"`
	Name      string        `json:"name,omitempty"`  // "" is the time of the stage that no section has
	Depth     int           `json:"depth,omitempty"` // 1 for a section within another
	StartedAt time.Time     `json:"started_at"`      // by the record's clock
	EndedAt   time.Time     `json:"ended_at"`
	Usage     cimeter.Usage `json:"usage"` // wall time and totals
	// MemoryMaxBytes is the largest memory of the whole build meanwhile.
	MemoryMaxBytes cimeter.Opt[uint64] `json:"memory_max_bytes,omitzero"`
}

// Parts are the stages of a record that sections divide.
type Parts struct {
	Source cimeter.Boundary `json:"source"` // trace
	// ErrorSeconds is how far each border may be from where it truly was.
	ErrorSeconds float64 `json:"error_seconds"`
	// ClockSeconds is how far the log's clock is ahead of the record's, as far as
	// stages that both know tell; it is taken off.
	ClockSeconds float64 `json:"clock_seconds,omitempty"`
	Parts        []Part  `json:"parts"`
}

// Divided is a record with what the sections of its log divide its stages into, nil
// where nothing does. Its JSON is the record's, with a member more in the second case.
type Divided struct {
	*cimeter.Record
	Sections *Parts `json:"sections,omitempty"`
}

// span is a part in the making: the innermost section of a time.
type span struct {
	from, to time.Time
	name     string
	depth    int
}

// Split divides the stages of r at the borders of the sections of its log. A stage
// without a section within it has no part; services, which run beside the others,
// have none. ok is false when no stage is divided.
func Split(r *cimeter.Record, log Log) (p Parts, ok bool) {
	p.Source = cimeter.BoundaryTrace
	ahead, slack := align(r, log)
	p.ClockSeconds = ahead.Seconds()
	p.ErrorSeconds = slack.Seconds()
	if log.Stamped {
		p.ErrorSeconds += 0.1 // from the job's write to the runner's read
	} else {
		p.ErrorSeconds += 1 // whole seconds, cut
	}
	sections := closed(r, log, ahead)
	for i := range r.Stages {
		s := &r.Stages[i]
		if s.Alongside || !s.EndedAt.After(s.StartedAt) {
			continue
		}
		spans := within(s, sections)
		if len(spans) < 2 {
			continue
		}
		p.Parts = append(p.Parts, divide(r, s, spans)...)
	}
	return p, len(p.Parts) > 0
}

// closed brings sections to the record's clock and ends those that were broken off
// where what is around them ends. What does not fit into another is cut there.
func closed(r *cimeter.Record, log Log, ahead time.Duration) []Section {
	out := make([]Section, 0, min(len(log.Sections), MaxSections))
	for _, s := range log.Sections[:min(len(log.Sections), MaxSections)] {
		shift := ahead
		if !log.Stamped && !s.Stage {
			shift = 0 // the job's own clock is that of the machine, as the record's is
		}
		s.From = s.From.Add(-shift)
		if s.To.IsZero() {
			s.To = r.EndedAt
		} else {
			s.To = s.To.Add(-shift)
		}
		if s.To.After(s.From) {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b Section) int {
		return cmp.Or(a.From.Compare(b.From), b.To.Compare(a.To))
	})
	return out
}

// within are the spans of a stage, one after another from its start to its end.
func within(s *cimeter.Stage, sections []Section) []span {
	var stack []Section
	var spans []span
	at := s.StartedAt
	emit := func(to time.Time) {
		if !to.After(at) {
			return
		}
		part := span{from: at, to: to}
		if n := len(stack); n > 0 {
			part.name, part.depth = stack[n-1].Name, n-1
		}
		if n := len(spans); n > 0 && spans[n-1].name == part.name && spans[n-1].depth == part.depth {
			spans[n-1].to = to
		} else {
			spans = append(spans, part)
		}
		at = to
	}
	for _, c := range sections {
		if c.Stage && s.Boundary != cimeter.BoundaryOrder || !c.From.Before(s.EndedAt) || !c.To.After(s.StartedAt) {
			continue
		}
		c.From, c.To = latest(c.From, s.StartedAt), earliest(c.To, s.EndedAt)
		for len(stack) > 0 && !stack[len(stack)-1].To.After(c.From) {
			emit(stack[len(stack)-1].To)
			stack = stack[:len(stack)-1]
		}
		emit(c.From)
		if len(stack) > 0 {
			c.To = earliest(c.To, stack[len(stack)-1].To)
		}
		stack = append(stack, c)
	}
	for ; len(stack) > 0; stack = stack[:len(stack)-1] {
		emit(stack[len(stack)-1].To)
	}
	emit(s.EndedAt)
	if len(spans) == 1 && spans[0].name != "" {
		return nil // a section that is the stage says nothing more
	}
	return spans
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// maxAhead is the farthest that clocks are believed to be apart; what is more is forged.
const maxAhead = 48 * time.Hour

// align compares the sections that runner and record both have, by name: how far the
// log's clock is ahead (their median), and how far they disagree about it. A stage
// begins with its container in the record, and with the runner's marker in the log.
func align(r *cimeter.Record, log Log) (ahead, slack time.Duration) {
	starts := make(map[string]time.Time)
	for i := range r.Stages {
		s := &r.Stages[i]
		if at, ok := starts[s.Name]; !s.Alongside && (!ok || s.StartedAt.Before(at)) {
			starts[s.Name] = s.StartedAt
		}
	}
	var apart []time.Duration
	seen := make(map[string]bool)
	for _, c := range log.Sections {
		at, ok := starts[c.Name]
		if !ok || !c.Stage || seen[c.Name] {
			continue
		}
		seen[c.Name] = true
		if d := c.From.Sub(at); d.Abs() < maxAhead {
			apart = append(apart, d)
		}
	}
	if len(apart) == 0 {
		return 0, 0
	}
	slices.Sort(apart)
	ahead = apart[len(apart)/2]
	for _, d := range apart[len(apart)/4 : len(apart)-len(apart)/4] { // one forged section moves nothing
		slack = max(slack, (d - ahead).Abs())
	}
	if !log.Stamped && ahead.Abs() < 2*time.Second {
		return 0, slack // whole seconds tell no less
	}
	return ahead, slack
}
