package summary

import (
	"fmt"
	"strings"

	"github.com/cimeter/cimeter"
)

// Thresholds of the advice.
const (
	throttledShare = 0.05 // of CFS periods: below it a burst now and then, nothing to act on
	memoryShare    = 0.90 // of the limit: what jobs of the same kind exceed by chance
	anonShare      = 0.50 // of the limit: below it the peak was page cache, which the kernel takes back
	diskShare      = 0.10 // of a stage's time in which all of it waited for disk
	diskSeconds    = 1.0  // below it nobody waits
)

// ioLine is: read 1.58 GiB, written 2.00 GiB; 41,210 operations, avg 163, max 2,140/s.
func ioLine(u *cimeter.Usage) string { return strings.Join(ioParts(u), "; ") }

// ioParts are the bytes and the operations, where known.
func ioParts(u *cimeter.Usage) []string {
	var parts []string
	if b := u.IOBytes; b != nil {
		parts = append(parts, fmt.Sprintf("read %s, written %s", size(float64(b.Read)), size(float64(b.Write))))
	}
	if n := u.IOOperations; n != nil {
		s := thousands(float64(n.Read)+float64(n.Write)) + " operations"
		if p := u.IOOperationsPerSecond; p != nil {
			avg, largest := both(p.Read, p.Write)
			s += fmt.Sprintf(", avg %s, max %s/s", rate(avg), rate(largest))
		}
		parts = append(parts, s)
	}
	return parts
}

// netLine is: received 1.18 GiB, sent 167 MiB; avg 5.4 MiB/s, max 96 MiB/s.
func netLine(u *cimeter.Usage) string {
	if u.NetworkBytes == nil {
		return ""
	}
	s := fmt.Sprintf("received %s, sent %s", size(float64(u.NetworkBytes.Receive)), size(float64(u.NetworkBytes.Transmit)))
	if p := u.NetworkBytesPerSecond; p != nil {
		avg, largest := both(p.Receive, p.Transmit)
		s += fmt.Sprintf("; avg %s, max %s", perSecond(avg), perSecond(largest))
	}
	return s
}

// circumstances are what was around the build, each only when it is known and
// there is something to say.
func circumstances(r *cimeter.Record) []string {
	var parts []string
	if q := queued(r); q.Known {
		parts = append(parts, "queue  "+seconds(q.Value))
	}
	if c, ok := r.Coverage.Get(); ok {
		parts = append(parts, fmt.Sprintf("coverage %.1f %%", 100*c))
	}
	if t := r.Usage.CPUThrottledSeconds; t.Value > 0 {
		parts = append(parts, "throttled "+seconds(t.Value))
	}
	return parts
}

// note is a line after the totals.
type note struct{ label, text string }

// notes are what a reader should know or try, the most urgent first.
func notes(r *cimeter.Record) []note {
	var ns []note
	if !r.Complete {
		ns = append(ns, note{"gaps", gapText(r)})
	}
	for _, v := range r.Verdicts {
		if v.Kind != "oom" && v.Kind != "throttled" {
			text := name(v.Kind, 16)
			if v.Stage != "" {
				text += " in " + name(v.Stage, 24)
			}
			ns = append(ns, note{"note", text + ": " + v.Evidence})
		}
	}
	ns = append(ns, partNotes(r)...)
	ns = append(ns, tries(r)...)
	if len(ns) > maxNotes {
		ns = ns[:maxNotes]
	}
	return ns
}

// gapText names what was not seen of a build.
func gapText(r *cimeter.Record) string {
	if r.Metered == cimeter.Some(false) {
		return "no agent metered it: this is what its CI server told"
	}
	if len(r.Gaps) == 0 {
		return "incomplete: some of it was not seen"
	}
	g := r.Gaps[0]
	s := "incomplete: " + gapWords(g.Reason)
	if d := g.To.Sub(g.From); !g.From.IsZero() && d > 0 {
		s += " (" + seconds(d.Seconds()) + ")"
	}
	if n := len(r.Gaps) - 1; n > 0 {
		s += fmt.Sprintf(", and %d more", n)
	}
	return s
}

// gapWords says a gap's reason in words; one that this version does not know
// stands as it is.
func gapWords(reason string) string {
	switch reason {
	case cimeter.GapBeforeAgent:
		return "before the agent started"
	case cimeter.GapAgentRestart:
		return "the agent restarted"
	case cimeter.GapMissedEnd:
		return "its end was not seen"
	case cimeter.GapLongInterval:
		return "sampling paused"
	case cimeter.GapMissedSegment:
		return "a container was not seen"
	case cimeter.GapNoCgroup:
		return "a container has no cgroup: not metered"
	}
	return name(reason, 32)
}

// tries advise by evidence alone: at most one line for memory and one for CPU,
// of the stage it hit most.
func tries(r *cimeter.Record) []note {
	var ns []note
	limit, limited := memoryLimit(r)
	if stage, ok := killed(r); ok {
		if stage == "" {
			stage = "it"
		}
		ns = append(ns, note{"try", "give " + name(stage, 24) + " more memory, or let it run fewer jobs at once"})
	} else if s := fullest(r); s != nil && limited {
		ns = append(ns, note{"try", fmt.Sprintf("more memory: %s peaked at %s of %s",
			name(s.Name, 24), percent(peak(&s.Usage).Value/limit), size(limit))})
	}
	if s, waited := waitedForDisk(r); s != nil {
		ns = append(ns, note{"try", fmt.Sprintf("cache less or a faster disk: %s waited %s for disk", name(s.Name, 24), seconds(waited))})
	}
	if s, share := throttled(r); s != nil {
		cores := "CPU than it may use"
		if limit, ok := cpuLimit(r); ok {
			cores = "than " + short(limit) + " cores"
			if limit == 1 {
				cores = "than 1 core"
			}
		}
		ns = append(ns, note{"try", fmt.Sprintf("%s wanted more %s for %s of its time", name(s.Name, 24), cores, percent(share))})
	}
	return ns
}

// waitedForDisk is the stage that waited for disk longest, if it matters, and the
// seconds in which nothing in it went on for that reason (io.pressure, full).
func waitedForDisk(r *cimeter.Record) (*cimeter.Stage, float64) {
	var worst *cimeter.Stage
	most := diskSeconds
	for i := range r.Stages {
		s := &r.Stages[i]
		if s.Alongside || s.Usage.PressureSeconds == nil {
			continue
		}
		waited := s.Usage.PressureSeconds.IOFull
		took := wall(&s.Usage, s.StartedAt, s.EndedAt)
		if waited.Known && took.Known && waited.Value >= most && waited.Value >= diskShare*took.Value {
			worst, most = s, waited.Value
		}
	}
	return worst, most
}

// fullest is the stage that came closest to the memory limit, if close enough.
func fullest(r *cimeter.Record) *cimeter.Stage {
	limit, ok := memoryLimit(r)
	if !ok || limit == 0 {
		return nil
	}
	var worst *cimeter.Stage
	for i := range r.Stages {
		s := &r.Stages[i]
		p := peak(&s.Usage)
		if !p.Known || p.Value < memoryShare*limit || worst != nil && p.Value <= peak(&worst.Usage).Value {
			continue
		}
		if a := s.Usage.MemoryAnonBytes; a != nil && a.Max < anonShare*limit {
			continue
		}
		worst = s
	}
	return worst
}

// throttled is the stage that was throttled most, if it matters, and the share
// of the enforcement periods in which it was.
func throttled(r *cimeter.Record) (*cimeter.Stage, float64) {
	var worst *cimeter.Stage
	most := throttledShare
	for i := range r.Stages {
		u := &r.Stages[i].Usage
		if !u.CPUPeriods.Known || !u.CPUThrottledPeriods.Known || u.CPUPeriods.Value == 0 {
			continue
		}
		if share := float64(u.CPUThrottledPeriods.Value) / float64(u.CPUPeriods.Value); share > most {
			worst, most = &r.Stages[i], share
		}
	}
	return worst, most
}
