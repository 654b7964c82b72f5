package wrap

import (
	"sync"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/counter"
)

// Group reads what the kernel counts for one cgroup. Read sets the readings
// that there are and leaves the others of s alone or absent; full asks for the
// dear ones too.
type Group interface {
	Read(s *cimeter.Sample, full bool) error
	Close()
}

// source is what the command is metered by: its cgroups, or its processes.
// sample is called from one goroutine at a time.
type source interface {
	// sample sets what is known of the running command, cumulative since its start.
	sample(s *cimeter.Sample, full bool)
	// last sets the final readings of a command that ended as e says in s, and
	// in late those that only its end tells: totals without a course over time.
	last(s, late *cimeter.Sample, e ending)
	// left returns how many processes the command left running.
	left() int
	close()
}

// The time between two samples: short at first, so that a command of a few
// seconds has a shape, then longer with the run, as its trace coarsens too.
const (
	firstInterval = 250 * time.Millisecond
	usualInterval = time.Second
	usualAfter    = 10 * time.Second
	longAfter     = time.Hour
	maxInterval   = 10 * time.Second
	// fullEvery is how many samples go without the dear readings.
	fullEvery = 10
)

// intervalAt returns the time to the next sample of a command that runs for d.
func intervalAt(d time.Duration) time.Duration {
	if d < usualAfter {
		return firstInterval
	}
	i := usualInterval
	for at := longAfter; d >= at && i < maxInterval; at *= 2 {
		i *= 2
	}
	return min(i, maxInterval)
}

// meter keeps the account of the command while it runs: it samples from watch
// to stop; what comes after that has the account alone.
type meter struct {
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool

	source  source
	started time.Time
	ticked  time.Time
	base    counter.Baseline
	account attrib.Account
	tracer  attrib.Tracer
	late    bool // block IO is known as a total only
}

// traceStep is the first length of a trace's steps; the tracer doubles it as
// the run goes on.
const traceStep = 0.25

func newMeter(s source, t time.Time) *meter {
	return &meter{
		source: s, started: t, ticked: t,
		base:   counter.Baseline{FromBirth: true},
		tracer: attrib.Tracer{StepSeconds: traceStep},
	}
}

// watch begins to sample. Before the first sample it calls begun: what is in no
// hurry and not worth doing beside a command that is over at once, for which no
// goroutine is started either.
func (m *meter) watch(begun func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	m.timer = time.AfterFunc(firstInterval, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.stopped {
			return
		}
		if n++; n == 1 {
			begun()
		}
		var s cimeter.Sample
		m.source.sample(&s, n%fullEvery == 0)
		now := time.Now()
		m.account.SetLevels(&s)
		m.book(&s, now)
		m.timer.Reset(intervalAt(now.Sub(m.started)))
	})
}

// stop ends the sampling, after a sample that is being taken.
func (m *meter) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	m.timer.Stop()
}

// finish takes the last readings, at t. Levels are not taken: they are those of
// a command that is gone.
func (m *meter) finish(e ending, t time.Time) {
	var s, late cimeter.Sample
	m.source.last(&s, &late, e)
	m.book(&s, t)
	var d counter.Delta
	(&counter.Baseline{FromBirth: true}).Advance(&late, &d)
	m.account.Total.Add(&d)
	m.late = d.Has != 0
}

// usage renders the account of a command that took wall time.
func (m *meter) usage(wall time.Duration) cimeter.Usage {
	u := m.account.Usage(wall)
	if m.late { // no rate was ever seen, so no maximum is known
		u.IOBytesPerSecond = nil
	}
	return u
}

func (m *meter) book(s *cimeter.Sample, t time.Time) {
	var d counter.Delta
	m.base.Advance(s, &d)
	m.account.Add(&d)
	if p, ok := s.Gauge(cimeter.MemoryPeak); ok {
		m.account.RaisePeak(p)
	}
	took, want := t.Sub(m.ticked), intervalAt(m.ticked.Sub(m.started))
	paused := took > 5*want+time.Second
	if !paused {
		m.tracer.Add(m.ticked.Sub(m.started), t.Sub(m.started), &m.account.Open, m.account.Now[0], m.account.Now[1])
	}
	m.account.Tick(took, paused)
	m.ticked = t
}

// groups meters a command by its cgroups: one for each place where its folders
// stand, which differs by hierarchy on some v1 hosts.
type groups struct {
	open   []Group
	read   []cimeter.Sample // of each of open, as of the latest reading, which leaves what did not change
	nest   *nest
	limits *cimeter.Limits
	io     bool // block IO is counted by them
}

func (g *groups) sample(s *cimeter.Sample, full bool) {
	if g.read == nil {
		g.read = make([]cimeter.Sample, len(g.open))
	}
	for i, o := range g.open {
		if o.Read(&g.read[i], full) == nil {
			merge(s, &g.read[i], g.io)
		}
	}
}

// last adds the block IO that wait4 tells where no controller counts all of it.
func (g *groups) last(s, late *cimeter.Sample, e ending) {
	g.sample(s, true)
	if !g.io && e.err == nil {
		e.spent.setIO(late)
	}
}

func (g *groups) close() {
	for _, o := range g.open {
		o.Close()
	}
}

func (g *groups) left() int { return g.nest.processes() }

// isIO reports whether c counts block IO.
func isIO(c cimeter.Counter) bool {
	switch c {
	case cimeter.IOReadBytes, cimeter.IOWriteBytes, cimeter.IOReadOperations, cimeter.IOWriteOperations:
		return true
	}
	return false
}

// merge sets in s what only o has, its block IO only with io.
func merge(s, o *cimeter.Sample, io bool) {
	for c := range cimeter.NumCounters {
		if v, ok := o.Counter(c); ok && (io || !isIO(c)) {
			if _, has := s.Counter(c); !has {
				s.SetCounter(c, v)
			}
		}
	}
	for g := range cimeter.NumGauges {
		if v, ok := o.Gauge(g); ok {
			if _, has := s.Gauge(g); !has {
				s.SetGauge(g, v)
			}
		}
	}
}
