package web

import (
	"fmt"
	"strings"
	"time"

	"github.com/cimeter/cimeter/internal/display"
)

// nowMachine is a machine with the builds on it.
type nowMachine struct {
	Name    link
	Slots   string
	Stale   string // last seen 42 s ago
	Seen    string
	CPU     string
	Spark   string
	Parts   []part // builds, other, cimeter
	PartsOf string
	Memory  string
	Bar     string
	Disk    string
	Net     string
	Cover   string
	Low     bool
	Notes   []string
	Builds  []nowBuild
	More    string
}

// part is a piece of a bar, of 100 units.
type part struct{ Class, Path string }

type nowBuild struct {
	Key     string
	Build   link
	Stage   string
	Elapsed string
	CPU     string
	CPUBar  string
	Spark   string
	Memory  string
	Bar     string
	Near    bool
	Disk    string
	Net     string
}

// nowUnits are the units of a table of machines and their builds.
type nowUnits struct {
	Memory, Rate string
	memory, rate float64
}

func unitsOf(ms []*Machine) (u nowUnits) {
	memory, rate := 0.0, 0.0
	for _, m := range ms {
		memory = max(memory, float64(m.MemoryUsed.Value), float64(m.MemoryBytes))
		rate = max(rate, m.DiskRate.Value, m.NetRate.Value)
		for i := range m.Running {
			b := &m.Running[i]
			memory, rate = max(memory, float64(b.MemoryNow.Value), float64(b.MemoryLimit.Value)), max(rate, b.DiskNow.Value, b.NetNow.Value)
		}
	}
	mc, rc := bytesColumn(memory), bytesColumn(rate)
	return nowUnits{mc.Unit, rc.Unit + "/s", mc.size, rc.size}
}

func (u nowUnits) perSecond(v opt) string {
	return optional(v, func(v float64) string { return sig3(v / u.rate) })
}

// of writes an amount against its limit; there is none where it is 0.
func (u nowUnits) of(v, limit float64) string {
	if limit == 0 {
		return sig3(v / u.memory)
	}
	return sig3(v/u.memory) + " of " + sig3(limit/u.memory)
}

func (u nowUnits) machine(m *Machine, now time.Time) nowMachine {
	row := nowMachine{Cover: dash, Name: link{name(m.Name), href("/machine", "name", m.Name), title(m.Name)}, Seen: ago(now, m.LastSeen), CPU: dash, Memory: dash,
		Disk: u.perSecond(m.DiskRate), Net: u.perSecond(m.NetRate), Slots: plural(m.runs(), "build")}
	if m.Slots > 0 {
		row.Slots = fmt.Sprintf("%d of %d slots", m.runs(), m.Slots)
	}
	if m.stale(now) {
		row.Stale = "last seen " + row.Seen
	}
	if busy := m.busy(); busy.Known {
		row.CPU = sig3(busy.Value)
		if m.CPUs > 0 {
			row.CPU = fmt.Sprintf("%s of %d", sig3(busy.Value), m.CPUs)
			row.Parts, row.PartsOf = parts(m)
		}
	}
	if m.MemoryUsed.Known {
		row.Memory = u.of(float64(m.MemoryUsed.Value), float64(m.MemoryBytes))
		if m.MemoryBytes > 0 {
			row.Bar = barPath(float64(m.MemoryUsed.Value) / float64(m.MemoryBytes))
		}
	}
	if m.Pressure.Value > highPressure {
		row.Notes = append(row.Notes, fmt.Sprintf("waits for %s %s of the time", name(m.PressureOf), percent(m.Pressure.Value)))
	}
	if m.Coverage.Known {
		row.Cover, row.Low = fmt.Sprintf("%.1f", 100*m.Coverage.Value), m.poorly()
	}
	for i := range m.Running[:min(len(m.Running), perMachine)] {
		row.Builds = append(row.Builds, u.build(&m.Running[i], now, row.Stale != ""))
	}
	row.Spark = machineSpark(m)
	if n := len(m.Running) - perMachine; n > 0 {
		row.More = "and " + plural(n, "more build")
	}
	return row
}

// poorly reports whether much of what the machine did is nobody's: a share says
// little of a machine that hardly does anything.
func (m *Machine) poorly() bool {
	return m.Coverage.Known && m.Coverage.Value < lowCoverage && m.CPUOther.Value >= muchOther
}

// parts are the bar of a machine's CPU: builds, other, cimeter itself.
func parts(m *Machine) ([]part, string) {
	var ps []part
	var words []string
	at := 0.0
	for _, p := range []struct {
		class, word string
		v           opt
	}{{"cpu", "builds", m.CPUBuilds}, {"other", "other", m.CPUOther}, {"own", "cimeter", m.CPUOwn}} {
		if !p.v.Known {
			continue
		}
		from, to := 100*clamp(at/float64(m.CPUs)), 100*clamp((at+p.v.Value)/float64(m.CPUs))
		at += p.v.Value
		words = append(words, p.word+" "+sig3(p.v.Value))
		if to > from {
			ps = append(ps, part{p.class, "M" + coord(from) + " 0H" + coord(to)})
		}
	}
	return ps, strings.Join(words, ", ") + " cores"
}

// build is one that runs, or ran when its machine was last heard of:
// what became of one on a silent machine nobody knows.
func (u nowUnits) build(b *Running, now time.Time, silent bool) nowBuild {
	if silent {
		return nowBuild{Key: title(b.Key), Build: link{label(&b.Build), buildURL(b.Key), title(b.Key)}, Stage: "unknown", Elapsed: dash, CPU: dash, Memory: dash, Disk: dash, Net: dash}
	}
	row := nowBuild{Key: title(b.Key), Build: link{label(&b.Build), buildURL(b.Key), title(b.Key)}, Stage: display.Fit(b.Stage, 32, "…"), Elapsed: seconds(max(0, now.Sub(b.StartedAt).Seconds())),
		CPU: dash, Memory: dash, Disk: u.perSecond(b.DiskNow), Net: u.perSecond(b.NetNow), Spark: sparkPath(squeeze(b.CPUMinute, sparkSteps))}
	if row.Stage == "" {
		row.Stage = dash
	}
	if b.CPUNow.Known {
		row.CPU = sig3(b.CPUNow.Value)
		if b.CPULimit.Value > 0 {
			row.CPU += " of " + short(b.CPULimit.Value)
			row.CPUBar = barPath(b.CPUNow.Value / b.CPULimit.Value)
		}
	}
	if b.MemoryNow.Known {
		l := float64(b.MemoryLimit.Value)
		row.Memory = u.of(float64(b.MemoryNow.Value), l)
		if l > 0 {
			row.Bar, row.Near = barPath(float64(b.MemoryNow.Value)/l), float64(b.MemoryNow.Value) >= nearLimit*l
		}
	}
	return row
}
