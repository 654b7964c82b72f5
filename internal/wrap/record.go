package wrap

import (
	"fmt"
	"time"

	"github.com/cimeter/cimeter"
)

// commandStage names the only stage of a run that names none.
const commandStage = "command"

// makeRecord renders the account of a run that ended at end and spent u.
func makeRecord(o *Options, m *meter, u cimeter.Usage, limits *cimeter.Limits, inner []cimeter.Stage, e ending, end time.Time, left int) cimeter.Record {
	wall := end.Sub(m.started)
	start := m.started.UTC().Round(0)
	r := cimeter.Record{
		Schema: cimeter.RecordSchema, Build: identify(o, m.started),
		StartedAt: start, EndedAt: start.Add(wall),
		Result: result(e), Complete: left == 0, Gaps: []cimeter.Gap{},
		Limits: limits, Usage: u, Trace: m.tracer.Trace(),
	}
	if left > 0 {
		r.Gaps = append(r.Gaps, cimeter.Gap{From: r.EndedAt, To: r.EndedAt, Reason: cimeter.GapMissedEnd})
	}
	name := clean(o.Stage)
	whole := cimeter.Stage{
		Name: name, Attempt: 1, Boundary: cimeter.BoundaryCommand,
		StartedAt: r.StartedAt, EndedAt: r.EndedAt, ExitCode: exitCode(e), Usage: r.Usage,
	}
	if len(inner) == 0 {
		if whole.Name == "" {
			whole.Name = commandStage
		}
		r.Stages = []cimeter.Stage{whole}
	} else {
		r.Stages = withRest(whole, inner, r.StartedAt, r.EndedAt)
	}
	r.Verdicts = verdicts(&r)
	return r
}

// withRest returns inner, named below whole where whole has a name, and what
// of whole they leave.
func withRest(whole cimeter.Stage, inner []cimeter.Stage, start, end time.Time) []cimeter.Stage {
	u, some := rest(&whole.Usage, inner, start, end)
	stages := make([]cimeter.Stage, 0, len(inner)+1)
	for _, s := range inner {
		if whole.Name != "" {
			s.Name = clean(whole.Name + "/" + s.Name)
		}
		stages = append(stages, s)
	}
	if some {
		if whole.Name == "" {
			whole.Name = restName
		}
		whole.Usage = u
		stages = append(stages, whole)
	}
	return stages
}

// result is told by the exit status.
func result(e ending) string {
	switch {
	case e.err != nil:
		return ""
	case e.status.Exited() && e.status.ExitStatus() == 0:
		return "success"
	}
	return "failed"
}

// exitCode is the command's as a shell tells it: 128 and the signal's number
// for one that a signal ended.
func exitCode(e ending) cimeter.Opt[int] {
	switch {
	case e.err != nil:
		return cimeter.Opt[int]{}
	case e.status.Signaled():
		return cimeter.Some(128 + int(e.status.Signal()))
	}
	return cimeter.Some(e.status.ExitStatus())
}

// throttledShare is the share of periods from which on throttling is a finding.
const throttledShare = 0.05

func verdicts(r *cimeter.Record) []cimeter.Verdict {
	var v []cimeter.Verdict
	for i := range r.Stages {
		s := &r.Stages[i]
		u := &s.Usage
		if kills := u.OOMKills.Value + u.OOMKillsNested.Value; kills > 0 {
			v = append(v, cimeter.Verdict{Kind: "oom", Stage: s.Name, Evidence: oomEvidence(u, r.Limits, kills)})
		}
		if n, t := u.CPUPeriods.Value, u.CPUThrottledPeriods.Value; n > 0 && float64(t)/float64(n) > throttledShare {
			v = append(v, cimeter.Verdict{Kind: "throttled", Stage: s.Name, Evidence: fmt.Sprintf(
				"throttled in %d of %d periods (%.0f %%), for %.1f s", t, n, 100*float64(t)/float64(n), u.CPUThrottledSeconds.Value)})
		}
	}
	return v
}

func oomEvidence(u *cimeter.Usage, l *cimeter.Limits, kills uint64) string {
	what := "a process was killed"
	if kills > 1 {
		what = fmt.Sprintf("%d processes were killed", kills)
	}
	if u.MemoryBytes != nil && u.MemoryBytes.Peak.Known {
		what += " at " + mebibytes(u.MemoryBytes.Peak.Value)
		if l != nil && l.MemoryBytes.Known {
			what += fmt.Sprintf(" of %s set by %s", mebibytes(l.MemoryBytes.Value), l.MemorySetBy)
		}
	}
	return what
}

func mebibytes(b uint64) string {
	if b >= 1<<30 {
		return fmt.Sprintf("%.2f GiB", float64(b)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(b)/(1<<20))
}
