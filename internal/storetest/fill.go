package storetest

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/store"
)

// fillRows is how many builds Fill hands over at once.
const fillRows = 2500

// Fill makes builds with 10 stages and a trace, three months of them, the
// oldest first as they come, until there are n; write keeps some of them, by
// a way into the store that a server does not have. have is how many are there.
func Fill(t testing.TB, have, n int, write func(rows []*store.Row) error) {
	t.Helper()
	start := time.Now()
	type part struct {
		rows []*store.Row
		err  error
	}
	var parts []chan part
	var firsts []int
	for first := have; first < n; first += fillRows {
		parts = append(parts, make(chan part, 1))
		firsts = append(firsts, first)
	}
	next := make(chan int)
	ahead := make(chan struct{}, 6) // parts made and not written yet
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := range next {
				rows, err := fillPart(firsts[i], min(firsts[i]+fillRows, n), n)
				parts[i] <- part{rows, err}
			}
		})
	}
	wg.Go(func() {
		defer close(next)
		for i := range parts {
			select {
			case ahead <- struct{}{}:
			case <-stop:
				return
			}
			next <- i
		}
	})
	defer wg.Wait()
	defer close(stop)
	for i := range parts {
		p := <-parts[i]
		if p.err == nil {
			p.err = write(p.rows)
		}
		if p.err != nil {
			t.Fatal(p.err)
		}
		<-ahead
	}
	t.Logf("filled from %d to %d builds in %s", have, n, time.Since(start).Round(time.Second))
}

// fillPart is builds first to last of n, the same in every run.
func fillPart(first, last, n int) ([]*store.Row, error) {
	const span = 90 * 24 * time.Hour
	m := &Maker{Random: rand.New(rand.NewPCG(uint64(first), 1)), Span: time.Hour, Stages: 10, Steps: 16}
	rows := make([]*store.Row, 0, last-first)
	for i := first; i < last; i++ {
		p := m.Put(i)
		shift := span - time.Duration(float64(span)*float64(i)/float64(n))
		r := p.Record
		r.EndedAt, r.StartedAt = r.EndedAt.Add(-shift), r.StartedAt.Add(-shift)
		if !r.QueuedAt.IsZero() {
			r.QueuedAt = r.QueuedAt.Add(-shift)
		}
		for j := range r.Stages {
			r.Stages[j].StartedAt, r.Stages[j].EndedAt = r.Stages[j].StartedAt.Add(-shift), r.Stages[j].EndedAt.Add(-shift)
		}
		p.ReceivedAt = r.EndedAt.Add(time.Second)
		row, err := store.NewRow(p)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}
