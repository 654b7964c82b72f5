// Package export is the role that gives metrics and finished records to the
// outputs: StatsD, OTLP, remote write and the others.
//
// It owns, for each output, one goroutine for metrics and one for records; their
// schedule, jitter, deadlines and back-off; the counters of what was sent and
// dropped; and the last send at shutdown. An output makes one try a call and
// returns an error. No output holds up another one, or metering: each takes its
// own copy of the metrics when it is its turn, and records wait in a queue of
// fixed length that drops, and counts, what finds no room.
//
// Start with [New], then [Exporter.Run]; [Exporter.After] hands records over.
package export

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

// Output is a receiver of metrics.
type Output interface {
	// Send makes one try, within ctx. The families are read only; at is when they
	// were read. An error may have a method RetryAfter() time.Duration, which says
	// how long the receiver wants to be left alone. What is neither sent nor
	// dropped when Send fails counts as dropped.
	Send(ctx context.Context, at time.Time, families []series.Family) (series.Sent, error)
}

// Keeper is an Output that keeps what its receiver did not take, within a bound
// of its own. Keep is called at each interval, also while Send fails, hangs or is
// held off, so it may be called while Send runs; it does no input or output and
// says what it dropped. Send is then called with nil families, and sends what is
// kept.
type Keeper interface {
	Output
	Keep(at time.Time, families []series.Family) series.Sent
}

// Ender is an Output that tells its receiver when its series are no more. End is
// called once, after the last Send, with what is left of its time.
type Ender interface {
	Output
	End(ctx context.Context, at time.Time) (series.Sent, error)
}

// RecordOutput is a receiver of finished records.
type RecordOutput interface {
	// SendRecord makes one try, within ctx. An error that is cimeter.ErrInvalid
	// says that the receiver will never take the record; any other one is tried
	// again. It may have RetryAfter, as an error of Send.
	SendRecord(ctx context.Context, r *cimeter.Record) error
}

// Target is one output with its schedule.
type Target struct {
	Name     string        // as in labels and messages: statsd
	Metrics  Output        // nil: it takes none
	Records  RecordOutput  // nil: it takes none
	Interval time.Duration // between two sends of metrics; 0 is 10 s
	Timeout  time.Duration // of one try; 0 is 10 s. Never more than the interval for metrics
	AtEnd    bool          // send also soon after a build's end: the machine may not live until the next interval
	Close    func()        // after the last send; may be nil
}

const (
	defaultInterval = 10 * time.Second
	defaultTimeout  = 10 * time.Second
	// lastTime bounds the last send of all outputs together at shutdown.
	lastTime = 2 * time.Second
	// leaveTime is for an output that does not heed its deadline: Run then leaves
	// it behind, and the process ends.
	leaveTime = lastTime + 500*time.Millisecond
	// queueRecords bounds the records that wait for one output: at 25 KiB each,
	// 6 MiB.
	queueRecords = 256
)

// Options are what New needs.
type Options struct {
	Targets []Target
	// Sources give the metrics of all outputs. No two are called at once.
	Sources []func() []series.Family
	Tally   *tally.Table
}

// Exporter feeds outputs. Make it with New, run it once.
type Exporter struct {
	log     *slog.Logger
	loops   []*loop
	sources []func() []series.Family
	mu      sync.Mutex // one reader of the sources
}

// New returns an exporter that does nothing yet.
func New(o Options, log *slog.Logger) *Exporter {
	e := &Exporter{log: log, sources: o.Sources}
	for _, t := range o.Targets {
		if t.Interval == 0 {
			t.Interval = defaultInterval
		}
		if t.Timeout == 0 {
			t.Timeout = defaultTimeout
		}
		l := &loop{
			target: t, tally: o.Tally, log: log.With("output", t.Name), families: e.families,
			points:  o.Tally.Value(catalog.OutputPoints, t.Name),
			success: o.Tally.Value(catalog.OutputLastSuccess, t.Name),
			ended:   make(chan struct{}, 1),
		}
		l.keeper, _ = t.Metrics.(Keeper)
		if t.Records != nil {
			l.queue = make(chan *cimeter.Record, queueRecords)
			l.records = o.Tally.Value(catalog.OutputRecords, t.Name)
		}
		e.loops = append(e.loops, l)
	}
	return e
}

func (e *Exporter) families() []series.Family {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []series.Family
	for _, s := range e.sources {
		all = append(all, s()...)
	}
	return all
}

// Run feeds all outputs until ctx ends, then sends once more what there is then,
// for at most 2 s, and returns nil.
func (e *Exporter) Run(ctx context.Context) error {
	// The last sends share one deadline, which begins when ctx ends.
	last, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var wg sync.WaitGroup
	for _, l := range e.loops {
		var parts sync.WaitGroup
		if l.target.Metrics != nil {
			parts.Go(func() { l.run(ctx, last) })
		}
		if l.target.Records != nil {
			parts.Go(func() { l.runRecords(ctx, last) })
		}
		wg.Go(func() {
			parts.Wait()
			if l.target.Close != nil {
				l.target.Close()
			}
		})
	}
	<-ctx.Done()
	deadline := time.AfterFunc(lastTime, cancel)
	defer deadline.Stop()
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	leave := time.NewTimer(leaveTime)
	defer leave.Stop()
	select {
	case <-done:
	case <-leave.C:
		e.log.Error("an output does not end and is left behind")
	}
	return nil
}

// Records is what an agent keeps its records in; see agent.Records.
type Records interface {
	Put(r *cimeter.Record) error
	Checkpoint(key string, state []byte) error
	DropCheckpoint(key string) error
	Checkpoints(fn func(key string, state []byte) error) error
}

// After returns records that hand each record to the outputs once it is in next.
// It never waits for them.
func (e *Exporter) After(next Records) Records {
	for _, l := range e.loops {
		if l.queue != nil || l.target.AtEnd {
			return &tee{Records: next, e: e}
		}
	}
	return next
}

type tee struct {
	Records
	e *Exporter
}

// Put is durable in next when it returns nil.
func (t *tee) Put(r *cimeter.Record) error {
	if err := t.Records.Put(r); err != nil {
		return err
	}
	for _, l := range t.e.loops {
		l.enqueue(r)
		select {
		case l.ended <- struct{}{}:
		default:
		}
	}
	return nil
}
