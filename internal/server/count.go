package server

import (
	"math"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/tally"
)

// count adds a record that is new to the fleet's counters; part: of a build that an
// earlier record counts.
func (s *Server) count(r *cimeter.Record, part bool) {
	if s.o.Counted != nil && s.o.Counted(r) {
		return
	}
	of := tally.Exemplar{Build: r.Key, At: r.EndedAt}
	if !part {
		b := s.o.Tally.Build(tally.BuildLabels{CI: r.CI, Project: r.Project, Machine: r.Machine, Runner: r.Runner.Key()})
		b.Started()
		var queued cimeter.Opt[float64]
		if !r.QueuedAt.IsZero() && !r.StartedAt.Before(r.QueuedAt) {
			queued = cimeter.Some(r.StartedAt.Sub(r.QueuedAt).Seconds())
		}
		b.EndedOf(of, r.Result, r.Usage.WallSeconds, queued)
	}
	for i := range r.Stages {
		st := &r.Stages[i]
		cell := s.o.Tally.Stage(tally.Labels{CI: r.CI, Project: r.Project, Machine: r.Machine, Runner: r.Runner.Key(), Stage: st.Name})
		spent(cell, &st.Usage)
		var peak cimeter.Opt[uint64]
		if st.Usage.MemoryBytes != nil {
			peak = st.Usage.MemoryBytes.Peak
		}
		var cores cimeter.Opt[float64]
		if st.Usage.CPUCores != nil {
			cores = cimeter.Some(st.Usage.CPUCores.Avg)
		}
		cell.EndedOf(of, st.Usage.WallSeconds, peak, cores)
	}
}

// spent adds a usage to the counters of a stage, in their units.
func spent(cell *tally.Stage, u *cimeter.Usage) {
	seconds := func(c cimeter.Counter, v cimeter.Opt[float64]) {
		// A forged number must not make a counter wrap around.
		if s, ok := v.Get(); ok && s >= 0 && s < 1e9 {
			cell.Add(c, uint64(math.Round(s*1e9)))
		}
	}
	number := func(c cimeter.Counter, v uint64) {
		if v < 1<<53 {
			cell.Add(c, v)
		}
	}
	seconds(cimeter.CPUTotal, u.CPUSeconds.Total)
	seconds(cimeter.CPUUser, u.CPUSeconds.User)
	seconds(cimeter.CPUSystem, u.CPUSeconds.System)
	seconds(cimeter.CPUThrottled, u.CPUThrottledSeconds)
	if p := u.PressureSeconds; p != nil {
		seconds(cimeter.CPUSomePressure, p.CPUSome)
		seconds(cimeter.CPUFullPressure, p.CPUFull)
		seconds(cimeter.MemorySomePressure, p.MemorySome)
		seconds(cimeter.MemoryFullPressure, p.MemoryFull)
		seconds(cimeter.IOSomePressure, p.IOSome)
		seconds(cimeter.IOFullPressure, p.IOFull)
	}
	if v := u.IOBytes; v != nil {
		number(cimeter.IOReadBytes, v.Read)
		number(cimeter.IOWriteBytes, v.Write)
	}
	if v := u.IOOperations; v != nil {
		number(cimeter.IOReadOperations, v.Read)
		number(cimeter.IOWriteOperations, v.Write)
	}
	if v := u.NetworkBytes; v != nil {
		number(cimeter.NetworkReceiveBytes, v.Receive)
		number(cimeter.NetworkTransmitBytes, v.Transmit)
	}
	if n, ok := u.OOMKills.Get(); ok {
		number(cimeter.OOMKills, n)
	}
	if n, ok := u.OOMKillsNested.Get(); ok {
		number(cimeter.OOMKillsNested, n)
	}
}
