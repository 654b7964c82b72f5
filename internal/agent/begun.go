package agent

import (
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/process"
)

// beginning is what is known of a stage's beginning where it was found by looking,
// some time after. Without it what the stage has used until then would be its
// predecessor's. Only CPU time can be told apart: the kernel keeps it by process.
type beginning struct {
	cpu uint64        // nanoseconds that its processes have used
	ago time.Duration // since the first of them began
}

// Of the counters of a sample those that the kernel keeps by process, their sum first.
var ofProcesses = [...]cimeter.Counter{cimeter.CPUTotal, cimeter.CPUUser, cimeter.CPUSystem}

// cpu is the CPU time of a container that is booked, nanoseconds.
func (l *live) cpu() uint64 { return l.booked[0] }

// at notes when a container's processes were looked at, in ticks since the machine
// began.
func (t *turns) at(ticks uint64) { t.looks = [2]uint64{ticks, t.looks[0]} }

// since is when the processes of a stage have begun at the earliest that the next
// look tells as new: those of the stage before were seen by then. What comes after
// waiting may have shown no command line yet when it was seen first. 0: not known.
func (t *turns) since() uint64 {
	if t.stage == cimeter.StageWaiting && t.looks[1] != 0 {
		return t.looks[1]
	}
	return t.looks[0]
}

// begun tells of the stage that a look has found. Its processes are those that were
// not there at the look before: a process that became another one has used what it
// has used in both.
func (m *meter) begun(by *look) beginning {
	if by.since == 0 { // the first look found it
		u, err := m.procs.Used(by.teller)
		if err != nil {
			return beginning{}
		}
		by.since = u.StartTime
	}
	var b beginning
	first := uint64(0)
	for _, pid := range by.pids {
		u, err := m.procs.Used(pid)
		if err != nil || u.StartTime < by.since {
			continue
		}
		if b.cpu += uint64(u.CPU); first == 0 || u.StartTime < first {
			first = u.StartTime
		}
	}
	if first != 0 {
		b.ago = process.Since(first)
	}
	return b
}

// takeFrom takes what the stage has used out of s again, which was read in it; below
// booked nothing falls.
func (b *beginning) takeFrom(s *cimeter.Sample, booked *[len(ofProcesses)]uint64) {
	rise := func(i int) uint64 {
		now, _ := s.Counter(ofProcesses[i])
		return now - min(now, booked[i])
	}
	total := rise(0)
	if b.cpu = min(b.cpu, total); b.cpu == 0 {
		return
	}
	part := float64(b.cpu) / float64(total)
	for i, c := range ofProcesses {
		if r := rise(i); r > 0 {
			now, _ := s.Counter(c)
			s.SetCounter(c, now-min(r, uint64(float64(r)*part)))
		}
	}
}

// giveBack undoes takeFrom: read is the sample as it was read.
func (b *beginning) giveBack(s, read *cimeter.Sample) {
	for _, c := range ofProcesses {
		if v, ok := read.Counter(c); ok {
			s.SetCounter(c, v)
		}
	}
}

// bookHeld books what a container that has ended showed last.
func (m *meter) bookHeld(l *live) {
	if l.turns.held {
		m.advance(l)
	}
}
