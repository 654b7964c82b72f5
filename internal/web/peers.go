package web

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// keyFigure is one of the build's costs: how much, of what, and where it lies
// among the same job's last builds.
type keyFigure struct {
	Label  string
	Class  string // colour of its resource
	Value  string
	Of     string
	Bar    string // path: the share of the limit
	BarOf  string
	Near   bool
	Usual  string // the median
	Change change
	Dots   []dot
}

// dot is a build on a strip from the least to the most.
type dot struct {
	X, URL, Title, Class string
}

// peerTable is the same job's last builds, this one marked.
type peerTable struct {
	Rows     []buildRow
	Headings []heading
	All      string
	Compare  []link
	Note     string
}

// peers reads the job's last builds and fills in what is compared with them; the build's
// own figures are there without.
func (p *Pages) peers(ctx context.Context, v *buildView, r *cimeter.Record, now time.Time) error {
	if v.Spread != nil { // the builds before it are whole, too
		r = v.Spread.whole
	}
	this := RowOf(r)
	this.Running = v.Running
	var before []Row
	var err error
	if r.Project != "" && r.Name != "" {
		var rs []*cimeter.Record
		rs, err = p.o.Source.History(ctx, HistoryQuery{Project: r.Project, Name: r.Name, Before: r.EndedAt, Limit: peerCount + 1 + v.Spread.len()})
		for _, b := range rs {
			if b.Key != r.Key && !v.Spread.holds(b.Key) && len(before) < peerCount {
				before = append(before, RowOf(b))
			}
		}
	}
	v.Figures = keyFigures(r, &this, before)
	if err != nil || len(before) == 0 {
		return err
	}
	shown := append([]Row{this}, before...)
	if len(shown) > peerCount {
		shown = shown[:peerCount]
	}
	cols := columnsOf(shown)
	t := &peerTable{All: href("/job", "project", r.Project, "name", r.Name)}
	for i := range shown {
		row := cols.row(&shown[i], now)
		row.This = i == 0
		row.Build.Text = "#" + display.Fit(shown[i].Number, 16, "…")
		if shown[i].Number == "" {
			row.Build.Text = name(shown[i].Key)
		}
		t.Rows = append(t.Rows, row)
	}
	t.Headings = []heading{{Label: "result"}, {Label: "build"}, {Label: "ref"}, {Label: "started"}, {Label: "time", Unit: cols.wall.Unit, Class: "n"},
		{Label: "CPU", Unit: cols.cpu.Unit, Class: "n"}, {Label: "memory", Unit: cols.memory.Unit, Class: "n"}}
	if len(before) < minPeers {
		t.Note = fmt.Sprintf("Differences are marked from %d builds of a job on.", minPeers)
	}
	compare := func(a, words string) {
		t.Compare = append(t.Compare, link{Text: words, URL: href("/compare", "a", a, "b", r.Key)})
	}
	compare("median:20", "the median")
	for _, row := range before {
		if row.Result == "success" {
			compare(row.Key, "the last green")
			break
		}
	}
	for _, row := range before {
		if row.Ref == "main" || row.Ref == "master" {
			compare(row.Key, "the last on "+row.Ref)
			break
		}
	}
	v.Peers = t
	return nil
}

// keyFigures are the build's costs, with the strip of the job's last builds.
func keyFigures(r *cimeter.Record, this *Row, before []Row) []keyFigure {
	u := &r.Usage
	var fs []keyFigure
	unread := "was not read"
	if this.Unmetered {
		unread = "no agent metered it"
	}
	add := func(f keyFigure, value func(*Row) opt, write func(float64) string) {
		if v := value(this); v.Known {
			f.Value = write(v.Value)
			f.compare(v.Value, this, before, value, write)
		} else {
			f.Value = dash
		}
		fs = append(fs, f)
	}
	cpu := keyFigure{Label: "CPU", Class: "cpu"}
	if s := u.CPUCores; s != nil {
		cpu.Of = sig3(s.Avg) + " cores on average, " + sig3(s.Max) + " at most"
		if this.CPULimit.Value > 0 {
			cpu.Of = fmt.Sprintf("%s of %s on average, %s at most", sig3(s.Avg), cores(this.CPULimit.Value), sig3(s.Max))
			cpu.Bar, cpu.BarOf = barPath(s.Avg/this.CPULimit.Value), percent(s.Avg/this.CPULimit.Value)+" of its limit"
		}
	}
	if !this.CPUSeconds.Known && this.Unmetered {
		cpu.Of = unread
	}
	add(cpu, func(r *Row) opt { return r.CPUSeconds }, cpuTime)
	mem := keyFigure{Label: "Memory, peak", Class: "mem", Of: "no limit"}
	if l := number(this.MemoryLimit); l.Value > 0 && this.MemoryPeak.Known {
		s := float64(this.MemoryPeak.Value) / l.Value
		mem.Bar, mem.BarOf, mem.Near = barPath(s), percent(s)+" of its limit", s >= nearLimit
		mem.Of = percent(s) + " of " + amount(l.Value)
	}
	if !this.MemoryPeak.Known {
		mem.Of = unread
	}
	add(mem, func(r *Row) opt { return number(r.MemoryPeak) }, amount)
	disk := keyFigure{Label: "Disk", Class: "disk", Of: unread}
	if b := u.IOBytes; b != nil {
		disk.Of = "read " + amount(float64(b.Read)) + ", written " + amount(float64(b.Write))
	}
	add(disk, func(r *Row) opt { return number(r.DiskBytes) }, amount)
	net := keyFigure{Label: "Network", Class: "net", Of: unread}
	if b := u.NetworkBytes; b != nil {
		net.Of = "received " + amount(float64(b.Receive)) + ", sent " + amount(float64(b.Transmit))
	}
	add(net, func(r *Row) opt { return number(r.NetBytes) }, amount)
	add(keyFigure{Label: "Time", Class: "other"}, func(r *Row) opt { return r.Wall() }, seconds)
	add(keyFigure{Label: "Queue", Class: "other"}, func(r *Row) opt { return r.Queue() }, seconds)
	return fs
}

// compare puts v among the job's last builds.
func (f *keyFigure) compare(v float64, this *Row, before []Row, value func(*Row) opt, write func(float64) string) {
	s := spreadOf(known(before, value))
	if s.n < minPeers {
		return
	}
	f.Usual = write(s.median)
	f.Change = changeOf(v, s.median, s.beyond(v))
	lo, hi := min(s.lo, v), max(s.hi, v)
	x := func(v float64) string {
		if hi <= lo {
			return "50%"
		}
		return pct(0.03 + 0.94*(v-lo)/(hi-lo))
	}
	for i := len(before) - 1; i >= 0; i-- {
		b := &before[i]
		if o := value(b); o.Known && !math.IsNaN(o.Value) {
			class := ""
			if b.Result == "failed" {
				class = "failed"
			}
			f.Dots = append(f.Dots, dot{x(o.Value), buildURL(b.Key), label(&b.Build) + ", " + write(o.Value), class})
		}
	}
	f.Dots = append(f.Dots, dot{X: x(v), Title: "this build, " + write(v), Class: "this"})
}
