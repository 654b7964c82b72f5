package web

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// machineGroups is how many machines' builds are added up: twice the fleet that is
// aimed for.
const machineGroups = 4000

type machinesView struct {
	page
	Ranges  []choice
	Problem string
	Rows    []machineListRow
	Pages   []choice
	Gone    string
	Empty   bool
}

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

// machines is every machine: what its heartbeat says, and what it did.
func (p *Pages) machines(w http.ResponseWriter, r *http.Request) error {
	now := p.o.Now()
	s := selectionOf(r, now, "24h")
	v := machinesView{page: p.page(r, "Machines", "machines"), Ranges: s.rangeChoices("/machines")}
	if s.err != nil {
		v.Problem = s.wrong().Want
	}
	from, to := s.span(now)
	ms, gone, err := p.beats(r.Context())
	if err != nil {
		return err
	}
	gs, err := p.o.Totals.Groups(r.Context(), GroupQuery{By: ByMachine, From: from, To: to.Add(time.Second), Limit: machineGroups})
	if err != nil {
		return err
	}
	total, top := 0.0, 0.0
	by := make(map[string]*Group, len(gs))
	for i := range gs {
		total, top = total+gs[i].CPUSeconds, max(top, gs[i].CPUSeconds)
		by[gs[i].Machine] = &gs[i]
	}
	col := hours(top)
	all := len(gs) < machineGroups // what did work is among them
	add := func(row machineListRow, g *Group, machine string) {
		row.Name = link{orElse(name(machine), "(no name)"), href("/machine", "name", machine), title(machine)}
		row.Builds, row.CPU, row.Share, row.Last = link{Text: "0"}, "0", dash, stampOf(now, time.Time{})
		if !all {
			row.Builds.Text, row.CPU = dash, dash
		}
		if g != nil {
			row.Builds = link{thousands(float64(g.Builds)), href("/builds", "machine", machine, "t", s.Range), ""}
			row.CPU, row.Last = col.cell(some(g.CPUSeconds)), stampOf(now, g.Last)
			if total > 0 {
				row.Share, row.Bar = percent(g.CPUSeconds/total), barPath(g.CPUSeconds/total)
			}
		}
		v.Rows = append(v.Rows, row)
	}
	order := sortMachines(ms, now, "cpu")
	seen := make(map[string]bool, len(ms))
	for _, m := range order {
		seen[m.Name] = true
	}
	var silent []*Group // in the order of their CPU time
	for i := range gs {
		if !seen[gs[i].Machine] {
			silent = append(silent, &gs[i])
		}
	}
	first, last, pages := pagesOf(len(order)+len(silent), r.URL.Query().Get("page"), pageRows, func(page string) string { return s.url("/machines", "page", page) })
	v.Pages = pages
	for _, m := range order[min(first, len(order)):min(last, len(order))] {
		row := machineListRow{State: "reports", Stale: m.stale(now), Running: fmt.Sprint(m.runs()), CPUs: fmt.Sprint(m.CPUs), Memory: amount(float64(m.MemoryBytes)), Agent: name(m.AgentVersion), Coverage: dash}
		if row.Stale {
			row.State = "last seen " + ago(now, m.LastSeen)
		}
		if m.CPUs == 0 {
			row.CPUs = dash
		}
		if m.MemoryBytes == 0 {
			row.Memory = dash
		}
		if m.Coverage.Known {
			row.Coverage, row.Low = fmt.Sprintf("%.1f %%", 100*m.Coverage.Value), m.poorly()
		}
		add(row, by[m.Name], m.Name)
	}
	for i := max(0, first-len(order)); i < last-len(order); i++ {
		add(machineListRow{State: "does not report now", Running: dash, CPUs: dash, Memory: dash, Agent: dash, Coverage: dash}, silent[i], silent[i].Machine)
	}
	if gone > 0 {
		v.Gone = plural(gone, "machine") + " not seen for ten minutes"
	}
	v.Empty = len(v.Rows) == 0
	return p.render(w, r, http.StatusOK, "machines", v)
}

func (p *Pages) beats(ctx context.Context) ([]Machine, int, error) {
	if p.o.Fleet == nil {
		return nil, 0, nil
	}
	return p.o.Fleet.Machines(ctx)
}
