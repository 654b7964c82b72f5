package agent

import (
	"context"
	"sync"
	"time"
)

const (
	// pullsEvery is the time between two looks at the runners' job lists for jobs that
	// wait for an image: as often as somebody is told.
	pullsEvery = 5 * time.Second
	// maxPulling is more jobs than the runners of a machine start at once.
	maxPulling = 2000
)

// Pulling is a job that waits for an image, as its runner says. Engines tell of a pull
// when it is over, and until then there is no container that would.
type Pulling struct {
	Key   string
	Since time.Time // when its runner was first heard to say so: seconds late
}

// pulling is the jobs that wait for an image, by runner. The zero value is usable.
type pulling struct {
	mu    sync.Mutex
	lists map[int]map[string]time.Time // by place of the runner, and key
}

// take takes what a runner says now.
func (p *pulling) take(runner int, jobs []Job, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.lists[runner]
	is := make(map[string]time.Time)
	for _, j := range jobs {
		if !j.Pulls || len(is) == maxPulling {
			continue
		}
		since, ok := before[j.Key]
		if !ok {
			since = now
		}
		is[j.Key] = since
	}
	if p.lists == nil {
		p.lists = make(map[int]map[string]time.Time)
	}
	p.lists[runner] = is
}

// Pulling returns the jobs that wait for an image now, as far as their runners have a
// list. It may be called at any time.
func (a *Agent) Pulling() (all []Pulling) {
	a.pulls.mu.Lock()
	defer a.pulls.mu.Unlock()
	for _, list := range a.pulls.lists {
		for key, since := range list {
			all = append(all, Pulling{Key: key, Since: since})
		}
	}
	return all
}

// lookForPulls looks at the runners' job lists until ctx ends. That one is not read is
// logged where stages are: here its jobs are not known to wait.
func (a *Agent) lookForPulls(ctx context.Context) {
	tick := time.NewTicker(pullsEvery)
	defer tick.Stop()
	for {
		for i, l := range a.opts.JobLists {
			one, cancel := context.WithTimeout(ctx, jobsTimeout)
			jobs, err := l.Jobs(one)
			cancel()
			if err != nil {
				jobs = nil
			}
			a.pulls.take(i, jobs, time.Now())
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
