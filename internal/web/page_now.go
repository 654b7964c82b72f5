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
	Status   []nowFigure
	Problem  string
	Only     string // which machines are shown, where it is not all
	All      string // URL of all
	Gone     string
	Headings []heading
	Units    nowUnits
	Rows     []nowMachine
	More     string
	Idle     *buildRow // the last build, when nothing runs
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

// nowShow is a part of the machines that the page can be narrowed to.
type nowShow struct {
	name, words string
	of          func(m *Machine, now time.Time) bool
}

var nowShows = []nowShow{
	{"", "", func(*Machine, time.Time) bool { return true }},
	{"running", "machines on which builds run", func(m *Machine, now time.Time) bool { return m.runs() > 0 && !m.stale(now) }},
	{"silent", "silent machines", func(m *Machine, now time.Time) bool { return m.stale(now) }},
}

// nowSorts are what the machines are sorted by, most first with - before it.
var nowSorts = []string{"name", "cpu", "mem", "io", "net", "coverage"}

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
	by, show := orElse(r.URL.Query().Get("sort"), "-cpu"), r.URL.Query().Get("show")
	if !slices.Contains(nowSorts, strings.TrimPrefix(by, "-")) {
		by, v.Problem = "-cpu", "sort: want name, cpu, mem, io, net or coverage, with - before it for the most first"
	}
	at := slices.IndexFunc(nowShows, func(s nowShow) bool { return s.name == show })
	if at < 0 {
		at, show, v.Problem = 0, "", "show: want running or silent"
	}
	v.status(ms, gone, now)
	if p.o.Queue != nil {
		st := p.o.Queue()
		v.waiting(&st)
	}
	ms = slices.DeleteFunc(ms, func(m Machine) bool { return !nowShows[at].of(&m, now) })
	if show != "" {
		v.Only, v.All = plural(len(ms), "machine")+": "+nowShows[at].words, href("/", "sort", r.URL.Query().Get("sort"))
	}
	v.fill(sortMachines(ms, now, by), now)
	if show == "" && !slices.ContainsFunc(v.Status, func(f nowFigure) bool { return f.Label == "builds" && (f.Value.URL != "" || f.Warn != nil) }) {
		p.part(r, &v.page, "idle", "the last build", func(ctx context.Context) error {
			page, err := p.o.Source.Builds(ctx, Query{Sort: SortEnded, Limit: 1})
			if len(page.Rows) > 0 {
				row := columnsOf(page.Rows).row(&page.Rows[0], now)
				v.Idle = &row
			}
			return err
		})
	}
	sortable := func(label, unit, key string) heading {
		return sortHeading(heading{Label: label, Unit: unit}, key, by, func(sort string) string { return href("/", "sort", sort, "show", show) })
	}
	v.Headings = []heading{sortable("machine and its builds", "", "name"), {Label: "stage now"}, {Label: "for", Class: "n"}, sortable("CPU", "cores", "cpu"), {Label: "lately", Class: "spark", Title: "CPU: a machine's last ten minutes, a build's last one"},
		sortable("memory", v.Units.Memory, "mem"), sortable("disk", v.Units.Rate, "io"), sortable("net", v.Units.Rate, "net"), sortable("coverage", "%", "coverage"), {Label: "note"}}
	return p.render(w, r, http.StatusOK, "now", v)
}

// fill makes the rows, as many as a person can watch.
func (v *nowView) fill(order []*Machine, now time.Time) {
	rows, shown := 0, 0
	for i, one := range order {
		if rows+1+min(one.runs(), perMachine) > nowRows && i > 0 {
			v.More = fmt.Sprintf("%d more machines", len(order)-i)
			break
		}
		one.load()
		rows, shown = rows+1+min(len(one.Running), perMachine), i+1
	}
	v.Units = unitsOf(order[:shown])
	for _, one := range order[:shown] {
		v.Rows = append(v.Rows, v.Units.machine(one, now))
	}
}

// sortMachines orders them: stale machines first, then by what is asked for, the most
// first with - before it. What is not known is last.
func sortMachines(ms []Machine, now time.Time, by string) []*Machine {
	type placed struct {
		*Machine
		stale bool
		value opt
	}
	key, descending := strings.CutPrefix(by, "-")
	all := make([]placed, len(ms))
	for i := range ms {
		m := &ms[i]
		var value opt
		switch key {
		case "cpu":
			value = m.busy()
		case "mem":
			value = number(m.MemoryUsed)
		case "io":
			value = m.DiskRate
		case "net":
			value = m.NetRate
		case "coverage":
			value = m.Coverage
		}
		all[i] = placed{m, m.stale(now), value}
	}
	first := func(is bool) int { return map[bool]int{true: -1, false: 1}[is] }
	slices.SortFunc(all, func(a, b placed) int {
		names := strings.Compare(a.Name, b.Name)
		switch {
		case a.stale != b.stale:
			return first(a.stale)
		case key == "name" && descending:
			return -names
		case a.value.Known != b.value.Known:
			return first(a.value.Known)
		case descending:
			return cmp.Or(cmp.Compare(b.value.Value, a.value.Value), names)
		}
		return cmp.Or(cmp.Compare(a.value.Value, b.value.Value), names)
	})
	order := make([]*Machine, len(all))
	for i := range all {
		order[i] = all[i].Machine
	}
	return order
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
