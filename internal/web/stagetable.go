package web

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/cimeter/cimeter"
)

// stageTable is every stage with all its numbers, one unit in a column.
type stageTable struct {
	Groups   []stageGroup
	Headings []heading
	Rows     []stageRow
	Total    []stageCell
}

// stageGroup is a heading over several columns.
type stageGroup struct {
	Label, Unit, Class string
	Span               int
}

type stageRow struct {
	Name     link
	Beside   bool
	Boundary boundary
	From, To float64
	Cells    []stageCell
	Most     bool
}

type stageCell struct {
	Text, Class, Title string
	First              bool // of its group
}

// stageColumn is a column of the stage table.
type stageColumn struct {
	key   string
	label string
	title string
	group string
	kind  byte // t time, b bytes, n number, c cores, % share
	value func(u *cimeter.Usage, total *cimeter.Usage) opt
	why   string // why it may be absent
}

func stat(s *cimeter.Stat, f func(*cimeter.Stat) opt) opt {
	if s == nil {
		return opt{}
	}
	return f(s)
}

func avg(s *cimeter.Stat) opt       { return some(s.Avg) }
func maximum(s *cimeter.Stat) opt   { return some(s.Max) }
func deviation(s *cimeter.Stat) opt { return s.StdDev }

func share(part, whole opt) opt {
	if !part.Known || whole.Value <= 0 {
		return opt{}
	}
	return some(part.Value / whole.Value)
}

func memory(u *cimeter.Usage) *cimeter.Stat {
	if u.MemoryBytes == nil {
		return nil
	}
	return &u.MemoryBytes.Stat
}

const (
	noIO  = "io: the cgroup has no io controller, or nothing was read in time"
	noNet = "network: the build used the host's network, or it is not metered"
	noPSI = "pressure: the kernel does not tell it"
	noSD  = "fewer than two readings"
)

// stageColumns are the columns in their order.
var stageColumns = []stageColumn{
	{"wall", "time", "from its start to its end", "time", 't', func(u, _ *cimeter.Usage) opt { return some(u.WallSeconds) }, ""},
	{"wallshare", "%", "share of the build's time", "time", '%', func(u, t *cimeter.Usage) opt { return share(some(u.WallSeconds), some(t.WallSeconds)) }, ""},
	{"cpu", "CPU", "CPU seconds, user and system", "cpu", 't', func(u, _ *cimeter.Usage) opt { return u.CPUSeconds.Total }, "CPU was not read"},
	{"cpushare", "%", "share of the build's CPU time", "cpu", '%', func(u, t *cimeter.Usage) opt { return share(u.CPUSeconds.Total, t.CPUSeconds.Total) }, ""},
	{"avg", "avg", "cores, average", "cores", 'c', func(u, _ *cimeter.Usage) opt { return stat(u.CPUCores, avg) }, "CPU was not read"},
	{"max", "max", "cores, largest interval", "cores", 'c', func(u, _ *cimeter.Usage) opt { return stat(u.CPUCores, maximum) }, "CPU was not read"},
	{"sd", "sd", "cores, standard deviation", "cores", 'c', func(u, _ *cimeter.Usage) opt { return stat(u.CPUCores, deviation) }, noSD},
	{"peak", "peak", "memory, the kernel's own maximum", "mem", 'b', func(u, _ *cimeter.Usage) opt { return peak(u) }, "memory was not read"},
	{"memavg", "avg", "memory, average", "mem", 'b', func(u, _ *cimeter.Usage) opt { return stat(memory(u), avg) }, "memory was not read"},
	{"memmax", "max", "memory, largest reading", "mem", 'b', func(u, _ *cimeter.Usage) opt { return stat(memory(u), maximum) }, "memory was not read"},
	{"memsd", "sd", "memory, standard deviation", "mem", 'b', func(u, _ *cimeter.Usage) opt { return stat(memory(u), deviation) }, noSD},
	{"read", "read", "bytes read from disks", "disk", 'b', func(u, _ *cimeter.Usage) opt {
		if u.IOBytes == nil {
			return opt{}
		}
		return some(float64(u.IOBytes.Read))
	}, noIO},
	{"written", "written", "bytes written to disks", "disk", 'b', func(u, _ *cimeter.Usage) opt {
		if u.IOBytes == nil {
			return opt{}
		}
		return some(float64(u.IOBytes.Write))
	}, noIO},
	{"ops", "all", "operations of disks, both directions", "ops", 'n', func(u, _ *cimeter.Usage) opt {
		if u.IOOperations == nil {
			return opt{}
		}
		return some(float64(u.IOOperations.Read) + float64(u.IOOperations.Write))
	}, noIO},
	{"opsmax", "max/s", "operations a second of the busier direction, largest interval", "ops", 'n', func(u, _ *cimeter.Usage) opt {
		if u.IOOperationsPerSecond == nil {
			return opt{}
		}
		return some(max(u.IOOperationsPerSecond.Read.Max, u.IOOperationsPerSecond.Write.Max))
	}, noIO},
	{"received", "received", "bytes received", "net", 'b', func(u, _ *cimeter.Usage) opt {
		if u.NetworkBytes == nil {
			return opt{}
		}
		return some(float64(u.NetworkBytes.Receive))
	}, noNet},
	{"sent", "sent", "bytes sent", "net", 'b', func(u, _ *cimeter.Usage) opt {
		if u.NetworkBytes == nil {
			return opt{}
		}
		return some(float64(u.NetworkBytes.Transmit))
	}, noNet},
	{"throttled", "throttled", "time its CPU limit held it up", "held", 't', func(u, _ *cimeter.Usage) opt { return u.CPUThrottledSeconds }, "no CPU limit, or not read"},
	{"pressure", "waited", "time in which some task waited for CPU, memory or disk, the longest of the three", "held", 't', func(u, _ *cimeter.Usage) opt {
		p := u.PressureSeconds
		if p == nil {
			return opt{}
		}
		v := opt{}
		for _, o := range []opt{p.CPUSome, p.MemorySome, p.IOSome} {
			if o.Known && (!v.Known || o.Value > v.Value) {
				v = o
			}
		}
		return v
	}, noPSI},
	{"oom", "OOM", "processes killed for memory", "held", 'n', func(u, _ *cimeter.Usage) opt {
		if !u.OOMKills.Known && !u.OOMKillsNested.Known {
			return opt{}
		}
		return some(float64(u.OOMKills.Value + u.OOMKillsNested.Value))
	}, "memory was not read"},
}

// stagesOf makes the table; ?stages= is what it is sorted by, time without it.
func stagesOf(r *cimeter.Record, q url.Values, path string, to func(from, to float64) string) stageTable {
	var t stageTable
	wanted, descending := strings.CutPrefix(q.Get("stages"), "-")
	most := costliest(r)
	order := make([]*cimeter.Stage, 0, len(r.Stages))
	for i := range r.Stages {
		order = append(order, &r.Stages[i])
	}
	slices.SortStableFunc(order, func(a, b *cimeter.Stage) int {
		if a.Alongside != b.Alongside {
			if b.Alongside {
				return -1
			}
			return 1
		}
		return 0
	})
	cols := make([]column, len(stageColumns))
	sorted := -1
	for i, c := range stageColumns {
		var top float64
		for _, s := range append(order, &cimeter.Stage{Usage: r.Usage}) {
			top = max(top, c.value(&s.Usage, &r.Usage).Value)
		}
		switch c.kind {
		case 't':
			cols[i] = timeColumn(top)
		case 'b':
			cols[i] = stageBytes(top)
		case 'c':
			cols[i] = column{"cores", 1, 2}
		case '%':
			cols[i] = column{"%", 0.01, 0}
		default:
			cols[i] = column{"", 1, 0}
		}
		if c.key == wanted {
			sorted = i
		}
		if len(t.Groups) == 0 || t.Groups[len(t.Groups)-1].Class != c.group {
			t.Groups = append(t.Groups, stageGroup{Class: c.group, Label: map[string]string{"time": "time", "cpu": "CPU", "cores": "CPU in", "mem": "memory",
				"disk": "disk", "ops": "disk operations", "net": "network", "held": "held back"}[c.group]})
		}
		t.Groups[len(t.Groups)-1].Span++
	}
	sharedUnits(cols)
	for i, c := range stageColumns { // the first column of a group gives its unit
		for j := range t.Groups {
			if g := &t.Groups[j]; g.Class == c.group && g.Unit == "" {
				g.Unit = cols[i].Unit
			}
		}
	}
	if sorted >= 0 {
		slices.SortStableFunc(order, func(a, b *cimeter.Stage) int {
			x, y := stageColumns[sorted].value(&a.Usage, &r.Usage), stageColumns[sorted].value(&b.Usage, &r.Usage)
			if x.Known != y.Known {
				if x.Known {
					return -1
				}
				return 1
			}
			if descending {
				return cmp.Compare(y.Value, x.Value)
			}
			return cmp.Compare(x.Value, y.Value)
		})
	}
	for i, c := range stageColumns {
		h := heading{Label: c.label, Title: c.title, Class: "n"}
		if i == 0 || stageColumns[i-1].group != c.group {
			h.Class = "n first"
		}
		z := cloneValues(q)
		z.Set("stages", "-"+c.key)
		if i == sorted {
			h.Sorted = "ascending"
			if descending {
				h.Sorted = "descending"
				z.Set("stages", c.key)
			}
		}
		h.URL = path + "?" + z.Encode() + "#stages"
		t.Headings = append(t.Headings, h)
	}
	for _, s := range order {
		row := stageRow{Name: link{Text: stageLabel(s), Title: title(s.Name), URL: "#timeline"}, Beside: s.Alongside, Boundary: boundaryOf(s.Boundary), Most: s == most}
		if s.EndedAt.After(s.StartedAt) {
			row.From, row.To = s.StartedAt.Sub(r.StartedAt).Seconds(), s.EndedAt.Sub(r.StartedAt).Seconds()
			row.Name.URL = to(row.From, row.To)
		}
		row.Cells = stageCells(&s.Usage, &r.Usage, cols)
		t.Rows = append(t.Rows, row)
	}
	t.Total = stageCells(&r.Usage, &r.Usage, cols)
	return t
}

// stageBytes is a column of MiB, of more only where the digits would not fit: a
// small stage is not 0.00 GiB beside a large one.
func stageBytes(largest float64) column {
	if largest >= 99999*mib {
		return bytesColumn(largest)
	}
	return column{"MiB", mib, decimalsFor(largest / mib)}
}

// sharedUnits gives the columns of a group that hold bytes one unit, so that
// they can be compared.
func sharedUnits(cols []column) {
	for i := 0; i < len(cols); {
		end := i + 1
		for end < len(cols) && stageColumns[end].kind == stageColumns[i].kind && stageColumns[end].group == stageColumns[i].group {
			end++
		}
		if stageColumns[i].kind == 'b' {
			shared := cols[i]
			for _, c := range cols[i:end] {
				if c.size > shared.size || c.size == shared.size && c.decimals < shared.decimals {
					shared = c
				}
			}
			for j := i; j < end; j++ {
				cols[j] = shared
			}
		}
		i = end
	}
}

func stageCells(u, total *cimeter.Usage, cols []column) []stageCell {
	cells := make([]stageCell, 0, len(stageColumns))
	for i, c := range stageColumns {
		v := c.value(u, total)
		cell := stageCell{Text: cols[i].cell(v)}
		if i == 0 || stageColumns[i-1].group != c.group {
			cell.First = true
		}
		switch {
		case !v.Known:
			cell.Title, cell.Class = c.why, "off"
		case v.Value == 0:
			cell.Class = "off"
		case c.key == "oom", c.key == "throttled" && v.Value >= leastWait:
			cell.Class = "bad"
		}
		cells = append(cells, cell)
	}
	return cells
}
