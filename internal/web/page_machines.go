package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// machineGroups is how many machines' builds are added up: twice the fleet that is
// aimed for.
const machineGroups = 4000

type machinesView struct {
	page
	Ranges   []choice
	States   []choice
	Problem  string
	Headings []heading
	CPUUnit  string
	MemUnit  string
	Rows     []machineListRow
	Pages    []choice
	Gone     string
	Hidden   string // URL without what hides every row
	Empty    bool
}

// machineStates are what a machine can be, as the parameter state names it.
var machineStates = []struct{ name, word string }{{"", "all"}, {"reports", "reporting"}, {"silent", "silent"}, {"away", "not reporting now"}}

// machineSorts are what the list is sorted by: those first that use the most CPU now, and
// what is silent before them, unless it is said.
var machineSorts = []string{"name", "running", "coverage", "builds", "cpu", "last"}

type machineListRow struct {
	Name     link
	State    string
	Stale    bool
	Running  string
	CPUs     string
	Memory   string
	Agent    string
	Coverage string
	Low      bool
	Builds   link
	CPU      string
	Share    string
	Bar      string
	Last     stamp
}

// listedMachine is a machine that reports, or did, with its builds: either may be nil.
type listedMachine struct {
	name  string
	beat  *Machine
	group *Group
	state string
}

// machines is every machine: what its heartbeat says, and what it did.
func (p *Pages) machines(w http.ResponseWriter, r *http.Request) error {
	now := p.o.Now()
	s := selectionOf(r, now, "24h")
	v := machinesView{page: p.page(r, "Machines", "machines"), Ranges: s.rangeChoices("/machines")}
	v.Span = s.spanForm("/machines", now)
	from, to := s.span(now)
	if s.err != nil {
		v.Problem = s.wrong().Want
		from, to = now.Add(-24*time.Hour), now
	}
	ms, gone, err := p.beats(r.Context())
	if err != nil {
		return err
	}
	var gs []Group
	read := p.part(r, &v.page, "builds", "what the machines' builds used", func(ctx context.Context) (err error) {
		gs, err = p.o.Totals.Groups(ctx, GroupQuery{By: ByMachine, From: from, To: to.Add(time.Second), Limit: machineGroups})
		return err
	})
	all := listMachines(ms, gs, now)
	v.Empty = len(all) == 0 && read
	state, sort := s.values.Get("state"), s.values.Get("sort")
	shown, problem := ofState(all, state)
	if problem == "" {
		problem = sortListed(shown, sort)
	}
	if v.Problem == "" {
		v.Problem = problem
	}
	for _, st := range machineStates {
		of, _ := ofState(all, st.name)
		v.States = append(v.States, choice{link{fmt.Sprintf("%s %d", st.word, len(of)), s.url("/machines", "state", st.name, "page", ""), ""}, st.name == state})
	}
	first, last, pages := pagesOf(len(shown), s.values.Get("page"), pageRows, func(page string) string { return s.url("/machines", "page", page) })
	v.Pages = pages
	cols := machineColumnsOf(gs, shown[first:last])
	for i := range shown[first:last] {
		v.Rows = append(v.Rows, cols.row(&shown[first+i], now, read && len(gs) < machineGroups, func(machine string) string {
			return href("/builds", "machine", machine, "t", s.Range, "from", s.From, "to", s.To)
		}))
	}
	v.Headings, v.CPUUnit, v.MemUnit = cols.headings(&s, sort), cols.cpu.Unit, cols.memory.Unit
	if len(v.Rows) == 0 && !v.Empty {
		v.Hidden = s.url("/machines", "state", "")
	}
	if gone > 0 {
		v.Gone = plural(gone, "machine") + " not seen for ten minutes"
	}
	return p.render(w, r, http.StatusOK, "machines", v)
}

// listMachines joins heartbeats and builds: what is silent first, then by the CPU that is
// used now, then what only builds are known of, by their CPU time.
func listMachines(ms []Machine, gs []Group, now time.Time) []listedMachine {
	by := make(map[string]*Group, len(gs))
	for i := range gs {
		by[gs[i].Machine] = &gs[i]
	}
	all := make([]listedMachine, 0, len(ms))
	seen := make(map[string]bool, len(ms))
	for _, m := range sortMachines(ms, now, "-cpu") {
		seen[m.Name] = true
		state := "reports"
		if m.stale(now) {
			state = "silent"
		}
		all = append(all, listedMachine{m.Name, m, by[m.Name], state})
	}
	for i := range gs {
		if !seen[gs[i].Machine] {
			all = append(all, listedMachine{gs[i].Machine, nil, &gs[i], "away"})
		}
	}
	return all
}

func ofState(all []listedMachine, state string) (of []listedMachine, problem string) {
	known := false
	for _, st := range machineStates {
		known = known || st.name == state
	}
	if state == "" || !known {
		if !known {
			problem = "state: want reports, silent or away"
		}
		return slices.Clone(all), problem
	}
	for _, m := range all {
		if m.state == state {
			of = append(of, m)
		}
	}
	return of, ""
}

// sortListed sorts machines, the largest first with - before what they are sorted by;
// what is not known is last.
func sortListed(ms []listedMachine, by string) (problem string) {
	if by == "" {
		return ""
	}
	key, descending := strings.CutPrefix(by, "-")
	if !slices.Contains(machineSorts, key) {
		return "sort: want name, running, coverage, builds, cpu or last, with - before it for the largest first"
	}
	value := func(m *listedMachine) opt {
		switch {
		case key == "running" && m.beat != nil:
			return some(float64(m.beat.runs()))
		case key == "coverage" && m.beat != nil:
			return m.beat.Coverage
		case m.group == nil:
		case key == "builds":
			return some(float64(m.group.Builds))
		case key == "cpu":
			return some(m.group.CPUSeconds)
		case key == "last":
			return some(float64(m.group.Last.Unix()))
		}
		return opt{}
	}
	slices.SortStableFunc(ms, func(a, b listedMachine) int {
		order := strings.Compare(a.name, b.name)
		if key != "name" {
			x, y := value(&a), value(&b)
			if x.Known != y.Known {
				return map[bool]int{true: -1, false: 1}[x.Known]
			}
			order = cmp.Compare(x.Value, y.Value)
		}
		if descending {
			order = -order
		}
		return order
	})
	return ""
}

// machineColumns are the units of the list of machines.
type machineColumns struct {
	cpu, memory column
	total       float64 // CPU seconds of all builds
}

func machineColumnsOf(gs []Group, shown []listedMachine) machineColumns {
	var c machineColumns
	top, memory := 0.0, 0.0
	for i := range gs {
		c.total, top = c.total+gs[i].CPUSeconds, max(top, gs[i].CPUSeconds)
	}
	for i := range shown {
		if m := shown[i].beat; m != nil {
			memory = max(memory, float64(m.MemoryBytes))
		}
	}
	c.cpu, c.memory = hours(top), bytesColumn(memory)
	return c
}

func (c machineColumns) headings(s *selection, by string) []heading {
	sortable := func(label, unit, title, key string) heading {
		return sortHeading(heading{Label: label, Unit: unit, Title: title}, key, by, func(sort string) string { return s.url("/machines", "sort", sort, "page", "") })
	}
	last := sortable("last end", "", "of a build in this time", "last")
	last.Class = ""
	return []heading{sortable("machine", "", "", "name"), {Label: "state"}, sortable("running", "", "builds now", "running"), {Label: "CPUs", Class: "n"}, {Label: "memory", Unit: c.memory.Unit, Class: "n"}, {Label: "agent"},
		sortable("coverage", "%", "share of its CPU time that was attributed to builds while they ran", "coverage"), sortable("builds", "", "that ended in this time", "builds"),
		sortable("CPU", c.cpu.Unit, "CPU time of builds in this time", "cpu"), {Label: "share", Title: "of the CPU time of all builds in this time"}, last}
}

// row is a machine's; list is where its builds are, and all whether those that ran any are
// known.
func (c machineColumns) row(l *listedMachine, now time.Time, all bool, list func(machine string) string) machineListRow {
	row := machineListRow{State: "does not report now", Running: dash, CPUs: dash, Memory: dash, Agent: dash, Coverage: dash,
		Name: link{orElse(name(l.name), "(no name)"), href("/machine", "name", l.name), title(l.name)}, Builds: link{Text: "0"}, CPU: "0", Share: dash, Last: stampOf(now, time.Time{})}
	if !all {
		row.Builds.Text, row.CPU = dash, dash
	}
	if m := l.beat; m != nil {
		row.State, row.Running, row.Agent = "reports", fmt.Sprint(m.runs()), orElse(name(m.AgentVersion), dash)
		if row.Stale = m.stale(now); row.Stale {
			row.State = "last seen " + ago(now, m.LastSeen)
		}
		if m.CPUs > 0 {
			row.CPUs = fmt.Sprint(m.CPUs)
		}
		if m.MemoryBytes > 0 {
			row.Memory = c.memory.cell(some(float64(m.MemoryBytes)))
		}
		if m.Coverage.Known {
			row.Coverage, row.Low = fmt.Sprintf("%.1f", 100*m.Coverage.Value), m.poorly()
		}
	}
	if g := l.group; g != nil {
		row.Builds = link{thousands(float64(g.Builds)), list(l.name), ""}
		row.CPU, row.Last = c.cpu.cell(some(g.CPUSeconds)), stampOf(now, g.Last)
		if c.total > 0 {
			row.Share, row.Bar = percent(g.CPUSeconds/c.total), barPath(g.CPUSeconds/c.total)
		}
	}
	return row
}

func (p *Pages) beats(ctx context.Context) ([]Machine, int, error) {
	if p.o.Fleet == nil {
		return nil, 0, nil
	}
	return p.o.Fleet.Machines(ctx)
}
