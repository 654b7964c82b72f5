package web

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter/internal/display"
)

const (
	staleBeats   = 3    // a machine is stale after so many intervals without a heartbeat
	highPressure = 0.10 // share of time in which some task waited
	nowRows      = 55   // machines and builds that the page shows: what a person can watch
	muchOther    = 0.25 // cores that are nobody's and worth a word
	perMachine   = 8    // builds of one machine before the rest is counted
)

type nowView struct {
	page
	Known    bool // a machine was ever heard of
	Machines string
	Stale    string
	Running  string
	Unknown  string // builds on machines that are silent
	CPU      string
	Coverage *fact
	Waiting  *queueFigure
	Gone     string
	Headings []heading
	Rows     []nowMachine
	More     string
	Idle     *buildRow // the last build, when nothing runs
}

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

func (m *Machine) stale(now time.Time) bool {
	every := m.Interval
	if every <= 0 {
		every = 5 * time.Second
	}
	return now.Sub(m.LastSeen) > staleBeats*every
}

// busy is the cores in use, by whomever.
func (m *Machine) busy() opt {
	if !m.CPUBuilds.Known && !m.CPUOther.Known {
		return opt{}
	}
	return some(m.CPUBuilds.Value + m.CPUOther.Value + m.CPUOwn.Value)
}

func (p *Pages) now(w http.ResponseWriter, r *http.Request) error {
	now := p.o.Now()
	v := nowView{page: p.page(r, "Now", "now")}
	v.Live = true
	var ms []Machine
	gone := 0
	if p.o.Fleet != nil {
		var err error
		if ms, gone, err = p.o.Fleet.Machines(r.Context()); err != nil {
			return err
		}
	}
	v.Known = len(ms) > 0 || gone > 0
	order := sortMachines(ms, now, r.URL.Query().Get("sort"))
	v.status(ms, gone, now)
	if p.o.Queue != nil {
		st := p.o.Queue()
		v.Waiting = queueWord(&st)
	}
	rows := 0
	for i, one := range order {
		if rows+1+min(one.runs(), perMachine) > nowRows && i > 0 {
			v.More = fmt.Sprintf("%d more machines", len(ms)-i)
			break
		}
		m := machineRow(one.load(), now)
		rows += 1 + len(m.Builds)
		v.Rows = append(v.Rows, m)
	}
	if v.Running == "" && v.Unknown == "" {
		page, err := p.o.Source.Builds(r.Context(), Query{Sort: SortEnded, Limit: 1})
		if err != nil {
			return err
		}
		if len(page.Rows) > 0 {
			row := columnsOf(page.Rows).row(&page.Rows[0], now)
			v.Idle = &row
		}
	}
	sortable := func(label, by string) heading {
		h := heading{Label: label, Class: "n", URL: href("/", "sort", by)}
		if q := r.URL.Query().Get("sort"); q == by || q == "" && by == "cpu" {
			h.Sorted = "descending"
			if by == "name" {
				h.Sorted = "ascending"
			}
		}
		return h
	}
	name := sortable("machine and its builds", "name")
	name.Class = ""
	v.Headings = []heading{name, {Label: "stage now"}, {Label: "for", Class: "n"}, sortable("CPU", "cpu"), {Label: "lately", Class: "spark", Title: "CPU: a machine's last ten minutes, a build's last one"},
		sortable("memory", "mem"), sortable("disk", "io"), sortable("net", "net"), {Label: "note"}}
	return p.render(w, r, http.StatusOK, "now", v)
}

// sortMachines orders them: stale machines first, then those with the most of
// what is sorted by: CPU unless by says otherwise.
func sortMachines(ms []Machine, now time.Time, by string) []*Machine {
	type placed struct {
		*Machine
		stale bool
		value float64
	}
	all := make([]placed, len(ms))
	for i := range ms {
		m := &ms[i]
		value := m.busy().Value
		switch by {
		case "mem":
			value = float64(m.MemoryUsed.Value)
		case "io":
			value = m.DiskRate.Value
		case "net":
			value = m.NetRate.Value
		case "name":
			value = 0
		}
		all[i] = placed{m, m.stale(now), value}
	}
	slices.SortFunc(all, func(a, b placed) int {
		if a.stale != b.stale {
			if a.stale {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.value, a.value), strings.Compare(a.Name, b.Name))
	})
	order := make([]*Machine, len(all))
	for i := range all {
		order[i] = all[i].Machine
	}
	return order
}

// status is the line over the machines.
func (v *nowView) status(ms []Machine, gone int, now time.Time) {
	stale, running, unknown, cpus := 0, 0, 0, 0
	used := 0.0
	var worst *Machine
	for i := range ms {
		m := &ms[i]
		if m.stale(now) {
			stale++
			unknown += m.runs()
			continue
		}
		running += m.runs()
		cpus += m.CPUs
		used += m.busy().Value
		if m.Coverage.Known && (worst == nil || m.Coverage.Value < worst.Coverage.Value) {
			worst = m
		}
	}
	v.Machines = plural(len(ms), "machine")
	if stale > 0 {
		v.Stale = fmt.Sprintf("%d silent", stale)
	}
	if running > 0 {
		v.Running = plural(running, "build") + " running"
	}
	if unknown > 0 {
		v.Unknown = plural(unknown, "build") + " unknown"
	}
	if cpus > 0 {
		v.CPU = fmt.Sprintf("%s of %d cores", sig3(used), cpus)
	}
	if worst != nil {
		v.Coverage = &fact{Label: fmt.Sprintf("%.1f %%", 100*worst.Coverage.Value), Link: link{name(worst.Name), href("/machine", "name", worst.Name), title(worst.Name)}}
	}
	if gone > 0 {
		v.Gone = plural(gone, "machine") + " not seen for ten minutes"
	}
}

func plural(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

func perSecond(v opt) string {
	if !v.Known {
		return dash
	}
	return amount(v.Value) + "/s"
}

func machineRow(m *Machine, now time.Time) nowMachine {
	row := nowMachine{Name: link{name(m.Name), href("/machine", "name", m.Name), title(m.Name)}, Seen: ago(now, m.LastSeen), CPU: dash, Memory: dash,
		Disk: perSecond(m.DiskRate), Net: perSecond(m.NetRate), Slots: plural(m.runs(), "build")}
	if m.Slots > 0 {
		row.Slots = fmt.Sprintf("%d of %d slots", m.runs(), m.Slots)
	}
	if m.stale(now) {
		row.Stale = "last seen " + row.Seen
	}
	if busy := m.busy(); busy.Known {
		row.CPU = sig3(busy.Value) + " cores"
		if m.CPUs > 0 {
			row.CPU = fmt.Sprintf("%s of %d", sig3(busy.Value), m.CPUs)
			row.Parts, row.PartsOf = parts(m)
		}
	}
	if m.MemoryUsed.Known {
		row.Memory = amount(float64(m.MemoryUsed.Value))
		if m.MemoryBytes > 0 {
			row.Memory = of(float64(m.MemoryUsed.Value), float64(m.MemoryBytes))
			row.Bar = barPath(float64(m.MemoryUsed.Value) / float64(m.MemoryBytes))
		}
	}
	if m.Pressure.Value > highPressure {
		row.Notes = append(row.Notes, fmt.Sprintf("waits for %s %s of the time", name(m.PressureOf), percent(m.Pressure.Value)))
	}
	if m.poorly() {
		row.Notes = append(row.Notes, fmt.Sprintf("coverage %.1f %%", 100*m.Coverage.Value))
	}
	for i := range m.Running[:min(len(m.Running), perMachine)] {
		row.Builds = append(row.Builds, runningRow(&m.Running[i], now, row.Stale != ""))
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

// runningRow is a build that runs, or ran when its machine was last heard of:
// what became of one on a silent machine nobody knows.
func runningRow(b *Running, now time.Time, silent bool) nowBuild {
	if silent {
		return nowBuild{Key: title(b.Key), Build: link{label(&b.Build), buildURL(b.Key), title(b.Key)}, Stage: "unknown", Elapsed: dash, CPU: dash, Memory: dash, Disk: dash, Net: dash}
	}
	row := nowBuild{Key: title(b.Key), Build: link{label(&b.Build), buildURL(b.Key), title(b.Key)}, Stage: display.Fit(b.Stage, 32, "…"), Elapsed: seconds(max(0, now.Sub(b.StartedAt).Seconds())),
		CPU: dash, Memory: dash, Disk: perSecond(b.DiskNow), Net: perSecond(b.NetNow), Spark: sparkPath(squeeze(b.CPUMinute, sparkSteps))}
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
		row.Memory = amount(float64(b.MemoryNow.Value))
		if l := float64(b.MemoryLimit.Value); l > 0 {
			row.Memory = of(float64(b.MemoryNow.Value), l)
			row.Bar, row.Near = barPath(float64(b.MemoryNow.Value)/l), float64(b.MemoryNow.Value) >= nearLimit*l
		}
	}
	return row
}
