package webtest

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/section"
)

func stage(r *cimeter.Record, name string) *cimeter.Stage {
	for i := range r.Stages {
		if r.Stages[i].Name == name {
			return &r.Stages[i]
		}
	}
	panic("no stage " + name)
}

// fill gives r its stages, totals and trace.
func fill(r *cimeter.Record, phases []phase, factor float64, seed uint64) {
	at := r.StartedAt
	total := phase{}
	for _, p := range phases {
		p.seconds, p.cpu, p.memory = p.seconds*factor, p.cpu*factor, p.memory*(0.75+0.25*min(factor, 1.2))
		s := cimeter.Stage{Name: p.name, Attempt: 1, Boundary: cimeter.BoundaryContainer, Alongside: p.alongside, ExitCode: cimeter.Some(0), Usage: p.usage()}
		length := time.Duration(p.seconds * float64(time.Second))
		if p.alongside {
			s.StartedAt = r.StartedAt.Add(time.Second)
			s.EndedAt = s.StartedAt.Add(length)
		} else {
			s.StartedAt, s.EndedAt = at, at.Add(length)
			at = s.EndedAt
			total.seconds += p.seconds
		}
		total.cpu, total.cores, total.memory = total.cpu+p.cpu, max(total.cores, p.cores), max(total.memory, p.memory)
		total.read, total.write = total.read+p.read, total.write+p.write
		total.receive, total.transmit = total.receive+p.receive, total.transmit+p.transmit
		r.Stages = append(r.Stages, s)
	}
	r.EndedAt = at
	r.Usage = total.usage()
	trace(r, seed)
}

func columns(t *cimeter.Trace) []*[]cimeter.Opt[int64] {
	return []*[]cimeter.Opt[int64]{&t.CPUMillicores, &t.CPUMillicoresMax, &t.MemoryKiB, &t.MemoryWorkingSetKiB,
		&t.IOReadBytesPerSecond, &t.IOWriteBytesPerSecond, &t.NetworkReceivePerSec, &t.NetworkTransmitPerSec}
}

// trace draws the stages over time, with noise that the seed decides.
func trace(r *cimeter.Record, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	length := r.EndedAt.Sub(r.StartedAt).Seconds()
	const steps = 120
	t := &cimeter.Trace{StepSeconds: length / steps}
	for i := range steps {
		at := (float64(i) + 0.5) * t.StepSeconds
		var v [8]float64
		for j := range r.Stages {
			s := &r.Stages[j]
			from, to := s.StartedAt.Sub(r.StartedAt).Seconds(), s.EndedAt.Sub(r.StartedAt).Seconds()
			if at < from || at > to || s.Usage.CPUCores == nil {
				continue
			}
			u := &s.Usage
			x := (at - from) / (to - from)
			wave := 0.82 + 0.3*math.Sin(9*x+float64(j)) + 0.15*(rnd.Float64()-0.5)
			level := float64(u.MemoryBytes.Peak.Value) * (0.3 + 0.68*math.Sin(math.Pi*min(1, 0.1+0.75*x)))
			burst := max(0, 0.3+math.Sin(15*x+2*float64(j))+0.8*(rnd.Float64()-0.5))
			for k, add := range []float64{
				1000 * min(u.CPUCores.Max, u.CPUCores.Avg*wave), 1000 * min(u.CPUCores.Max, u.CPUCores.Avg*(wave+0.2+0.25*rnd.Float64())),
				level / 1024, level * (0.8 + 0.05*math.Sin(20*x)) / 1024,
				u.IOBytesPerSecond.Read.Avg * burst * 1.6, u.IOBytesPerSecond.Write.Avg * max(0.1, 1.3-burst*0.6),
				u.NetworkBytesPerSecond.Receive.Avg * burst * 1.5, u.NetworkBytesPerSecond.Transmit.Avg * max(0.1, 1.2-burst*0.5),
			} {
				v[k] += add
			}
		}
		for k, c := range columns(t) {
			*c = append(*c, cimeter.Some(int64(v[k])))
		}
	}
	r.Trace = t
}

// OOM is the example, killed for memory in its script.
func OOM() *cimeter.Record {
	r := Make(4243, Now.Add(-20*time.Minute), 0.6)
	r.Result = "failed"
	s := stage(r, "step_script")
	s.Usage.OOMKills, s.ExitCode = cimeter.Some[uint64](1), cimeter.Some(137)
	s.Usage.MemoryBytes.Peak = cimeter.Some[uint64](4096 * mib)
	r.Usage.MemoryBytes.Peak, r.Usage.OOMKills = s.Usage.MemoryBytes.Peak, s.Usage.OOMKills
	s.Usage.PressureSeconds.MemorySome, s.Usage.PressureSeconds.IOSome = cimeter.Some(14.2), cimeter.Some(31.0)
	r.Verdicts = append(r.Verdicts, cimeter.Verdict{Kind: "oom", Stage: "step_script", Evidence: "a process was killed at 4.00 GiB of 4.00 GiB set by /docker/094e3b1cde6e"})
	r.Stages = append(r.Stages[:4], r.Stages[len(r.Stages)-1])
	r.EndedAt = r.Stages[3].EndedAt
	r.Stages[4].EndedAt = r.EndedAt
	r.Stages[4].Usage.WallSeconds = r.EndedAt.Sub(r.Stages[4].StartedAt).Seconds()
	r.Usage.WallSeconds = r.EndedAt.Sub(r.StartedAt).Seconds()
	trace(r, 3)
	return r
}

// Incomplete is a build of which not all was seen.
func Incomplete() *cimeter.Record {
	r := Make(4244, Now.Add(-40*time.Minute), 1.1)
	r.Result, r.Complete, r.Coverage = "", false, cimeter.Some(0.83)
	r.Gaps = []cimeter.Gap{{To: r.StartedAt.Add(9 * time.Second), Reason: cimeter.GapBeforeAgent},
		{From: r.StartedAt.Add(90 * time.Second), To: r.StartedAt.Add(121 * time.Second), Reason: cimeter.GapAgentRestart},
		{From: r.StartedAt.Add(200 * time.Second), To: r.StartedAt.Add(201 * time.Second), Reason: cimeter.GapMissedSegment}}
	for i := range r.Trace.CPUMillicores {
		if at := float64(i) * r.Trace.StepSeconds; at < 9 || at > 90 && at < 121 {
			for _, c := range columns(r.Trace) {
				(*c)[i] = cimeter.Opt[int64]{}
			}
		}
	}
	for i := range r.Stages {
		r.Stages[i].Boundary = []cimeter.Boundary{cimeter.BoundaryJobList, cimeter.BoundaryCommand, cimeter.BoundaryTrace, cimeter.BoundaryOrder}[i%4]
	}
	return r
}

// Absent is a build of which the kernel told nothing but CPU time.
func Absent() *cimeter.Record {
	r := Make(4245, Now.Add(-50*time.Minute), 0.9)
	r.Limits, r.Coverage, r.QueuedAt, r.Verdicts = nil, cimeter.Opt[float64]{}, time.Time{}, nil
	bare := func(u *cimeter.Usage) {
		*u = cimeter.Usage{WallSeconds: u.WallSeconds, CPUSeconds: u.CPUSeconds, CPUCores: u.CPUCores}
	}
	bare(&r.Usage)
	for i := range r.Stages {
		bare(&r.Stages[i].Usage)
	}
	r.Trace = &cimeter.Trace{StepSeconds: r.Trace.StepSeconds, CPUMillicores: r.Trace.CPUMillicores, CPUMillicoresMax: r.Trace.CPUMillicoresMax}
	return r
}

// Nothing is a build of which nothing was read at all.
func Nothing() *cimeter.Record {
	return &cimeter.Record{Schema: cimeter.RecordSchema, Build: cimeter.Build{Key: "drone/ci.example.com/group/app/7/1", CI: "drone"},
		StartedAt: Now.Add(-time.Hour), EndedAt: Now.Add(-time.Hour), Gaps: []cimeter.Gap{}}
}

// Single is a build of one stage, as cimeter run makes them.
func Single() *cimeter.Record {
	r := &cimeter.Record{Schema: cimeter.RecordSchema, Complete: true, Result: "success", Gaps: []cimeter.Gap{}}
	r.Build = cimeter.Build{Key: "run/ci-7/20261130-1201-4711", CI: "run", Name: "make test", Machine: "ci-7"}
	r.StartedAt = Now.Add(-2 * time.Hour)
	fill(r, []phase{{"make", 5.8, 9.31, 3.8, 412, 1, 33, 0, 0, false}}, 1, 11)
	r.Usage.NetworkBytes, r.Usage.NetworkBytesPerSecond = nil, nil
	r.Stages[0].Usage.NetworkBytes, r.Stages[0].Usage.NetworkBytesPerSecond = nil, nil
	r.Trace.NetworkReceivePerSec, r.Trace.NetworkTransmitPerSec = nil, nil
	return r
}

// Unmetered is a build that only its CI server told of.
func Unmetered() *cimeter.Record {
	r := &cimeter.Record{Schema: 1, Build: cimeter.Build{Key: "gitlab/gitlab.example.com/9190", CI: "gitlab", Server: "gitlab.example.com", Project: "group/app", Number: "9190", Name: "build-and-test",
		Ref: "main", SHA: "5f0c61ac9d1b", URL: "https://gitlab.example.com/group/app/-/jobs/9190", Attempt: 1}, Result: "failed", Metered: cimeter.Some(false), Tags: []string{"windows"}, FailedFor: "runner_system_failure",
		Complete: true, Gaps: []cimeter.Gap{}, Stages: []cimeter.Stage{}}
	r.QueuedAt, r.StartedAt, r.EndedAt = Now.Add(-40*time.Minute), Now.Add(-38*time.Minute), Now.Add(-30*time.Minute)
	return r
}

// Skipped is one that its CI server never ran.
func Skipped() *cimeter.Record {
	r := Unmetered()
	r.Key, r.Number, r.Result, r.FailedFor = "gitlab/gitlab.example.com/9191", "9191", "canceled", ""
	r.StartedAt = time.Time{}
	return r
}

// Log is the sections of the log of a build, in its step_script.
func Log(r *cimeter.Record) section.Log {
	from := stage(r, "step_script").StartedAt
	at := func(seconds float64) time.Time { return from.Add(time.Duration(seconds * float64(time.Second))) }
	return section.Log{Stamped: true, Sections: []section.Section{
		{Name: "compile", From: at(2), To: at(96)}, {Name: "codegen", From: at(4), To: at(30)}, {Name: "unit tests", From: at(100), To: at(180)}, {Name: "package", From: at(184), To: at(204)},
	}}
}
