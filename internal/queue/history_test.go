package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
)

// looked returns a board that saw a number of builds wait at each look, one a minute.
func looked(b *queue.Board, from time.Time, waiting ...int) {
	for i, n := range waiting {
		now := from.Add(time.Duration(i) * time.Minute)
		r := queue.Report{At: now, WholeJobs: true}
		for j := range n {
			r.Jobs = append(r.Jobs, job(j, cimeter.JobWaiting))
		}
		b.Add("h", true, r)
		b.Look(now, nil)
	}
}

func histories(b *queue.Board, now time.Time) string {
	s := b.State(now).Servers[0]
	text := ""
	for _, list := range [][]queue.Point{s.History, s.Week} {
		for _, p := range list {
			text += fmt.Sprintf(" %d:%g", p.At/60%1440, p.Waiting)
		}
		text += " |"
	}
	return text
}

// Ten minutes that are whole make one point of the week, and what one board saw another
// goes on with.
func TestBoard_historyKept(t *testing.T) {
	start := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	of := queue.Options{Servers: []queue.Source{{Name: "h", CI: "gitlab", Interval: 10 * time.Second}}, Start: start}
	b := queue.NewBoard(of)
	looked(b, start, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 0)
	const want = " 721:1 722:2 723:3 724:4 725:5 726:6 727:7 728:8 729:9 730:10 731:20 732:30 | 730:5.5 |"
	end := start.Add(13 * time.Minute)
	if got := histories(b, end); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	fresh := b.Fresh()
	if len(fresh) != 13 || b.Fresh() != nil {
		t.Fatalf("%d fresh points: want each once", len(fresh))
	}
	fresh = append(fresh, queue.KeptPoint{Server: "gone", Step: queue.FineStep, Point: fresh[0].Point})
	again := queue.NewBoard(of)
	looked(again, start.Add(12*time.Minute), 0, 0) // before what was kept is there
	again.Restore(fresh)
	again.Restore(fresh) // twice is once
	if got, want := histories(again, end), want[:len(want)-len(" | 730:5.5 |")]+" 733:0 | 730:5.5 |"; got != want {
		t.Errorf("restored: got %s, want %s", got, want)
	}
	// The tens that the restart was in are whole in the end.
	looked(again, start.Add(14*time.Minute), 0, 0, 0, 0, 0, 0, 0, 0)
	if s := again.State(end).Servers[0]; len(s.Week) != 2 || s.Week[1].At != start.Add(20*time.Minute).Unix() || s.Week[1].Waiting != 5 {
		t.Errorf("the week: %+v", s.Week)
	}
}
