package attrib

import (
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/counter"
	"github.com/cimeter/cimeter/internal/tally"
)

// Segment is the life of one cgroup. Make it with Ledger.Open.
type Segment struct {
	data  SegmentState
	build *build // nil until bound
	part  *part
	// resumed is set until the first sample after a restart: what rose before it
	// counts in the totals, but neither as a rate nor in the counters, where the
	// earlier process may have shown it already.
	resumed bool
	gaps    []cimeter.Gap // noted before it was bound
	before  counter.Delta // not from birth: what its first sample showed
	pod     *Segment      // of the pod that its container is in, where that is counted
}

// SegmentState is what a checkpoint keeps of a segment that runs.
type SegmentState struct {
	Container string // container id
	Path      string // of its cgroup
	Inode     uint64 // of its cgroup's folder
	Baseline  counter.Baseline
	Limits    cimeter.Limits
	Started   time.Time
	Ended     time.Time // zero while it runs
	Part      int       // index into the build's parts
	Pod       bool      `json:",omitzero"` // it is a pod's own
	Owed      owed      `json:",omitzero"` // of a pod's
}

// Container returns the id of the segment's container.
func (s *Segment) Container() string { return s.data.Container }

// Last returns what counter c showed when it was read last, 0 before.
func (s *Segment) Last(c cimeter.Counter) uint64 { return s.data.Baseline.Last[c] }

// Bound reports whether the segment belongs to a build.
func (s *Segment) Bound() bool { return s.build != nil }

// BuildKey returns the key of the segment's build, "" when it has none.
func (s *Segment) BuildKey() string {
	if s.build == nil {
		return ""
	}
	return s.build.Build.Key
}

// Undecided reports whether the segment runs in a stage whose name is open.
func (s *Segment) Undecided() bool { return s.build != nil && !s.part.Decided }

// part is what one segment spends in one stage.
type part struct {
	PartState
	cell  *tally.Stage // nil until the name is decided
	key   string       // of the build, once the name is decided
	share *tally.Share
}

// PartState is what a checkpoint keeps of a part.
type PartState struct {
	Segment    int // number of the segment in its build
	Role       cimeter.Role
	Name       string
	Attempt    int
	Source     cimeter.Boundary
	Decided    bool // Name, Attempt and Source are fixed
	Split      bool // began at a boundary inside its segment
	Staged     bool // a stager was told of its start
	EndTold    bool // and of its end
	Alongside  bool
	Started    time.Time
	Ended      time.Time // zero while it runs
	Ticked     time.Time
	Exit       cimeter.Opt[int]
	Limits     cimeter.Limits
	Account    Account
	Untallied  counter.Delta     // rise that waits for the name
	NotMetered map[string]string `json:",omitempty"` // see cimeter.Usage; never changed in place
	// PeakBase is the kernel's peak when the part began: only what exceeds it
	// is known to fall into the part.
	PeakBase uint64
	// PeakOwn says that the kernel keeps a peak for the part alone, through a
	// descriptor of this process (cgroup.Group.ResetPeak).
	PeakOwn bool `json:",omitempty"`
}

// book adds a rise to the part and, once its name is decided, to the counters.
func (p *part) book(d *counter.Delta, s *cimeter.Sample, tally bool) {
	p.Account.Add(d)
	if s != nil {
		p.Account.SetLevels(s)
		if v, ok := s.Gauge(cimeter.MemoryPeak); ok && v > p.PeakBase {
			p.Account.RaisePeak(v)
		}
	}
	if !tally {
		return
	}
	if p.cell == nil {
		p.Untallied.Add(d)
		return
	}
	addAll(p.cell, d)
	if s != nil && p.share != nil {
		p.share.Set(s)
	}
}

func addAll(cell *tally.Stage, d *counter.Delta) {
	for c := range cimeter.NumCounters {
		if v, ok := d.Get(c); ok {
			cell.Add(c, v)
		}
	}
}

// tick ends the part's interval at t.
func (p *part) tick(t time.Time, paused bool) {
	p.Account.Tick(t.Sub(p.Ticked), paused)
	p.Ticked = t
}

// end closes the part at t.
func (p *part) end(t time.Time) {
	if !p.Ended.IsZero() {
		return
	}
	p.tick(t, false)
	p.Ended = t
	if p.share != nil {
		p.share.Release()
		p.share = nil
	}
	if p.cell != nil {
		p.observe()
	}
}

// observe puts an ended and named part into the histograms.
func (p *part) observe() {
	u := p.Account.Usage(p.Ended.Sub(p.Started))
	var peak cimeter.Opt[uint64]
	if u.MemoryBytes != nil {
		peak = u.MemoryBytes.Peak
	}
	var cores cimeter.Opt[float64]
	if u.CPUCores != nil {
		cores = cimeter.Some(u.CPUCores.Avg)
	}
	p.cell.EndedOf(tally.Exemplar{Build: p.key, At: p.Ended}, u.WallSeconds, peak, cores)
}

// decide fixes the part's name and hands what waited for it to the counters.
func (p *part) decide(n StageName, cell *tally.Stage) {
	p.Name, p.Attempt, p.Source, p.Decided = n.Name, n.Attempt, n.Source, true
	p.cell = cell
	addAll(cell, &p.Untallied)
	p.Untallied = counter.Delta{}
	if p.Ended.IsZero() {
		p.share = cell.Share()
	} else {
		p.observe()
	}
}
