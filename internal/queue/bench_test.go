package queue_test

import (
	"fmt"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
)

// BenchmarkBoard is one poll of a server with 5,000 builds that wait and 1,000
// workers, a look at the board, and what a page shows of it.
func BenchmarkBoard(b *testing.B) {
	r := queue.Report{WholeJobs: true, WholeWorkers: true}
	for n := range 5000 {
		j := tagged(n, "docker", fmt.Sprint("size-", n%20))
		j.Name, j.Ref, j.QueueSeconds = "test", "main", cimeter.Some(float64(n))
		r.Jobs = append(r.Jobs, j)
	}
	for n := range 1000 {
		r.Workers = append(r.Workers, worker(fmt.Sprint("w", n), "busy", 1, 1, "docker", fmt.Sprint("size-", n%20)))
	}
	board := newBoard()
	i := 0.0
	b.Run("poll", func(b *testing.B) {
		for b.Loop() {
			i += 10
			r.At = at(i)
			board.Add(server, true, r)
		}
	})
	b.Run("look", func(b *testing.B) {
		for b.Loop() {
			i += 5
			board.Look(at(i), nil)
		}
	})
	b.Run("state", func(b *testing.B) {
		for b.Loop() {
			board.State(at(i))
		}
	})
}
