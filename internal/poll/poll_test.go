package poll_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/poll"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/tally"
)

const name = "gitlab.example.com"

func job(n int, status cimeter.JobStatus) cimeter.Job {
	return cimeter.Job{Build: cimeter.Build{Key: cimeter.BuildKey("gitlab", name, fmt.Sprint(n)), CI: "gitlab", Server: name, Project: "group/app"}, Status: status}
}

func whole(jobs ...cimeter.Job) queue.Report { return queue.Report{Jobs: jobs, WholeJobs: true} }

// script answers each poll by the next of its steps; the last one again and again.
type script struct {
	mu    sync.Mutex
	steps []func(context.Context) (queue.Report, error)
	asked []time.Time
	begun int
}

func (s *script) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
}

func (s *script) Poll(ctx context.Context) (queue.Report, error) {
	s.mu.Lock()
	s.asked = append(s.asked, time.Now())
	step := s.steps[min(len(s.asked), len(s.steps))-1]
	s.mu.Unlock()
	return step(ctx)
}

func (s *script) times() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func good(r queue.Report) func(context.Context) (queue.Report, error) {
	return func(context.Context) (queue.Report, error) { return r, nil }
}

func bad(err error) func(context.Context) (queue.Report, error) {
	return func(context.Context) (queue.Report, error) {
		return queue.Report{WholeJobs: true, WholeWorkers: true}, err // what came before it broke off
	}
}

func answered(status int, after time.Duration) error {
	return fmt.Errorf("poll: %w", &queue.SourceError{Status: status, RetryAfter: after, Err: errors.New("GET /api/v4/jobs")})
}

func start(t *testing.T, o poll.Options) (*poll.Poller, *tally.Table) {
	t.Helper()
	o.Tally = tally.New(tally.Options{})
	p := poll.New(o, slog.New(slog.NewTextHandler(io.Discard, nil)))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p, o.Tally
}

// values are the series of a metric, by labels.
func values(t *tally.Table, metric string) map[string]float64 {
	all := map[string]float64{}
	for _, v := range t.Values(metric) {
		if x, ok := v.Get(); ok {
			all[strings.Join(v.Labels(), " ")] = x
		}
	}
	return all
}

// A server that answers anything but an answer leaves the last good state, marked as
// stale with its age; no count is wrong.
func TestPoller_badServer(t *testing.T) {
	for reason, broken := range map[string]func(context.Context) (queue.Report, error){
		"unauthorized": bad(answered(401, 0)),
		"limited":      bad(answered(429, 90*time.Second)),
		"unavailable":  bad(answered(500, 0)),
		"garbage":      bad(&queue.SourceError{Status: 200, Err: fmt.Errorf("decode: unexpected EOF: %w", cimeter.ErrInvalid)}),
		"refused":      bad(answered(302, 0)),
		"timeout": func(ctx context.Context) (queue.Report, error) {
			<-ctx.Done()
			return queue.Report{}, &queue.SourceError{Err: ctx.Err()}
		},
		"error": bad(errors.New("x")),
	} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{steps: []func(context.Context) (queue.Report, error){
					good(whole(job(1, cimeter.JobWaiting), job(2, cimeter.JobRunning))), broken, broken, broken, good(whole(job(2, cimeter.JobRunning))),
				}}
				p, counts := start(t, poll.Options{Servers: []poll.Server{{Name: name, CI: "gitlab", Source: s}}})
				for values(counts, catalog.ServerSourceFailures)[name+" "+reason] < 3 {
					time.Sleep(time.Second)
				}
				synctest.Wait()
				st := p.State()
				v := st.Servers[0]
				if !v.Stale || v.Reason != reason || v.Waiting.Value != 1 || v.Running.Value != 1 || len(st.Builds) != 2 {
					t.Errorf("%+v", v)
				}
				if age := st.At.Sub(s.times()[0]).Seconds(); v.AgeSeconds != cimeter.Some(age) {
					t.Errorf("age %v: want %v", v.AgeSeconds, age)
				}
				for len(s.times()) < 5 {
					time.Sleep(time.Second)
				}
				synctest.Wait()
				v = p.State().Servers[0]
				if v.Stale || v.Failure != "" || v.Waiting.Value != 0 || v.Running.Value != 1 {
					t.Errorf("well again: %+v", v)
				}
				if got := values(counts, catalog.ServerSourceFailures); got[name+" "+reason] != 3 || len(got) != 1 {
					t.Errorf("failures %v", got)
				}
				if got := values(counts, catalog.ServerSourceRequests)[name]; got != 5 {
					t.Errorf("%g requests: want 5", got)
				}
				asked := s.times()
				if reason == "limited" {
					for i := 1; i < 4; i++ {
						if d := asked[i+1].Sub(asked[i]); d < 90*time.Second {
							t.Errorf("asked after %v: want the 90 s that it asked for", d)
						}
					}
				} else if d := asked[4].Sub(asked[3]); d < asked[2].Sub(asked[1])*3/2 || d > 80*time.Second {
					t.Errorf("asked %v after the third failure: want longer than after the first", d)
				}
			})
		})
	}
}

func TestPoller_panic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []func(context.Context) (queue.Report, error){func(context.Context) (queue.Report, error) { panic("index out of range") }}}
		p, _ := start(t, poll.Options{Servers: []poll.Server{{Name: name, CI: "gitlab", Source: s}}})
		time.Sleep(20 * time.Second)
		if v := p.State().Servers[0]; v.Reason != "garbage" || !v.Stale {
			t.Errorf("%+v", v)
		}
	})
}

// A build that waits is seen within 15 s, whatever the jitter.
func TestPoller_schedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []func(context.Context) (queue.Report, error){func(context.Context) (queue.Report, error) {
			time.Sleep(3 * time.Second) // it answers slowly
			return whole(), nil
		}}}
		start(t, poll.Options{Servers: []poll.Server{{Name: name, CI: "gitlab", Source: s}}})
		time.Sleep(10 * time.Minute)
		asked := s.times()
		gaps := map[time.Duration]bool{}
		for i := 1; i < len(asked); i++ {
			d := asked[i].Sub(asked[i-1])
			gaps[d] = true
			if d+3*time.Second > 15*time.Second || d < 8*time.Second {
				t.Errorf("%v between two polls", d)
			}
		}
		if len(gaps) < 10 {
			t.Errorf("%d different gaps: want jitter", len(gaps))
		}
	})
}

// However many requests a poll takes, a minute has no more than are allowed, on the
// average; and what a server asks for with a good answer is kept.
func TestPoller_requestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many := whole()
		many.Requests = 45
		s := &script{steps: []func(context.Context) (queue.Report, error){good(many)}}
		waits := whole()
		waits.Wait = 40 * time.Second
		polite := &script{steps: []func(context.Context) (queue.Report, error){good(waits)}}
		_, counts := start(t, poll.Options{Servers: []poll.Server{
			{Name: name, CI: "gitlab", Source: s}, {Name: "buildkite.com", CI: "buildkite", Source: polite, Interval: 5 * time.Second},
		}})
		time.Sleep(30 * time.Minute)
		got := values(counts, catalog.ServerSourceRequests)
		if n := got[name]; n > 60*31+45 || n < 60*28 {
			t.Errorf("%g requests in half an hour: want 60 a minute", n)
		}
		if n := got["buildkite.com"]; n < 30*60/45 || n > 30*60/35 {
			t.Errorf("%g requests: want one in 40 s", n)
		}
	})
}

// lock is one lock, of which one holds.
type lock struct{ held chan struct{} }

func (l lock) Lead(ctx context.Context, _ string) (<-chan struct{}, func(), error) {
	select {
	case l.held <- struct{}{}:
		return nil, func() { <-l.held }, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// Of two servers on one store one asks and counts; the other takes over.
func TestPoller_oneLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lock{make(chan struct{}, 1)}
		sources := [2]*script{}
		var pollers [2]*poll.Poller
		var counts [2]*tally.Table
		var stops [2]context.CancelFunc
		var done sync.WaitGroup
		for i := range 2 {
			sources[i] = &script{steps: []func(context.Context) (queue.Report, error){good(whole(job(1, cimeter.JobWaiting)))}}
			counts[i] = tally.New(tally.Options{})
			pollers[i] = poll.New(poll.Options{Servers: []poll.Server{{Name: name, CI: "gitlab", Source: sources[i]}}, Leader: l, Tally: counts[i]}, slog.New(slog.NewTextHandler(io.Discard, nil)))
			var ctx context.Context
			ctx, stops[i] = context.WithCancel(t.Context())
			done.Go(func() { _ = pollers[i].Run(ctx) })
			time.Sleep(time.Minute)
		}
		ended := job(2, cimeter.JobSuccess)
		ended.StartedAt, ended.EndedAt, ended.QueueSeconds = time.Now().Add(-time.Minute), time.Now(), cimeter.Some(5.0)
		for _, p := range pollers { // both hear of it
			p.Take(name, queue.Report{At: time.Now(), Jobs: []cimeter.Job{ended}})
		}
		time.Sleep(10 * time.Second)
		if len(sources[1].times()) != 0 || !pollers[1].State().Servers[0].Elsewhere || pollers[0].State().Servers[0].Elsewhere {
			t.Error("both ask")
		}
		if a, b := values(counts[0], catalog.QueueBuilds)[name+" waiting"], values(counts[1], catalog.QueueBuilds); a != 1 || len(b) != 0 {
			t.Errorf("waiting: %g and %v: want the leader's alone", a, b)
		}
		if a, b := len(counts[0].Distributions(catalog.JobQueue)), len(counts[1].Distributions(catalog.JobQueue)); a != 1 || b != 0 {
			t.Errorf("%d and %d series of ends: want the leader's alone", a, b)
		}
		stops[0]()
		time.Sleep(30 * time.Second)
		if len(sources[1].times()) == 0 || pollers[1].State().Servers[0].Waiting.Value != 1 {
			t.Error("nobody took over")
		}
		stops[1]()
		done.Wait()
	})
}

// turns leads for a minute at a time, with pauses between.
type turns struct{ pauses []time.Duration }

func (l *turns) Lead(ctx context.Context, _ string) (<-chan struct{}, func(), error) {
	pause := time.Hour
	if len(l.pauses) > 0 {
		pause, l.pauses = l.pauses[0], l.pauses[1:]
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	held := make(chan struct{})
	time.AfterFunc(time.Minute, func() { close(held) })
	return held, func() {}, nil
}

// A source is told that its polls begin anew when others can have polled meanwhile, and
// not when the store was away for a moment.
func TestPoller_begins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []func(context.Context) (queue.Report, error){good(whole())}}
		start(t, poll.Options{Servers: []poll.Server{{Name: name, CI: "gitlab", Source: s}}, Leader: &turns{[]time.Duration{0, time.Minute, 6 * time.Minute}}})
		for _, want := range []int{0, 0, 1} {
			asked := len(s.times())
			time.Sleep(4 * time.Minute)
			if want == 1 {
				time.Sleep(6 * time.Minute)
			}
			s.mu.Lock()
			if s.begun != want || len(s.asked) == asked && want == 1 {
				t.Errorf("told %d times that polls begin anew, want %d; asked %d times", s.begun, want, len(s.asked)-asked)
			}
			s.mu.Unlock()
		}
	})
}

// store fails a few times, and remembers.
type store struct {
	mu    sync.Mutex
	fails int
	calls int
	jobs  map[string]cimeter.Job
}

func (s *store) PutJobs(_ context.Context, jobs []cimeter.Job) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls++; s.fails > 0 {
		s.fails--
		return fmt.Errorf("put: %w", cimeter.ErrUnavailable)
	}
	for _, j := range jobs {
		s.jobs[j.Key] = j
	}
	return nil
}

// What changes is stored, as it is last, also when the store is away for a while; what
// does not change is not stored again.
func TestPoller_stores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &store{fails: 3, jobs: map[string]cimeter.Job{}}
		s := &script{steps: []func(context.Context) (queue.Report, error){good(whole(job(1, cimeter.JobWaiting), job(2, cimeter.JobWaiting)))}}
		p, _ := start(t, poll.Options{Servers: []poll.Server{{Name: name, CI: "gitlab", Source: s}}, Store: kept})
		time.Sleep(1500 * time.Millisecond)
		p.Take(name, queue.Report{At: time.Now(), Jobs: []cimeter.Job{job(2, cimeter.JobSuccess)}})
		time.Sleep(time.Minute)
		want := map[string]cimeter.JobStatus{job(1, "").Key: cimeter.JobWaiting, job(2, "").Key: cimeter.JobSuccess}
		got := map[string]cimeter.JobStatus{}
		kept.mu.Lock()
		for key, j := range kept.jobs {
			got[key] = j.Status
		}
		calls := kept.calls
		kept.mu.Unlock()
		if !maps.Equal(got, want) {
			t.Errorf("%v: want %v", got, want)
		}
		time.Sleep(time.Hour)
		kept.mu.Lock()
		defer kept.mu.Unlock()
		if kept.calls != calls {
			t.Errorf("stored %d times though nothing changed", kept.calls-calls)
		}
	})
}

type canceller struct {
	keys []string
	err  error
}

func (c *canceller) Cancel(_ context.Context, key string) error {
	c.keys = append(c.keys, key)
	return c.err
}

// A build's own server is asked to cancel it, once.
func TestPoller_Cancel(t *testing.T) {
	c := &canceller{}
	p := poll.New(poll.Options{Tally: tally.New(tally.Options{}), Servers: []poll.Server{
		{Name: "other.example.com", CI: "gitlab", Cancel: &canceller{}}, {Name: name, CI: "gitlab", Cancel: c}, {Name: "drone.example.com", CI: "drone"},
	}}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	key := job(1, "").Key
	if err := p.Cancel(t.Context(), key, "me"); !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("a build that nobody has: %v", err)
	}
	p.Take(name, queue.Report{At: time.Now(), Jobs: []cimeter.Job{job(1, cimeter.JobRunning)}})
	p.Take("drone.example.com", queue.Report{At: time.Now(), Jobs: []cimeter.Job{{Build: cimeter.Build{Key: "drone/x/1"}, Status: cimeter.JobRunning}}})
	if err := p.Cancel(t.Context(), key, "me"); err != nil || !slices.Equal(c.keys, []string{key}) {
		t.Errorf("%v, %q", err, c.keys)
	}
	c.err = answered(500, 0)
	if err := p.Cancel(t.Context(), key, "me"); !errors.Is(err, cimeter.ErrUnavailable) || len(c.keys) != 2 {
		t.Errorf("%v after %d tries: want one try", err, len(c.keys)-1)
	}
	if err := p.Cancel(t.Context(), "drone/x/1", "me"); !errors.Is(err, cimeter.ErrUnsupported) {
		t.Errorf("without a token that may: %v", err)
	}
	// Where another server asks, the key tells whose it is.
	c, near := &canceller{}, &canceller{}
	p = poll.New(poll.Options{Tally: tally.New(tally.Options{}), Leader: lock{make(chan struct{}, 1)}, Servers: []poll.Server{
		{Name: strings.TrimSuffix(name, "m"), CI: "gitlab", Cancel: near}, {Name: name, CI: "gitlab", Cancel: c},
	}}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err := p.Cancel(t.Context(), key, "me"); err != nil || !slices.Equal(c.keys, []string{key}) || len(near.keys) != 0 {
		t.Errorf("%v, asked %q and %q", err, c.keys, near.keys)
	}
}

// The metrics are those of the board; a build that ended is counted once, by project
// and result.
func TestPoller_metrics(t *testing.T) {
	counts := tally.New(tally.Options{})
	p := poll.New(poll.Options{Tally: counts, Servers: []poll.Server{{Name: name, CI: "gitlab"}}}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	ended := job(3, cimeter.JobFailed)
	now := time.Now()
	ended.QueuedAt, ended.StartedAt, ended.EndedAt = now, now.Add(40*time.Second), now.Add(100*time.Second)
	unstarted := job(4, cimeter.JobCanceled)
	unstarted.EndedAt = time.Now().Add(time.Minute)
	r := whole(job(1, cimeter.JobWaiting), job(2, cimeter.JobBlocked), ended, unstarted, cimeter.Job{Status: cimeter.JobRunning})
	r.At, r.WholeWorkers = time.Now(), true
	r.Workers = []cimeter.Worker{{ID: "w1", Name: "docker-1", Runner: cimeter.Runner{ID: "s_1"}, State: cimeter.WorkerIdle}, {ID: "w2", State: cimeter.WorkerOffline}}
	p.Take(name, r)
	for range 3 {
		p.Look()
	}
	if got := values(counts, catalog.QueueBuilds); !maps.Equal(got, map[string]float64{name + " waiting": 1, name + " blocked": 1, name + " running": 0}) {
		t.Errorf("%v", got)
	}
	if got := values(counts, catalog.Workers); !maps.Equal(got, map[string]float64{name + " idle": 1, name + " offline": 1, name + " busy": 0, name + " draining": 0}) {
		t.Errorf("%v", got)
	}
	if got := values(counts, catalog.ServerSourceDropped)["unusable"]; got != 1 {
		t.Errorf("%g builds dropped: want the one without a key, once", got)
	}
	infos, _ := counts.Infos(catalog.WorkerInfo)
	if len(infos) != 2 {
		t.Errorf("%d infos", len(infos))
	}
	for metric, want := range map[string]float64{catalog.JobQueue: 40, catalog.JobDuration: 60} {
		all := counts.Distributions(metric)
		if len(all) != 1 || !slices.Equal(all[0].Labels(), []string{name, "group/app", "failed"}) || all[0].Histogram().Sum() != want {
			t.Errorf("%s: %d series", metric, len(all))
		}
	}
	p.Take(name, queue.Report{At: time.Now(), WholeWorkers: true})
	p.Look()
}
