package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/filter"
)

// How many rows the tables of a place have: a page is to stay small.
const (
	whoRows = 10
	runsNow = 6
)

// placeView is the page of a machine or a runner.
type placeView struct {
	page
	Kind     string // machine, runner
	Ranges   []choice
	Problem  string
	Stale    string
	Facts    []fact
	Figures  []figure
	Reports  bool // its agent told something
	Lately   *lineGroup
	Day      *lineGroup
	Worst    string // coverage of the day
	Runs     []nowBuild
	Units    nowUnits // of them
	MoreRuns string
	Busy     *lineGroup
	BusyNote string
	DayNote  string
	Over     *occupancy
	Bars     *barChart
	Who      groupTable
	WhoNote  string
	Machines groupTable
	All      string
	Empty    bool
}

func (p *Pages) machine(w http.ResponseWriter, r *http.Request) error {
	machine := r.URL.Query().Get("name")
	if machine == "" {
		return fmt.Errorf("name: want the name of a machine: %w", cimeter.ErrInvalid)
	}
	v, s, from, to := p.place(r, "machine", name(machine))
	now := p.o.Now()
	var ms []Machine
	p.part(r, &v.page, "beat", "what the machine tells now", func(ctx context.Context) (err error) {
		ms, _, err = p.beats(ctx)
		return err
	})
	var told *Machine
	for i := range ms {
		if ms[i].Name == machine && (told == nil || told.LastSeen.Before(ms[i].LastSeen)) {
			told = &ms[i]
		}
	}
	if told != nil {
		v.beat(told.load(), now)
		v.Live, v.LiveURL = true, href("/machine", "name", machine, "part", "now")
		if r.URL.Query().Get("part") == "now" { // a page that follows has the rest already
			return p.render(w, r, http.StatusOK, "place", v)
		}
	}
	got, err := p.fillPlace(r, &v, s, filter.Is(filter.Machine, machine), BucketQuery{Machine: machine}, from, to)
	if err != nil {
		return err
	}
	if p.o.Past != nil {
		cpus, memory := 0, uint64(0)
		if told != nil {
			cpus, memory = told.CPUs, told.MemoryBytes
		}
		p.part(r, &v.page, "day", "the last day", func(ctx context.Context) error {
			day, err := p.o.Past(ctx, machine, now.Add(-24*time.Hour))
			if err == nil {
				v.Day, v.Worst = dayCharts(cpus, memory, day)
			}
			return err
		})
	}
	var gs []Group
	p.part(r, &v.page, "who", "who used it", func(ctx context.Context) (err error) {
		gs, err = p.o.Totals.Groups(ctx, GroupQuery{By: ByMachineJob, Machine: machine, From: from, To: to, Limit: whoRows})
		return err
	})
	v.Who = groupTableOf("job", gs, now, func(g *Group) (link, string) {
		l := jobLink(g.Project, g.Name, s.Range)
		l.Text = strings.Trim(name(g.Project)+" / "+name(g.Name), " /")
		return l, href("/builds", "project", g.Project, "job", g.Name, "machine", machine, "t", s.Range)
	})
	v.Who.pressures(gs, got.Rows)
	v.Who.shares(gs, got.Sums)
	if len(gs) == whoRows {
		v.WhoNote = fmt.Sprintf("The %d jobs that used the most CPU time.", whoRows)
	}
	v.All = href("/builds", "machine", machine, "t", s.Range)
	v.Empty = v.Over == nil && len(v.Facts) == 0 && len(gs) == 0 && v.Day == nil && v.Failed == nil
	return p.render(w, r, http.StatusOK, "place", v)
}

func (p *Pages) runner(w http.ResponseWriter, r *http.Request) error {
	key := r.URL.Query().Get("key")
	if key == "" {
		return fmt.Errorf("key: want a runner's id, short token or name: %w", cimeter.ErrInvalid)
	}
	v, s, from, to := p.place(r, "runner", name(key))
	now := p.o.Now()
	got, err := p.fillPlace(r, &v, s, filter.Is(filter.Runner, key), BucketQuery{Runner: key}, from, to)
	if err != nil {
		return err
	}
	var gs []Group
	whose := p.part(r, &v.page, "where", "its machines", func(ctx context.Context) (err error) {
		gs, err = p.o.Totals.Groups(ctx, GroupQuery{By: ByRunner, From: from, To: to, Limit: 1000})
		return err
	})
	gs = slices.DeleteFunc(gs, func(g Group) bool { return g.Runner != key })
	wall := 0.0
	for _, g := range gs {
		wall += g.WallSeconds
		if g.RunnerName != "" {
			v.Title = name(g.RunnerName)
			v.Facts = []fact{{Label: "key", Link: link{Text: name(key)}}}
		}
	}
	if span := to.Sub(from).Seconds(); span > 0 && !from.IsZero() && whose {
		v.Figures = append(v.Figures, figure{"builds at once", sig3(wall / span), "on average over this time"})
	}
	v.Machines = groupTableOf("machine", gs, now, func(g *Group) (link, string) {
		return link{name(g.Machine), href("/machine", "name", g.Machine), title(g.Machine)}, href("/builds", "runner", key, "machine", g.Machine, "t", s.Range)
	})
	p.busy(r, &v, key, gs, got)
	v.Machines.Rows = v.Machines.Rows[:min(len(v.Machines.Rows), whoRows)]
	v.All = href("/builds", "runner", key, "t", s.Range)
	v.Empty = v.Over == nil && len(gs) == 0 && v.Failed == nil
	return p.render(w, r, http.StatusOK, "place", v)
}

// busy fills in what a runner and its machines did over time.
func (p *Pages) busy(r *http.Request, v *placeView, key string, gs []Group, got placeBuilds) {
	now := p.o.Now()
	var ms []Machine
	p.part(r, &v.page, "beat", "what its machines tell now", func(ctx context.Context) (err error) {
		ms, _, err = p.beats(ctx)
		return err
	})
	var machines []string
	cpus, memory := 0, uint64(0)
	rows := slices.Clone(got.Rows)
	told := true
	for i := range gs {
		if slices.Contains(machines, gs[i].Machine) { // a runner that was renamed
			continue
		}
		at := slices.IndexFunc(ms, func(m Machine) bool { return m.Name == gs[i].Machine })
		machines = append(machines, gs[i].Machine)
		if at < 0 {
			told = false
			continue
		}
		m := ms[at].load()
		cpus, memory, told = cpus+m.CPUs, memory+m.MemoryBytes, told && m.CPUs > 0
		for j := range m.Running {
			if r := &m.Running[j]; r.Runner.Key() == key && !m.stale(now) {
				rows = append(rows, r.Row)
			}
		}
	}
	totals := got.Buckets
	if got.All {
		totals = nil
	} else {
		rows = nil
	}
	if got.All || len(got.Buckets) > 0 {
		v.Busy, v.BusyNote = busyCharts(rows, totals, got.Bucket, got.From, got.To, p.slotsOf(key))
	}
	if p.o.Past == nil || len(machines) == 0 || len(machines) > placeMachines {
		return
	}
	if !told {
		cpus, memory = 0, 0
	}
	p.part(r, &v.page, "day", "the last day", func(ctx context.Context) error {
		day, err := p.sumOfPasts(ctx, machines, now.Add(-24*time.Hour))
		if err == nil {
			v.Day, v.Worst = dayCharts(cpus, memory, day)
		}
		return err
	})
	if len(machines) > 1 {
		v.DayNote = fmt.Sprintf("Of its %d machines together; the pressure is the largest and the coverage the least of theirs.", len(machines))
	}
}

func (p *Pages) place(r *http.Request, kind, shown string) (placeView, *selection, time.Time, time.Time) {
	now := p.o.Now()
	s := selectionOf(r, now, "24h")
	v := placeView{page: p.page(r, shown, "machines"), Kind: kind, Ranges: s.rangeChoices(r.URL.Path)}
	v.Span = s.spanForm(r.URL.Path, now)
	v.Crumbs = []link{{Text: "Machines", URL: "/machines"}}
	v.Lines = "now"
	from, to := s.span(now)
	if s.err != nil {
		v.Problem = s.wrong().Want
		from = now.Add(-24 * time.Hour)
	}
	return v, &s, from, to.Add(time.Second)
}

// placeBuilds are a place's latest builds of a time.
type placeBuilds struct {
	Rows     []Row
	All      bool // there are no others
	Buckets  []Bucket
	Sums     *Sums
	Bucket   time.Duration
	From, To time.Time
}

// fillPlace reads the place's builds: the figures, the lanes and the bars.
func (p *Pages) fillPlace(r *http.Request, v *placeView, s *selection, is filter.Term, bq BucketQuery, from, to time.Time) (got placeBuilds, err error) {
	now := p.o.Now()
	page, err := p.o.Source.Builds(r.Context(), Query{Filter: append(slices.Clone(s.Filter), is), Sort: SortEnded, Limit: occupancyBlocks, Sums: true, Bare: true})
	if err != nil {
		return got, err
	}
	v.Figures = sumFigures(page.Sums)
	all := page.Next == ""
	got = placeBuilds{Rows: page.Rows, All: all, Sums: page.Sums, To: to}
	if n := len(page.Rows); n > 0 {
		first := page.Rows[n-1].StartedAt
		if from.IsZero() || all && from.Before(first) && now.Sub(from) > 48*time.Hour {
			from = first
		}
	}
	if from.IsZero() { // of all time, and there are none
		return got, nil
	}
	list := func(from, to time.Time) string {
		return href("/builds", string(is.Field), is.Text, "from", minute(from), "to", minute(to.Add(time.Minute-1)))
	}
	bq.From, bq.To, bq.Bucket = from, to, bucketOf(from, to)
	read := p.part(r, &v.page, "over", "the builds over time", func(ctx context.Context) (err error) {
		got.Buckets, err = p.o.Totals.Buckets(ctx, bq)
		return err
	})
	got.From, got.Bucket = from, bq.Bucket
	switch {
	case len(page.Rows) == 0:
	case all:
		v.Over = lanesOf(page.Rows, from, to, list)
	case s.Range == "all":
		if v.Over = lanesOf(page.Rows, from, to, list); v.Over != nil {
			v.Over.Note = fmt.Sprintf("The latest %d builds.", len(page.Rows))
		}
	case !read:
	default:
		v.Over = countsOf(got.Buckets, from, to, bq.Bucket, list)
	}
	if read {
		v.Bars = barsOf(got.Buckets, from, to, bq.Bucket, list)
	}
	return got, nil
}

// beat is what the machine's last heartbeat said.
func (v *placeView) beat(m *Machine, now time.Time) {
	add := func(label, value string) {
		if value != "" && value != dash {
			v.Facts = append(v.Facts, fact{Label: label, Link: link{Text: display.Fit(value, 60, "…"), Title: title(value)}})
		}
	}
	v.Units = unitsOf([]*Machine{m})
	row := v.Units.machine(m, now)
	v.Reports = true
	v.Lately = latelyCharts(m)
	if m.stale(now) {
		v.Stale = row.Stale
	}
	add("last seen", row.Seen)
	switch {
	case row.CPU != dash:
		add("CPU", row.CPU+" cores")
	case m.CPUs > 0:
		add("CPUs", fmt.Sprint(m.CPUs))
	}
	if m.MemoryUsed.Known {
		add("memory", row.Memory+" "+v.Units.Memory)
	} else if m.MemoryBytes > 0 {
		add("memory", amount(float64(m.MemoryBytes)))
	}
	add("disk", perSecond(m.DiskRate))
	add("network", perSecond(m.NetRate))
	if n, ok := m.Containers.Get(); ok {
		add("containers", fmt.Sprint(n))
	}
	add("pool", m.Pool)
	add("system", m.OS)
	add("kernel", m.Kernel)
	add("cgroups", m.Cgroup)
	if !m.BootedAt.IsZero() {
		add("up for", seconds(now.Sub(m.BootedAt).Seconds()))
	}
	add("runs", strings.Join(m.Executors, ", "))
	add("agent", m.AgentVersion)
	if !m.AgentSince.IsZero() {
		add("agent meters for", seconds(now.Sub(m.AgentSince).Seconds()))
	}
	var own []string
	if m.OwnCPUMillis.Known {
		own = append(own, sig3(m.OwnCPUMillis.Value)+" ms CPU a second")
	}
	if m.OwnMemoryBytes.Known {
		own = append(own, amount(float64(m.OwnMemoryBytes.Value)))
	}
	add("agent's own cost", strings.Join(own, ", "))
	if m.SpoolBytes.Value > 0 {
		add("waits to be sent", amount(float64(m.SpoolBytes.Value)))
	}
	if m.Coverage.Known {
		add("coverage", fmt.Sprintf("%.1f %%", 100*m.Coverage.Value))
	}
	if m.Pressure.Known {
		add("waits for "+name(m.PressureOf), percent(m.Pressure.Value)+" of the time")
	}
	running := slices.Clone(m.Running)
	slices.SortStableFunc(running, func(a, b Running) int { return cmp.Compare(b.CPUNow.Value, a.CPUNow.Value) })
	for i := range running[:min(len(running), runsNow)] {
		v.Runs = append(v.Runs, v.Units.build(&running[i], now, v.Stale != ""))
	}
	if n := len(running) - len(v.Runs); n > 0 {
		v.MoreRuns = fmt.Sprintf("and %d more that use less CPU", n)
	}
}
