package poll_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/poll"
	"github.com/cimeter/cimeter/internal/queue"
)

// stream tells one build each time it is followed, and then ends as it is told to.
type stream struct {
	mu    sync.Mutex
	began []time.Time
	lasts time.Duration
	panic bool
}

func (s *stream) Events(ctx context.Context, each func(queue.Report)) error {
	s.mu.Lock()
	s.began = append(s.began, time.Now())
	n := len(s.began)
	s.mu.Unlock()
	each(queue.Report{Jobs: []cimeter.Job{job(n, cimeter.JobRunning)}})
	if s.panic {
		panic("of an adapter")
	}
	select {
	case <-ctx.Done():
	case <-time.After(s.lasts):
	}
	return fmt.Errorf("the stream ended: %w", cimeter.ErrUnavailable)
}

func (s *stream) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.began)
}

// What a stream tells is in the queue at once. One that works is followed again soon
// after its end, one that does not ever more seldom, and neither fails the server.
func TestEvents(t *testing.T) {
	for name, test := range map[string]struct {
		s           *stream
		least, most int // times that it is followed in an hour
	}{
		"works":    {s: &stream{lasts: 10 * time.Minute}, least: 6, most: 7},
		"ends":     {s: &stream{}, least: 12, most: 30},
		"panics":   {s: &stream{panic: true}, least: 12, most: 30},
		"is quiet": {s: &stream{lasts: 24 * time.Hour}, least: 1, most: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &script{steps: []func(context.Context) (queue.Report, error){good(queue.Report{})}}
				p, _ := start(t, poll.Options{Servers: []poll.Server{{Name: name, CI: "woodpecker", Source: source, Events: test.s}}})
				time.Sleep(5 * time.Second)
				synctest.Wait()
				st := p.State()
				if len(st.Builds) == 0 || st.Builds[0].Status != cimeter.JobRunning || st.Servers[0].Stale {
					t.Errorf("%+v: want the build that the stream told, of a server that is well", st)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := test.s.count(); n < test.least || n > test.most {
					t.Errorf("followed %d times in an hour: want %d to %d", n, test.least, test.most)
				}
				if p.State().Servers[0].Stale {
					t.Error("the server is stale, though its polls are good")
				}
			})
		})
	}
}
