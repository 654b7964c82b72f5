package store

import (
	"cmp"
	"slices"
	"time"
)

// Dim says what a rollup's names A, B and C are.
type Dim int64

// The dimensions of rollups. A rollup is of one day, of one hour for DimAll.
const (
	DimAll        Dim = 0 // by hour
	DimProject    Dim = 1 // project
	DimJob        Dim = 2 // project, name
	_             Dim = 3
	DimMachine    Dim = 4 // machine
	DimMachineJob Dim = 5 // machine, project, name
	DimRunner     Dim = 6 // runner's key, machine, runner's name
	DimDay        Dim = 7 // all of a day
)

const (
	hourUS = int64(time.Hour / time.Microsecond)
	dayUS  = 24 * hourUS
)

// RollupKey tells rollups apart.
type RollupKey struct {
	Dim     Dim
	A, B, C string
	At      int64 // microseconds: start of its day (UTC) or hour
}

// Rollup is the sums of the builds of one key.
type Rollup struct {
	RollupKey
	Builds, Failed, Canceled, OOM                        int64
	WallUS, CPUUS, QueueUS, Queued, ThrottledUS, IO, Net int64
	MemPeak                                              int64 // the largest, -1: none known
	LastAt                                               int64
}

// NewRollups sums rows up, without those that they replace, sorted by key:
// servers that write to the same rollups take the locks in one order.
func NewRollups(rows []*Row, replaced ...*Row) []Rollup {
	sums := map[RollupKey]*Rollup{}
	sumRollups(sums, rows)
	if len(replaced) > 0 {
		old := map[RollupKey]*Rollup{}
		sumRollups(old, replaced)
		for k, r := range old {
			add(sums, k, r.negative())
		}
	}
	out := make([]Rollup, 0, len(sums))
	for _, s := range sums {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(x, y Rollup) int {
		return cmp.Or(cmp.Compare(x.Dim, y.Dim), cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B), cmp.Compare(x.C, y.C), cmp.Compare(x.At, y.At))
	})
	return out
}

func sumRollups(sums map[RollupKey]*Rollup, rows []*Row) {
	for _, r := range rows {
		day := r.At - r.At%dayUS
		spent := Rollup{WallUS: known(r.WallUS), CPUUS: known(r.CPUUS), ThrottledUS: known(r.ThrottledUS), IO: known(r.IOBytes), Net: known(r.NetBytes), MemPeak: r.MemPeak, LastAt: r.At}
		for _, k := range []RollupKey{
			{Dim: DimAll, At: r.At - r.At%hourUS},
			{Dim: DimDay, At: day},
			{DimProject, r.Project, "", "", day},
			{DimJob, r.Project, r.Name, "", day},
			{DimMachine, r.Machine, "", "", day},
			{DimMachineJob, r.Machine, r.Project, r.Name, day},
			{DimRunner, r.Runner, r.Machine, r.RunnerName, day},
		} {
			build := spent
			build.count(r, k.Dim)
			add(sums, k, &build)
		}
	}
}

// again is what a row must not be to be counted as a build of a dimension.
func (d Dim) again() Part {
	switch d {
	case DimMachine, DimMachineJob:
		return AgainOnMachine
	case DimRunner:
		return AgainOnRunner
	}
	return AgainOfBuild
}

// count counts the build of a row, of which each dimension counts the first row alone:
// what is told of a build in several rows is told of that one.
func (s *Rollup) count(r *Row, d Dim) {
	if d.again() != AgainOfBuild || r.Part&AgainKilled == 0 {
		s.OOM = r.OOM
	}
	if r.Part&d.again() != 0 {
		return
	}
	s.Builds, s.QueueUS = 1, known(r.QueueUS)
	switch r.Result {
	case "failed":
		s.Failed = 1
	case "canceled":
		s.Canceled = 1
	}
	if r.QueueUS >= 0 {
		s.Queued = 1
	}
}

// negative takes r out of a sum. The peak and the latest end, which no sum gives
// back, stay as they are.
func (s *Rollup) negative() *Rollup {
	return &Rollup{Builds: -s.Builds, Failed: -s.Failed, Canceled: -s.Canceled, OOM: -s.OOM, WallUS: -s.WallUS, CPUUS: -s.CPUUS, QueueUS: -s.QueueUS,
		Queued: -s.Queued, ThrottledUS: -s.ThrottledUS, IO: -s.IO, Net: -s.Net, MemPeak: -1}
}

func known(n int64) int64 { return max(n, 0) }

func add(sums map[RollupKey]*Rollup, k RollupKey, r *Rollup) {
	s, ok := sums[k]
	if !ok {
		s = &Rollup{RollupKey: k, MemPeak: -1}
		sums[k] = s
	}
	s.merge(r)
}

func (s *Rollup) merge(r *Rollup) {
	s.Builds += r.Builds
	s.Failed += r.Failed
	s.Canceled += r.Canceled
	s.OOM += r.OOM
	s.WallUS += r.WallUS
	s.CPUUS += r.CPUUS
	s.QueueUS += r.QueueUS
	s.Queued += r.Queued
	s.ThrottledUS += r.ThrottledUS
	s.IO += r.IO
	s.Net += r.Net
	s.MemPeak = max(s.MemPeak, r.MemPeak)
	s.LastAt = max(s.LastAt, r.LastAt)
}

// Name is a value that a field has had: what text searches look through and
// what type-ahead offers. Target is what is asked for instead: of a runner's
// token or name its key, of a stage a set that it is in, of others the value.
type Name struct {
	Kind   string // project, job, ref, runner, machine, stage
	Value  string
	Target string
}

// NewNames returns the names in rows, each once, sorted.
func NewNames(rows []*Row) []Name {
	set := map[Name]bool{}
	put := func(kind, value, target string) {
		if value != "" {
			set[Name{kind, value, target}] = true
		}
	}
	for _, r := range rows {
		put("project", r.Project, r.Project)
		put("job", r.Name, r.Name)
		put("ref", r.Ref, r.Ref)
		put("machine", r.Machine, r.Machine)
		for _, v := range []string{r.Runner, r.RunnerToken, r.RunnerName} {
			put("runner", v, r.Runner)
		}
		for _, s := range r.Stages {
			set[Name{"stage", s.Name, r.StageSet}] = true
		}
	}
	out := make([]Name, 0, len(set))
	for n := range set {
		out = append(out, n)
	}
	slices.SortFunc(out, func(x, y Name) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Value, y.Value), cmp.Compare(x.Target, y.Target))
	})
	return out
}
