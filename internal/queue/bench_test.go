package queue_test

import (
	"fmt"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
)

// BenchmarkBoard is one poll of a server with 5,000 builds and 1,000 workers, a look
// at the board, and what a page shows of it: when the builds ask for a few sets of
// tags, when each asks for its own, and when they run, as polls and webhooks told.
func BenchmarkBoard(b *testing.B) {
	for _, c := range []struct {
		name string
		make func(n int) cimeter.Job
	}{
		{"few tags", func(n int) cimeter.Job { return tagged(n, "docker", fmt.Sprint("size-", n%20)) }},
		{"own tags", func(n int) cimeter.Job {
			return tagged(n, "docker", fmt.Sprint("size-", n%20), fmt.Sprint("build-", n))
		}},
		{"running", func(n int) cimeter.Job {
			j := tagged(n, "docker")
			j.Status, j.StartedAt, j.Worker = cimeter.JobRunning, at(0), fmt.Sprint("w", n%7)
			return j
		}},
	} {
		r := queue.Report{WholeJobs: true, WholeWorkers: true}
		for n := range 5000 {
			j := c.make(n)
			j.Name, j.Ref, j.QueueSeconds = "test", "main", cimeter.Some(float64(n))
			r.Jobs = append(r.Jobs, j)
		}
		for n := range 1000 {
			r.Workers = append(r.Workers, worker(fmt.Sprint("w", n), "busy", 1, 1, "docker", fmt.Sprint("size-", n%20), "large", "linux", "amd64", "eu-west-1"))
		}
		board := newBoard()
		i := 0.0
		tell := func() {
			i += 10
			r.At = at(i)
			board.Add(server, true, r)
		}
		tell()
		hook := queue.Report{At: at(i + 1)}
		for _, j := range r.Jobs {
			j.SHA, j.URL = "0f0f", "https://gitlab.example.com/group/app/-/jobs/1"
			hook.Jobs = append(hook.Jobs, j)
		}
		board.Add(server, false, hook)
		for n := range 200 {
			j := tagged(10_000+n, "docker", fmt.Sprint("size-", n%2))
			j.Status, j.StartedAt, j.QueueSeconds = cimeter.JobRunning, at(float64(n)), cimeter.Some(float64(n))
			board.Add(server, false, queue.Report{At: at(i + 2), Jobs: []cimeter.Job{j}})
		}
		b.Run(c.name+"/poll", func(b *testing.B) {
			for b.Loop() {
				tell()
			}
		})
		b.Run(c.name+"/look", func(b *testing.B) {
			for b.Loop() {
				i += 5
				board.Look(at(i), nil)
			}
		})
		b.Run(c.name+"/state", func(b *testing.B) {
			for b.Loop() {
				i += 2
				board.State(at(i))
			}
		})
	}
}
