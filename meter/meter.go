package meter

import (
	"net/http"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/output/expvar"
	"github.com/cimeter/cimeter/internal/output/prometheus"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

// Options of a meter. The zero value is usable.
type Options struct {
	CI      string // kind of CI system, as in the label ci: drone
	Server  string // name of the server, as in the label server
	Machine string // name of the machine, as in the label machine, where builds run on this one
	// Budget is how many series there may be at most; 0 is 20,000. What finds no
	// room is counted under #other#.
	Budget int
	// Outputs are where Run sends everything to; /metrics and /debug/vars need none.
	Outputs []Output
}

// Meter holds the instruments of one CI server or runner. Make it with New; a nil
// one is valid and counts nothing.
type Meter struct {
	o       Options
	start   time.Time
	table   *tally.Table
	custom  *registry
	workers *Workers
	queue   *Queue
}

// New returns a meter.
func New(o Options) *Meter {
	m := &Meter{o: o, start: time.Now(), table: tally.New(tally.Options{Budget: o.Budget})}
	m.custom = newRegistry(m.start)
	m.queue = newQueue(m.table, o.Server)
	m.workers = newWorkers(m.table, o.Server)
	return m
}

// Handler answers GET with everything in the form that Prometheus asks for: text,
// OpenMetrics or protobuf. A nil meter answers with nothing.
func (m *Meter) Handler() http.Handler {
	if m == nil {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		})
	}
	return prometheus.New(m.table, m.custom.families)
}

// Vars answers GET with everything as JSON, in the form of the standard library's
// expvar, with the queue and what its workers work on. A nil meter answers with
// an empty object.
func (m *Meter) Vars() http.Handler {
	if m == nil {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = w.Write([]byte("{}\n")) // an error is the connection's
		})
	}
	walk := m.walker()
	return expvar.New(expvar.Options{Program: m.o.CI, Queue: m.drawn, Families: walk})
}

// walker returns what makes families of everything. It is for one goroutine.
func (m *Meter) walker() func() []series.Family {
	w := series.NewWalker(m.table, m.start)
	return func() []series.Family { return append(w.Families(), m.custom.families()...) }
}

// drawn is the queue as founders of CI servers drew it.
func (m *Meter) drawn() expvar.Queue {
	q := expvar.Queue{}
	if v, ok := m.queue.length.Get(); ok {
		q.Length = cimeter.Some(int(v))
	}
	m.workers.drawn(&q)
	return q
}

// Labels say which builds are counted together. They must be few: never a build's
// id, branch or commit.
type Labels struct {
	Project string // path of the project: group/app
	Runner  string // which runner runs them
}

// Builds returns what counts the builds of those labels. It allocates when the
// labels are new: keep the result.
func (m *Meter) Builds(of Labels) *Builds {
	if m == nil {
		return nil
	}
	return &Builds{m.table.Build(tally.BuildLabels{CI: m.o.CI, Project: of.Project, Machine: m.o.Machine, Runner: of.Runner})}
}

// Queue returns the queue's instrument.
func (m *Meter) Queue() *Queue {
	if m == nil {
		return nil
	}
	return m.queue
}

// Workers returns the workers' instrument.
func (m *Meter) Workers() *Workers {
	if m == nil {
		return nil
	}
	return m.workers
}

// Result is how a build ended.
type Result string

// The results. Anything else is counted as unknown.
const (
	Success  Result = "success"
	Failed   Result = "failed"
	Canceled Result = "canceled"
)

// Builds counts how builds go: cimeter_builds_running, cimeter_builds_total,
// cimeter_build_duration_seconds and cimeter_build_queue_seconds.
type Builds struct{ cell *tally.Build }

// Queued counts how long a build waited for a worker, once it has one.
func (b *Builds) Queued(waited time.Duration) {
	if b != nil {
		b.cell.Queued(waited.Seconds())
	}
}

// Started counts a build that runs now.
func (b *Builds) Started() {
	if b != nil {
		b.cell.Started()
	}
}

// Finished counts the end of a build that Started counted.
func (b *Builds) Finished(r Result, took time.Duration) {
	if b != nil {
		b.cell.Ended(string(r), took.Seconds(), cimeter.Opt[float64]{})
	}
}

// FinishedBuild is Finished of a build that has an id, which becomes the exemplar of
// its duration where the format has them: at most 123 characters.
func (b *Builds) FinishedBuild(id string, r Result, took time.Duration) {
	if b != nil {
		b.cell.EndedOf(tally.Exemplar{Build: id, At: time.Now()}, string(r), took.Seconds(), cimeter.Opt[float64]{})
	}
}

// Abandoned takes a build that Started counted out of those that run, without an end.
func (b *Builds) Abandoned() {
	if b != nil {
		b.cell.Abandoned()
	}
}
