package web

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter/internal/display"
)

// listed are the columns of the list of builds in their order, beside the build itself,
// which is always there: as the parameter cols names them, and as people read them.
var listed = []listedColumn{
	{"result", "result", true}, {"ref", "ref", true}, {"machine", "machine", true}, {"runner", "runner", false}, {"started", "started", true}, {"ended", "ended", false},
	{"queue", "queue", true}, {"wall", "time", true}, {"cpu", "CPU", true}, {"cores", "cores", false}, {"shape", "CPU over time", true}, {"mem", "memory", true}, {"io", "disk", true},
	{"net", "net", true}, {"finding", "finding", true},
}

type listedColumn struct {
	key, label string
	usual      bool // shown where nothing else is asked for
}

// columnsParameter names the columns, with commas between or given more than once.
const columnsParameter = "cols"

// columns reads which columns are shown, and what is wrong with the parameter; in links
// it then has its one form, and none where it asks for the usual.
func (s *selection) columns() (shows map[string]bool, problem string) {
	shows = map[string]bool{}
	asked, usual := false, true
	for _, list := range s.values[columnsParameter] {
		for key := range strings.SplitSeq(list, ",") {
			if key = strings.TrimSpace(key); key == "" {
				continue
			}
			at := slices.IndexFunc(listed, func(l listedColumn) bool { return l.key == key })
			switch {
			case at >= 0:
				shows[key], asked = true, true
			case key == "build":
				asked = true
			case problem == "":
				problem = columnsParameter + ": there is no column " + name(key) + ": want build"
				for i, l := range listed {
					problem += map[bool]string{true: " or ", false: ", "}[i == len(listed)-1] + l.key
				}
			}
		}
	}
	keys := []string{"build"}
	for _, l := range listed {
		if !asked && l.usual {
			shows[l.key] = true
		}
		usual = usual && shows[l.key] == l.usual
		if shows[l.key] {
			keys = append(keys, l.key)
		}
	}
	if s.values.Del(columnsParameter); !usual {
		s.values.Set(columnsParameter, strings.Join(keys, ","))
	}
	return shows, problem
}

// chooser is the form of the columns.
type chooser struct {
	Keep  []hidden
	Boxes []columnBox
	Usual string // URL of the list with the usual columns; "" it has them
}

type columnBox struct {
	Key, Label string
	On         bool
}

func (s *selection) chooser(shows map[string]bool) *chooser {
	c := &chooser{Keep: s.keep(columnsParameter)}
	for _, l := range listed {
		c.Boxes = append(c.Boxes, columnBox{l.key, l.label, shows[l.key]})
	}
	if s.values.Has(columnsParameter) {
		c.Usual = s.url("/builds", columnsParameter, "")
	}
	return c
}

// listColumns are the units of a list of builds.
type listColumns struct{ queue, wall, cpu, memory, disk, net column }

func columnsOf(rows []Row) listColumns {
	var queue, wall, cpu, memory, disk, net []opt
	for i := range rows {
		r := &rows[i]
		queue, wall, cpu = append(queue, r.Queue()), append(wall, r.Wall()), append(cpu, r.CPUSeconds)
		memory, disk, net = append(memory, number(r.MemoryPeak)), append(disk, number(r.DiskBytes)), append(net, number(r.NetBytes))
	}
	return listColumns{timeColumn(largest(queue...)), timeColumn(largest(wall...)), timeColumn(largest(cpu...)),
		bytesColumn(largest(memory...)), bytesColumn(largest(disk...)), bytesColumn(largest(net...))}
}

func (c listColumns) headings(s *selection, q Query, shows map[string]bool) []heading {
	by := "-" + string(q.Sort)
	if q.Ascending {
		by = string(q.Sort)
	}
	sortable := func(label, unit, title string, key Sort) heading {
		return sortHeading(heading{Label: label, Unit: unit, Title: title}, string(key), by, func(sort string) string { return s.url("/builds", "sort", sort) })
	}
	heads := map[string]heading{
		"result": {Label: "result", Class: "result"}, "ref": {Label: "ref"}, "machine": {Label: "machine"}, "runner": {Label: "runner"},
		"started": sortable("started", "", "when it began; sorted by when it ended", SortEnded), "ended": sortable("ended", "", "when it ended", SortEnded),
		"queue": sortable("queue", c.queue.Unit, "from created to started", SortQueue), "wall": sortable("time", c.wall.Unit, "from start to end", SortWall),
		"cpu": sortable("CPU", c.cpu.Unit, "CPU seconds, user and system", SortCPU), "cores": {Label: "cores", Title: "CPU seconds a second, on average, and its limit", Class: "n"},
		"shape": {Label: "over time", Title: "CPU over the build's time", Class: "spark"}, "mem": sortable("memory", c.memory.Unit, "peak; the bar shows it against the limit", SortMemory),
		"io": sortable("disk", c.disk.Unit, "read and written", SortDisk), "net": sortable("net", c.net.Unit, "received and sent", SortNet), "finding": {Label: "finding"},
	}
	var hs []heading
	for _, l := range listed {
		h := heads[l.key]
		if h.URL != "" && (l.key == "started" || l.key == "ended") {
			h.Class = ""
		}
		if shows[l.key] {
			hs = append(hs, h)
		}
		if l.key == "result" {
			hs = append(hs, heading{Label: "build"})
		}
	}
	return hs
}

func (c listColumns) row(r *Row, now time.Time) buildRow {
	b := buildRow{ID: r.Key, Result: resultOf(r.Result, r.Running), Build: link{Text: label(&r.Build), URL: buildURL(r.Key), Title: title(r.Key)},
		Ref: display.Fit(r.Ref, 28, "…"), RefTitle: title(r.Ref + " " + r.SHA), Started: stampOf(now, r.StartedAt),
		Queue: c.queue.cell(r.Queue()), Wall: c.wall.cell(r.Wall()), CPU: c.cpu.cell(r.CPUSeconds),
		Memory: c.memory.cell(number(r.MemoryPeak)), Disk: c.disk.cell(number(r.DiskBytes)), Net: c.net.cell(number(r.NetBytes)),
		Spark: sparkPath(r.CPUSpark), Ended: stampOf(now, r.EndedAt), Cores: optional(r.CPUCores, sig3)}
	b.why(r)
	if l := r.CPULimit; r.CPUCores.Known && l.Known && l.Value > 0 {
		b.Cores += " of " + short(l.Value)
	}
	if k := r.Build.Runner.Key(); k != "" {
		b.Runner = link{display.Fit(orElse(r.Build.Runner.Name, k), 24, "…"), href("/runner", "key", k), title(k)}
	}
	if r.Machine != "" {
		b.Machine = link{display.Fit(r.Machine, 24, "…"), href("/machine", "name", r.Machine), title(r.Machine)}
	}
	if r.MemoryPeak.Known && r.MemoryLimit.Known && r.MemoryLimit.Value > 0 {
		share := float64(r.MemoryPeak.Value) / float64(r.MemoryLimit.Value)
		b.Bar, b.Near = barPath(share), share >= 0.9
		b.MemoryOf = percent(share) + " of its limit of " + amount(float64(r.MemoryLimit.Value))
	}
	if len(r.Verdicts) > 0 {
		b.Verdict = verdictWord(r.Verdicts[0])
		if n := len(r.Verdicts) - 1; n > 0 {
			b.Verdict += fmt.Sprintf(" +%d", n)
		}
	} else if b.Near {
		b.Verdict = "near its memory limit"
	}
	switch {
	case r.Unmetered:
		b.Badge = "not metered"
	case !r.Complete && !r.Running:
		b.Badge = "incomplete"
	}
	return b
}

// why says of what is absent why it is.
func (b *buildRow) why(r *Row) {
	said := "not measured: the build's page says what is missing"
	switch {
	case r.Unmetered:
		said = "no agent metered this build"
	case r.Running:
		said = "not known while it runs"
	}
	for _, c := range []struct {
		text, why *string
		said      string
	}{{&b.Queue, &b.QueueOf, "its CI server did not tell when it was created"}, {&b.Wall, &b.WallOf, "it never started"}, {&b.CPU, &b.CPUOf, said}, {&b.Cores, &b.CoresOf, said},
		{&b.Memory, &b.MemoryOf, said}, {&b.Disk, &b.DiskOf, said}, {&b.Net, &b.NetOf, said}} {
		if *c.text == dash {
			*c.why = c.said
		}
	}
}
