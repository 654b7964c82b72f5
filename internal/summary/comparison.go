package summary

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// Comparison is two builds side by side, as JSON. Its names are a contract.
type Comparison struct {
	A       cimeter.Build   `json:"a"`
	B       cimeter.Build   `json:"b"`
	MedianA int             `json:"a_median_of,omitempty"` // A is no build but the median of so many
	MedianB int             `json:"b_median_of,omitempty"`
	Figures []Figure        `json:"figures"`
	Stages  []ComparedStage `json:"stages"` // in the order of a, then what only b has
}

// Figure is one cost in two builds. A side that does not know it is absent, and
// then there is no difference.
type Figure struct {
	Name  string `json:"name"` // as in a record, with a dot for what is within
	A     opt    `json:"a,omitzero"`
	B     opt    `json:"b,omitzero"`
	Delta opt    `json:"delta,omitzero"` // b less a
	Ratio opt    `json:"ratio,omitzero"` // b to a; absent when a is 0
}

// ComparedStage is a stage in two builds.
type ComparedStage struct {
	Name    string   `json:"name"`
	InA     bool     `json:"in_a"`
	InB     bool     `json:"in_b"`
	Figures []Figure `json:"figures"`
}

// Compare lays two builds side by side; see [Pairs] for how stages are matched.
func Compare(a, b *cimeter.Record) Comparison {
	c := Comparison{A: a.Build, B: b.Build, Figures: figuresOf(&a.Usage, &b.Usage), Stages: []ComparedStage{}}
	for _, p := range Pairs(a, b) {
		c.Stages = append(c.Stages, ComparedStage{p.Name, p.A != nil, p.B != nil, figuresOf(p.A, p.B)})
	}
	return c
}

// CompareJSON writes the comparison as indented JSON.
func CompareJSON(w io.Writer, a, b Side) error {
	c := Compare(a.Record, b.Record)
	c.MedianA, c.MedianB = a.Median, b.Median
	doc, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(display.JSON(doc), '\n'))
	return err
}

// figuresOf returns the costs that one of two usages knows; nil knows none.
func figuresOf(a, b *cimeter.Usage) []Figure {
	all := []Figure{}
	for _, cost := range costs() {
		f := Figure{Name: cost.name}
		if a != nil {
			f.A = cost.get(a)
		}
		if b != nil {
			f.B = cost.get(b)
		}
		if f.A.Known && f.B.Known {
			f.Delta = some(f.B.Value - f.A.Value)
			if f.A.Value != 0 {
				f.Ratio = some(f.B.Value / f.A.Value)
			}
		}
		if f.A.Known || f.B.Known {
			all = append(all, f)
		}
	}
	return all
}

type cost struct {
	name string
	get  func(*cimeter.Usage) opt
}

func costs() []cost {
	io := func(pick func(*cimeter.ReadWrite[uint64]) uint64) func(*cimeter.Usage) opt {
		return func(u *cimeter.Usage) opt {
			if u.IOBytes == nil {
				return opt{}
			}
			return some(float64(pick(u.IOBytes)))
		}
	}
	network := func(pick func(*cimeter.ReceiveTransmit[uint64]) uint64) func(*cimeter.Usage) opt {
		return func(u *cimeter.Usage) opt {
			if u.NetworkBytes == nil {
				return opt{}
			}
			return some(float64(pick(u.NetworkBytes)))
		}
	}
	return []cost{
		{"wall_seconds", func(u *cimeter.Usage) opt { return some(u.WallSeconds) }},
		{"cpu_seconds.total", cpuSeconds},
		{"cpu_throttled_seconds", func(u *cimeter.Usage) opt { return u.CPUThrottledSeconds }},
		{"memory_bytes.peak", func(u *cimeter.Usage) opt {
			if u.MemoryBytes == nil {
				return opt{}
			}
			return known(u.MemoryBytes.Peak)
		}},
		{"io_bytes.read", io(func(d *cimeter.ReadWrite[uint64]) uint64 { return d.Read })},
		{"io_bytes.write", io(func(d *cimeter.ReadWrite[uint64]) uint64 { return d.Write })},
		{"network_bytes.receive", network(func(d *cimeter.ReceiveTransmit[uint64]) uint64 { return d.Receive })},
		{"network_bytes.transmit", network(func(d *cimeter.ReceiveTransmit[uint64]) uint64 { return d.Transmit })},
	}
}

// CompareCSV writes the comparison for a spreadsheet (RFC 4180): a row for each figure
// of the builds, whose stage is empty, and of each stage. What is not known is an empty
// cell.
func CompareCSV(w io.Writer, a, b *cimeter.Record) error {
	rows := [][]string{{"stage", "nth", "figure", "a", "b", "delta"}}
	add := func(stage, nth string, figures []Figure) {
		for _, f := range figures {
			rows = append(rows, []string{stage, nth, f.Name, CSVKnown(f.A), CSVKnown(f.B), CSVKnown(f.Delta)})
		}
	}
	c := Compare(a, b)
	add("", "", c.Figures)
	seen := map[string]int{}
	for _, s := range c.Stages {
		seen[s.Name]++
		add(CSVText(s.Name), strconv.Itoa(seen[s.Name]), s.Figures)
	}
	return csv.NewWriter(w).WriteAll(rows)
}
