package queue_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
)

// truth is a CI server whose builds live and die, and whose clock is off.
type truth struct {
	r     *rand.Rand
	off   time.Duration
	known bool // webhooks tell when things were
	now   float64
	jobs  []cimeter.Job
	since []float64 // when each became what it is
	sent  []delayed
}

// delayed is a webhook on its way.
type delayed struct {
	at  float64
	job cimeter.Job
}

// step is a tenth of a second: some build changes, and a webhook is sent: late,
// twice, or never.
func (s *truth) step() {
	s.now += 0.1
	stamp := at(s.now).Add(s.off).Truncate(time.Second)
	if s.r.IntN(3) == 0 {
		s.jobs = append(s.jobs, job(len(s.jobs), cimeter.JobBlocked))
		s.jobs[len(s.jobs)-1].CreatedAt = stamp
		s.since = append(s.since, s.now)
		s.send(&s.jobs[len(s.jobs)-1])
	}
	for range 2 {
		if len(s.jobs) == 0 {
			return
		}
		n := s.r.IntN(len(s.jobs))
		j := &s.jobs[n]
		if s.now < s.since[n]+4 {
			continue // what is over within the error of a clock cannot be told from what is not
		}
		s.since[n] = s.now
		switch j.Status {
		case cimeter.JobBlocked:
			j.Status, j.QueuedAt = cimeter.JobWaiting, stamp
		case cimeter.JobWaiting:
			j.Status, j.StartedAt = cimeter.JobRunning, stamp
		case cimeter.JobRunning:
			j.Status, j.EndedAt = []cimeter.JobStatus{cimeter.JobSuccess, cimeter.JobFailed}[s.r.IntN(2)], stamp
		default:
			continue
		}
		s.send(j)
	}
}

func (s *truth) send(j *cimeter.Job) {
	told := *j
	if !s.known {
		told.CreatedAt, told.QueuedAt, told.StartedAt, told.EndedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	}
	for range []int{0, 1, 1, 1, 1, 1, 1, 1, 1, 2}[s.r.IntN(10)] {
		s.sent = append(s.sent, delayed{s.now + s.r.Float64()*40, told})
	}
}

// deliver hands the board what has arrived by then.
func (s *truth) deliver(b *queue.Board, by float64) {
	slices.SortFunc(s.sent, func(x, y delayed) int { return int(1e6 * (x.at - y.at)) })
	for len(s.sent) > 0 && s.sent[0].at <= by {
		b.Add(server, false, one(s.sent[0].at, s.sent[0].job))
		s.sent = s.sent[1:]
	}
}

func (s *truth) counts() string {
	n := map[cimeter.JobStatus]int{}
	for i := range s.jobs {
		n[s.jobs[i].Status]++
	}
	return fmt.Sprintf("%d waiting, %d blocked, %d running", n[cimeter.JobWaiting], n[cimeter.JobBlocked], n[cimeter.JobRunning])
}

func (s *truth) list() (jobs []cimeter.Job) {
	for _, j := range s.jobs {
		if !j.Status.Ended() {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// A server whose polls fail every third time and whose webhooks come late, out of
// order, twice or never: after each good poll the counts are the truth, and stay so
// whatever comes late.
func TestBoard_truth(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 9))
		s := &truth{r: r, off: []time.Duration{0, time.Hour, -time.Hour}[seed%3], known: seed%2 == 0}
		b := newBoard()
		first := true
		for range 25 {
			for range 1 + r.IntN(150) {
				s.step()
				s.deliver(b, s.now)
			}
			if !first && r.IntN(3) == 0 {
				b.Failed(server, at(s.now), &queue.SourceError{Status: 500, Err: errors.New("GET /jobs")})
				continue
			}
			first = false
			report := whole(s.now, s.list()...)
			report.Clock = cimeter.Some(s.off + time.Duration(r.IntN(1000))*time.Millisecond)
			b.Add(server, true, report)
			b.Look(at(s.now), nil)
			want := s.counts()
			if got := counts(b.State(at(s.now))); got != want {
				t.Fatalf("seed %d: %s: want %s", seed, got, want)
			}
			if !s.known || r.IntN(4) > 0 {
				continue // without times, what was never heard of and comes late looks new until the next poll
			}
			s.now += 45 // nothing changes, and all that is late comes
			s.deliver(b, s.now)
			st := b.State(at(s.now))
			if got := counts(st); got != want {
				t.Fatalf("seed %d: after what came late: %s: want %s", seed, got, want)
			}
			for _, v := range st.Builds {
				if v.Waited.Value < 0 || v.Waited.Value > s.now+5 || v.Ran.Value < 0 || v.Ran.Value > s.now+5 {
					t.Fatalf("seed %d: %+v", seed, v)
				}
			}
		}
	}
}
