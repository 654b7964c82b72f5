package poll_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/poll"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/tally"
)

// pastStore keeps points as the stores do; their own contract is tested with them.
type pastStore struct {
	mu     sync.Mutex
	fail   error
	points []queue.KeptPoint
}

func (p *pastStore) PutQueuePoints(_ context.Context, points []queue.KeptPoint, keep map[time.Duration]time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		return p.fail
	}
	p.points = slices.DeleteFunc(append(p.points, points...), func(x queue.KeptPoint) bool { return x.At <= keep[x.Step].Unix() })
	return nil
}

func (p *pastStore) QueuePoints(_ context.Context, step time.Duration, since time.Time) (found []queue.KeptPoint, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.points {
		if x.Step == step && x.At > since.Unix() {
			found = append(found, x)
		}
	}
	return found, p.fail
}

func (p *pastStore) set(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = err
}

// What a server saw of its queue is there after a restart, also when the store was away
// for a while, and it is kept no longer than a day, or in tens of minutes a week.
func TestPoller_historyIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &pastStore{}
		life := func(d time.Duration) queue.Server {
			t.Helper()
			ctx, stop := context.WithCancel(t.Context())
			p := poll.New(poll.Options{
				Servers: []poll.Server{{Name: name, CI: "gitlab", Source: &script{steps: []func(context.Context) (queue.Report, error){good(whole(job(1, cimeter.JobWaiting), job(2, cimeter.JobWaiting)))}}, Interval: 10 * time.Second}},
				Tally:   tally.New(tally.Options{}), History: kept,
			}, slog.New(slog.DiscardHandler))
			done := make(chan error)
			go func() { done <- p.Run(ctx) }()
			time.Sleep(d)
			synctest.Wait()
			s := p.State().Servers[0]
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			return s
		}
		kept.set(errors.New("away"))
		time.AfterFunc(30*time.Minute, func() { kept.set(nil) })
		first := life(65*time.Minute + time.Second)
		second := life(10 * time.Second)
		if n, m := len(first.History), len(second.History); n < 63 || m < n || second.History[10].At != first.History[10].At || first.History[10].Waiting != 2 || len(second.Week) != len(first.Week) || len(first.Week) < 5 {
			t.Errorf("%d and %d minutes, %d and %d tens: want them after the restart", n, m, len(first.Week), len(second.Week))
		}
		third := life(30 * time.Hour)
		if n := len(third.History); n < 1435 || n > 1440 {
			t.Errorf("%d minutes: want a day of them", n)
		}
		day := time.Now().Add(-queue.KeepFine - 2*time.Minute).Unix()
		fine, coarse := 0, 0
		for _, p := range kept.points {
			switch {
			case p.Step == queue.CoarseStep:
				coarse++
			case p.At < day:
				t.Fatalf("a minute of %v is kept", time.Unix(p.At, 0))
			default:
				fine++
			}
		}
		if fine > 1442 || coarse < 6*30 || coarse > 6*33 {
			t.Errorf("%d minutes and %d tens are kept", fine, coarse)
		}
	})
}
