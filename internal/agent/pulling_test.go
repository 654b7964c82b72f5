package agent

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
)

// runnerSays is a runner's job list of which a test decides.
type runnerSays struct {
	mu   sync.Mutex
	jobs []Job
	err  error
}

func (r *runnerSays) set(err error, jobs ...Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jobs, r.err = jobs, err
}

func (r *runnerSays) Jobs(context.Context) ([]Job, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.jobs, r.err
}

// A job waits for its image from when its runner says so until it does not any more, or
// does not answer.
func TestAgent_Pulling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := &runnerSays{}, &runnerSays{}
		a := &Agent{opts: Options{JobLists: []JobList{one, two}}}
		ctx, stop := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { a.lookForPulls(ctx) })
		begin := time.Now()
		for step, test := range []struct {
			change func()
			want   map[string]time.Duration
		}{
			{func() {}, nil},
			{func() { one.set(nil, Job{Key: "a", Pulls: true}, Job{Key: "b", Stage: "get_sources"}) }, map[string]time.Duration{"a": 5 * time.Second}},
			{func() { two.set(nil, Job{Key: "c", Pulls: true}) }, map[string]time.Duration{"a": 5 * time.Second, "c": 10 * time.Second}},
			{func() { one.set(nil, Job{Key: "a", Stage: "prepare_script"}, Job{Key: "b", Pulls: true}) }, map[string]time.Duration{"b": 15 * time.Second, "c": 10 * time.Second}},
			{func() { two.set(cimeter.ErrUnavailable) }, map[string]time.Duration{"b": 15 * time.Second}},
			{func() { one.set(nil) }, nil},
		} {
			test.change()
			if step > 0 {
				time.Sleep(pullsEvery)
			}
			synctest.Wait()
			got := a.Pulling()
			slices.SortFunc(got, func(x, y Pulling) int { return x.Since.Compare(y.Since) })
			if len(got) != len(test.want) {
				t.Fatalf("step %d: %v: want %v", step, got, test.want)
			}
			for _, p := range got {
				if since, ok := test.want[p.Key]; !ok || p.Since.Sub(begin) != since {
					t.Errorf("step %d: %v: want %v", step, got, test.want)
				}
			}
		}
		stop()
		done.Wait()
	})
}
