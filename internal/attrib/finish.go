package attrib

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/tally"
)

// Finish removes the builds that are over at t from the ledger and returns
// their records.
func (l *Ledger) Finish(t time.Time) []*cimeter.Record {
	var done []*cimeter.Record
	for key, b := range l.builds {
		if b.over(t, &l.opts) {
			done = append(done, l.finish(b))
			delete(l.builds, key)
			l.finished[key] = b.Ended
		}
	}
	if len(done) > 0 {
		for key, ended := range l.finished {
			if t.Sub(ended) > rememberFinished {
				delete(l.finished, key)
			}
		}
	}
	slices.SortFunc(done, func(a, b *cimeter.Record) int {
		return cmp.Or(a.EndedAt.Compare(b.EndedAt), cmp.Compare(a.Key, b.Key))
	})
	return done
}

func (l *Ledger) finish(b *build) *cimeter.Record {
	late := b.Ended.Add(decideAfter) // nothing is waited for any longer
	for _, p := range b.parts {
		b.tellEnd(p, late)
	}
	if b.stager != nil {
		b.stager.Finish()
	}
	l.resolve(b, late)
	if b.Ended.After(b.Ticked) {
		b.tick(b.Ended, false)
	}
	r := b.record(b.Ended)
	r.Result = b.result()
	r.Trace = b.Tracer.Trace()
	b.cell.EndedOf(tally.Exemplar{Build: r.Key, At: r.EndedAt}, r.Result, r.Usage.WallSeconds, cimeter.Opt[float64]{})
	return r
}

// Running is the account of a build that runs, as it stands: no result, no
// trace, Complete as far as is known, EndedAt the time of asking.
type Running struct {
	*cimeter.Record
	Stage       string              // that runs now; "" between two
	MemoryBytes cimeter.Opt[uint64] // of all its containers at the last tick
}

// Running returns the accounts of the builds that run as they stand at t, the
// longest running first.
func (l *Ledger) Running(t time.Time) []Running {
	running := make([]Running, 0, len(l.builds))
	for _, b := range l.builds {
		r := Running{Record: b.record(t), MemoryBytes: b.Account.Now[levelMemory]}
		for _, p := range b.parts {
			if !p.Ended.IsZero() || p.Alongside {
				continue
			}
			if r.Stage = p.Name; !p.Decided {
				r.Stage, _, _ = b.guess(&p.PartState)
			}
		}
		running = append(running, r)
	}
	slices.SortFunc(running, func(a, b Running) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.Key, b.Key))
	})
	return running
}

// record renders the build as it stands at end, and changes nothing of it.
func (b *build) record(end time.Time) *cimeter.Record {
	wall := end.Sub(b.Started)
	account := b.Account
	account.Tick(end.Sub(b.Ticked), false)
	r := &cimeter.Record{
		Schema: cimeter.RecordSchema, Build: b.Build,
		StartedAt: b.Started.UTC().Round(0), EndedAt: b.Started.Add(wall).UTC().Round(0),
		ImagePulledAt: b.Pulled, Image: b.Image, Gaps: append([]cimeter.Gap{}, b.Gaps...), Complete: len(b.Gaps) == 0, Usage: account.Usage(wall),
	}
	if r.Build.Attempt == 0 {
		r.Build.Attempt = 1
	}
	if b.MachineCPU > 0 {
		r.Coverage = cimeter.Some(min(1, float64(b.CPU)/float64(b.MachineCPU)))
	}
	r.Limits = b.limits()
	r.Stages = b.stages(end)
	r.Parts = b.recordParts(end)
	r.Usage.NotMetered = notMetered(r.Stages)
	if r.Usage.NetworkBytes != nil && r.Usage.NotMetered["network_bytes"] == NetworkOfPod {
		delete(r.Usage.NotMetered, "network_bytes")
	}
	raisePeak(r)
	r.Verdicts = b.verdicts(r)
	return r
}

// raisePeak makes the build's peak at least that of each of its stages: between
// two ticks only the kernel sees a container's maximum.
func raisePeak(r *cimeter.Record) {
	for _, s := range r.Stages {
		m := s.Usage.MemoryBytes
		if m == nil {
			continue
		}
		t := r.Usage.MemoryBytes
		if t == nil {
			t = &cimeter.MemoryStat{Stat: m.Stat}
			r.Usage.MemoryBytes = t
		}
		t.Max = max(t.Max, m.Max)
		if m.Peak.Known && (!t.Peak.Known || m.Peak.Value > t.Peak.Value) {
			t.Peak = m.Peak
		}
	}
	if t := r.Usage.MemoryBytes; t != nil && t.Peak.Known && uint64(t.Max) > t.Peak.Value {
		t.Peak.Value = uint64(t.Max)
	}
}

// limits are those of the container that runs the user's commands, else of the
// first container that has any.
func (b *build) limits() *cimeter.Limits {
	var first *part
	for _, p := range b.parts {
		if p.Limits != (cimeter.Limits{}) && (first == nil || first.Role != cimeter.RoleBuild && p.Role == cimeter.RoleBuild) {
			first = p
		}
	}
	if first == nil {
		return nil
	}
	limits := first.Limits
	for _, p := range b.parts { // some are found out when another stage of the container runs
		if p.Segment != first.Segment {
			continue
		}
		if !limits.CPUCores.Known {
			limits.CPUCores = p.Limits.CPUCores
		}
		if !limits.MemoryBytes.Known {
			limits.MemoryBytes, limits.MemorySetBy = p.Limits.MemoryBytes, p.Limits.MemorySetBy
		}
		if limits.Requested == (cimeter.Requests{}) {
			limits.Requested = p.Limits.Requested
		}
	}
	return &limits
}

// stages merges parts of the same name and attempt, as they stand at end, in the
// order of their start.
func (b *build) stages(end time.Time) []cimeter.Stage {
	type key struct {
		name    string
		attempt int
	}
	merged := make(map[key]*PartState)
	var order []*PartState
	for _, running := range b.parts {
		p := running.PartState
		if p.Ended.IsZero() {
			p.Account.Tick(end.Sub(p.Ticked), false)
			p.Ended = end
		}
		if !p.Decided {
			p.Name, p.Attempt, p.Source = b.guess(&p)
		}
		k := key{p.Name, p.Attempt}
		m, ok := merged[k]
		if !ok && len(order) >= maxStages {
			p.Name, p.Attempt = tally.Other, 1
			if p.Alongside {
				p.Name = "service:" + tally.Other
			}
			k = key{p.Name, 1}
			m, ok = merged[k]
		}
		if !ok {
			merged[k] = &p
			order = append(order, &p)
			continue
		}
		m.Account.Merge(&p.Account)
		if p.Started.Before(m.Started) {
			m.Started = p.Started
		}
		if p.Ended.After(m.Ended) {
			m.Ended = p.Ended
		}
		if p.Exit.Known && p.Exit.Value != 0 || !m.Exit.Known {
			m.Exit = p.Exit
		}
	}
	slices.SortStableFunc(order, func(x, y *PartState) int {
		if x.Alongside != y.Alongside {
			if y.Alongside {
				return -1
			}
			return 1
		}
		return x.Started.Compare(y.Started)
	})
	stages := make([]cimeter.Stage, 0, len(order))
	for _, p := range order {
		wall := p.Ended.Sub(p.Started)
		from := b.Started.Add(p.Started.Sub(b.Started)) // durations by the monotonic clock
		stages = append(stages, cimeter.Stage{
			Name: p.Name, Attempt: p.Attempt, Boundary: p.Source, Alongside: p.Alongside, ExitCode: p.Exit,
			StartedAt: from.UTC().Round(0), EndedAt: from.Add(wall).UTC().Round(0), Usage: usage(p, wall),
		})
	}
	return stages
}

// usage renders what a part spent in wall time, with the reasons for what it lacks.
func usage(p *PartState, wall time.Duration) cimeter.Usage {
	u := p.Account.Usage(wall)
	u.NotMetered = p.NotMetered
	return u
}

// notMetered gathers the reasons of all stages for the build.
func notMetered(stages []cimeter.Stage) map[string]string {
	var all map[string]string
	for _, s := range stages {
		for member, reason := range s.Usage.NotMetered {
			if all == nil {
				all = make(map[string]string)
			}
			all[member] = reason
		}
	}
	return all
}

// guess returns the best name there is of a part whose name is open.
func (b *build) guess(p *PartState) (name string, attempt int, source cimeter.Boundary) {
	if b.stager != nil && p.Staged {
		if n := b.stager.Stage(p.Segment); n.Name != "" {
			return n.Name, n.Attempt, n.Source
		}
	}
	return "unknown", 1, cimeter.BoundaryOrder
}

// result is told by exit codes: the last attempt of each stage counts, but for
// services and for after_script, which do not decide a job. No exit code at
// all tells nothing.
func (b *build) result() string {
	last := make(map[string]*part)
	for _, p := range b.parts {
		if p.Alongside || p.Name == "after_script" || !p.Exit.Known {
			continue
		}
		if q := last[p.Name]; q == nil || p.Attempt >= q.Attempt {
			last[p.Name] = p
		}
	}
	if len(last) == 0 {
		return ""
	}
	for _, p := range last {
		if p.Exit.Value != 0 {
			return "failed"
		}
	}
	return "success"
}

// throttledShare is the share of periods from which on throttling is a finding.
const throttledShare = 0.05

func (b *build) verdicts(r *cimeter.Record) []cimeter.Verdict {
	var v []cimeter.Verdict
	for _, s := range r.Stages {
		u := &s.Usage
		if kills := u.OOMKills.Value + u.OOMKillsNested.Value; kills > 0 {
			v = append(v, cimeter.Verdict{Kind: "oom", Stage: s.Name, Evidence: b.oomEvidence(&s, kills)})
		}
		if n, t := u.CPUPeriods.Value, u.CPUThrottledPeriods.Value; n > 0 && float64(t)/float64(n) > throttledShare {
			v = append(v, cimeter.Verdict{Kind: "throttled", Stage: s.Name, Evidence: fmt.Sprintf(
				"throttled in %d of %d periods (%.0f %%), for %.1f s", t, n, 100*float64(t)/float64(n), u.CPUThrottledSeconds.Value)})
		}
	}
	if b.Disputed > 0 {
		v = append(v, cimeter.Verdict{Kind: "disputed", Evidence: fmt.Sprintf(
			"%d containers claimed this build and were not booked on it", b.Disputed)})
	}
	return v
}

func (b *build) oomEvidence(s *cimeter.Stage, kills uint64) string {
	var lim cimeter.Limits
	for _, p := range b.parts {
		if p.Name == s.Name && p.Attempt == s.Attempt && p.Limits.MemoryBytes.Known {
			lim = p.Limits
		}
	}
	what := "a process was"
	if kills > 1 {
		what = fmt.Sprintf("%d processes were", kills)
	}
	m := s.Usage.MemoryBytes
	switch {
	case m != nil && m.Peak.Known && lim.MemoryBytes.Known:
		return fmt.Sprintf("%s killed at %s of %s set by %s", what, mebibytes(m.Peak.Value), mebibytes(lim.MemoryBytes.Value), lim.MemorySetBy)
	case m != nil && m.Peak.Known:
		return fmt.Sprintf("%s killed at %s", what, mebibytes(m.Peak.Value))
	}
	return what + " killed"
}

func mebibytes(b uint64) string {
	if b >= 1<<30 {
		return fmt.Sprintf("%.2f GiB", float64(b)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(b)/(1<<20))
}

// Drain ends everything at t: the agent stops. Builds that still run stay in
// the ledger, for a checkpoint.
func (l *Ledger) Drain(t time.Time) {
	for _, b := range l.builds {
		for _, s := range b.open {
			s.part.tick(t, false)
		}
		b.tick(t, false)
	}
}
