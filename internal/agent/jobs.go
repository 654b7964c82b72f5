package agent

import (
	"context"
	"time"

	"github.com/cimeter/cimeter/internal/attrib"
)

const (
	// jobsEvery is the time between two looks at the runners' job lists while a
	// stage is open: a helper's stage may last 30 ms, most last longer.
	jobsEvery = 100 * time.Millisecond
	// jobsTimeout bounds one look.
	jobsTimeout = 2 * time.Second
)

// askJobs has the job lists looked at soon.
func (m *meter) askJobs() {
	select {
	case m.jobs <- struct{}{}:
	default:
	}
}

// pollJobs looks at the runners' job lists, whenever the meter asks and as long
// as a stage is open.
func (a *Agent) pollJobs(ctx context.Context) {
	failing := make(map[int]bool)
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.jobs:
		}
		sent := make(chan map[*attrib.Segment]bool, 1)
		a.meter.post(func() { sent <- a.meter.undecided() })
		var before map[*attrib.Segment]bool
		select {
		case <-ctx.Done():
			return
		case before = <-sent:
		}
		if len(before) == 0 {
			continue
		}
		for i, l := range a.opts.JobLists {
			one, cancel := context.WithTimeout(ctx, jobsTimeout)
			jobs, err := l.Jobs(one)
			cancel()
			if ctx.Err() != nil {
				return
			}
			if failing[i] != (err != nil) {
				failing[i] = err != nil
				if err != nil {
					a.log.Warn("runner's job list not read, stages are told by other means", "err", err)
				} else {
					a.log.Info("runner's job list is read again")
				}
			}
			if len(jobs) > 0 {
				a.meter.post(func() { a.meter.listedJobs(before, jobs, time.Now()) })
			}
		}
		t := time.NewTimer(jobsEvery)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		a.meter.post(func() {
			if len(a.meter.undecided()) > 0 {
				a.meter.askJobs()
			}
		})
	}
}

// undecided returns the running segments whose stage is open.
func (m *meter) undecided() map[*attrib.Segment]bool {
	var open map[*attrib.Segment]bool
	for _, l := range m.lives {
		if !l.closed && l.exited.IsZero() && l.segment.Undecided() {
			if open == nil {
				open = make(map[*attrib.Segment]bool)
			}
			open[l.segment] = true
		}
	}
	m.eachShell(func(sh *shell) {
		if sh.segment.Undecided() {
			if open == nil {
				open = make(map[*attrib.Segment]bool)
			}
			open[sh.segment] = true
		}
	})
	return open
}

// listedJobs takes the runners' answer: it speaks of a segment only if that ran
// before the question and still runs after the answer.
func (m *meter) listedJobs(before map[*attrib.Segment]bool, jobs []Job, now time.Time) {
	stages := make(map[string]string, len(jobs))
	for _, j := range jobs {
		stages[j.Key] = j.Stage
	}
	for _, l := range m.lives {
		if !before[l.segment] || l.closed || !l.exited.IsZero() {
			continue
		}
		if stage := stages[l.segment.BuildKey()]; stage != "" {
			m.ledger.JobList(l.segment, now, stage)
		}
	}
	m.eachShell(func(sh *shell) {
		if stage := stages[sh.segment.BuildKey()]; stage != "" && before[sh.segment] {
			m.ledger.JobList(sh.segment, now, stage)
		}
	})
}
