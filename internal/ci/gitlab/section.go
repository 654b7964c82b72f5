package gitlab

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"github.com/cimeter/cimeter/internal/section"
)

const (
	// maxMarker bounds a marker: section_start, a time, a name and options.
	maxMarker = 1024
	// maxHeld is how much of a line is held back, in case a marker goes on in the next
	// piece of the log.
	maxHeld = 2 * maxMarker
	// maxStreams bounds the streams of a log with times whose lines are joined.
	maxStreams = 8
	// maxOpen bounds how deep sections are within each other.
	maxOpen = 64
)

// stageNames are the runner's own stages (shells/trace sections of common/executor
// and shell). A section of one of these names is the runner's or forged.
var stageNames = [...]string{
	"prepare_executor", "prepare_script", "get_sources", "clear_worktree", "restore_cache", "download_artifacts", "build_script", "step_script",
	"step_release", "after_script", "archive_cache", "archive_cache_on_failure", "upload_artifacts_on_success", "upload_artifacts_on_failure",
	"cleanup_file_variables",
}

// Sections reads the log of a job as it comes and keeps the names and times of its
// sections:
//
//	section_start:1560896352:my_first_section[collapsed=true]\r\x1b[0KHeader
//	section_end:1560896353:my_first_section\r\x1b[0K
//	2021-01-01T01:00:00.020010Z 01O section_start:123:foo\r\x1b[0K
//	2021-01-01T02:00:00.020010Z 01O+section_end:123:foo\r\x1b[0K
//
// A log with a time before each line gives the time of the line, not that of the
// marker; "+" continues the line before it of the same stream. What the server itself
// shows as no section is none: letters where a time belongs, no \r\x1b[0K. A marker
// that ends what is not open, or closes a stage of the runner from within, changes
// nothing. The zero value is ready; not safe for use from several goroutines.
type Sections struct {
	log     section.Log
	open    []int // indexes of log.Sections, -1 for one that is not kept
	names   []string
	line    []byte // what is held of the line that is being read
	started bool   // line holds its beginning no more
	stamp   time.Time
	stream  string
	tails   map[string][]byte
	plus    bool
	stamped int
	markers int
}

// Write reads the next piece of the log. It always takes all of it.
func (s *Sections) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			s.line = append(s.line, p...)
			s.spill()
			break
		}
		s.line = append(s.line, p[:i]...)
		p = p[i+1:]
		s.endLine()
	}
	return n, nil
}

// Log ends the log and returns its sections. What is still open was broken off.
func (s *Sections) Log() section.Log {
	s.endLine()
	log := s.log
	log.Stamped = s.markers > 0 && s.stamped == s.markers
	log.Sections = slices.Clone(log.Sections)
	return log
}

// spill reads a long line in pieces: its last bytes stay, in case a marker goes on.
func (s *Sections) spill() {
	if len(s.line) < 8*maxHeld {
		return
	}
	s.begin()
	done := s.scan(s.line, false)
	s.line = append(s.line[:0], s.line[done:]...)
}

func (s *Sections) endLine() {
	if len(s.line) > 0 || s.started {
		s.begin()
		s.scan(s.line, true)
		if s.stream != "" {
			s.keepTail()
		}
	}
	s.line, s.started, s.plus, s.stream, s.stamp = s.line[:0], false, false, "", time.Time{}
}

// keepTail keeps the end of a line with a time, in case the next of its stream
// continues it in the middle of a marker.
func (s *Sections) keepTail() {
	if s.tails == nil {
		s.tails = make(map[string][]byte)
	}
	if _, ok := s.tails[s.stream]; !ok && len(s.tails) >= maxStreams {
		return
	}
	tail := s.line
	if i := bytes.LastIndex(tail, []byte("section_")); i >= 0 && !complete(tail[i:]) {
		tail = tail[i:]
	} else {
		tail = tail[max(0, len(tail)-len("section_")):]
	}
	if len(tail) > maxMarker {
		tail = nil
	}
	s.tails[s.stream] = append(s.tails[s.stream][:0], tail...)
}

// complete reports whether a marker is whole, or can be none.
func complete(b []byte) bool {
	_, n := parseMarker(b)
	return n > 0
}

// begin reads the time before a line.
func (s *Sections) begin() {
	if s.started {
		return
	}
	s.started = true
	const form = "2006-01-02T15:04:05.000000Z 00O "
	b := s.line
	if len(b) < len(form) || b[27] != ' ' || b[30] != 'O' && b[30] != 'E' || b[31] != ' ' && b[31] != '+' {
		return
	}
	t, err := time.Parse("2006-01-02T15:04:05.000000Z", string(b[:27]))
	if err != nil || !hexByte(b[28]) || !hexByte(b[29]) {
		return
	}
	s.stamp, s.stream, s.plus = t, string(b[28:31]), b[31] == '+'
	rest := b[len(form):]
	if tail := s.tails[s.stream]; s.plus && len(tail) > 0 {
		rest = append(slices.Clone(tail), rest...)
	}
	s.line = append(s.line[:0], rest...)
}

func hexByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// scan takes the markers of a part of a line, and returns how much of it is read for good.
func (s *Sections) scan(b []byte, whole bool) (done int) {
	for {
		i := bytes.Index(b[done:], []byte("section_"))
		if i < 0 {
			break
		}
		done += i
		m, n := parseMarker(b[done:])
		if n == 0 { // not whole
			if !whole && len(b)-done < maxMarker {
				return done
			}
			n = len("section_")
		}
		if m.name != "" {
			s.take(m)
		}
		done += n
	}
	return max(done, len(b)-len("section_"))
}

type marker struct {
	start bool
	at    int64 // seconds since 1970
	name  string
}

// parseMarker reads a marker at the beginning of b. n is 0 where b ends in the middle
// of one; without a name it is none.
func parseMarker(b []byte) (m marker, n int) {
	rest, short := b, false
	literal := func(text string) bool {
		k := min(len(text), len(rest))
		if string(rest[:k]) != text[:k] {
			return false
		}
		if k < len(text) {
			short = true
			return false
		}
		rest = rest[k:]
		return true
	}
	while := func(ok func(byte) bool, most int) []byte {
		k := 0
		for k < len(rest) && k < most && ok(rest[k]) {
			k++
		}
		short = short || k == len(rest)
		text := rest[:k]
		rest = rest[k:]
		return text
	}
	none := func() (marker, int) {
		if short && len(b) < maxMarker {
			return marker{}, 0
		}
		return marker{}, len("section_")
	}
	if !literal("section_") {
		return none()
	}
	if m.start = literal("start:"); !m.start {
		if short || !literal("end:") {
			return none()
		}
	}
	digits := while(func(c byte) bool { return c >= '0' && c <= '9' }, 18)
	at, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || !literal(":") {
		return none()
	}
	name := while(func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-'
	}, section.MaxName+1)
	if len(rest) > 0 && rest[0] == '[' {
		while(func(c byte) bool { return c != ']' && c >= ' ' }, maxMarker/2)
		if !literal("]") {
			return none()
		}
	}
	if !literal("\r\x1b[0K") || len(name) == 0 || len(name) > section.MaxName {
		return none()
	}
	m.at, m.name = at, string(name)
	return m, len(b) - len(rest)
}

// take opens or closes a section.
func (s *Sections) take(m marker) {
	at := time.Unix(m.at, 0).UTC()
	s.markers++
	if !s.stamp.IsZero() {
		s.stamped++
		at = s.stamp
	}
	if at.Year() < 2000 || at.Year() > 9000 {
		return
	}
	isStage := slices.Contains(stageNames[:], m.name)
	if !m.start {
		s.end(m.name, at, isStage)
		return
	}
	if isStage { // one stage follows another: what is still open was broken off
		s.closeFrom(0, time.Time{})
	}
	if len(s.open) >= maxOpen {
		s.log.Dropped++
		return
	}
	index := -1
	if len(s.log.Sections) < section.MaxSections {
		index = len(s.log.Sections)
		s.log.Sections = append(s.log.Sections, section.Section{Name: m.name, From: at, Stage: isStage})
	} else {
		s.log.Dropped++
	}
	s.open, s.names = append(s.open, index), append(s.names, m.name)
}

// end closes the innermost open section of a name, and what was left open in it.
func (s *Sections) end(name string, at time.Time, isStage bool) {
	i := len(s.names) - 1
	for i >= 0 && s.names[i] != name {
		i--
	}
	if i < 0 {
		// A stage whose end was already told: the last one is the runner's.
		if isStage {
			for k := len(s.log.Sections) - 1; k >= 0; k-- {
				if c := &s.log.Sections[k]; c.Name == name {
					c.To = latestOf(c.To, at)
					return
				}
			}
		}
		return
	}
	s.closeFrom(i, at)
}

func (s *Sections) closeFrom(i int, at time.Time) {
	for k := i; k < len(s.open); k++ {
		if x := s.open[k]; x >= 0 && !at.IsZero() {
			c := &s.log.Sections[x]
			c.To = latestOf(c.From, at)
		}
	}
	s.open, s.names = s.open[:i], s.names[:i]
}

func latestOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
