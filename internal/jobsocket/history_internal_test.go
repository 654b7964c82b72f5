package jobsocket

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
)

func build(name string) *cimeter.Record {
	return &cimeter.Record{Build: cimeter.Build{CI: "gitlab", Project: "p", Name: name}, Stages: []cimeter.Stage{{Name: "s", Usage: cimeter.Usage{WallSeconds: 2}}}}
}

// running runs h in a bubble until the test's end.
func running(h *histories, f func()) {
	var wg sync.WaitGroup
	stop := h.run(context.Background(), &wg)
	f()
	stop()
	wg.Wait()
}

func TestHistories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, takes atomic.Int64
		var fails atomic.Bool
		h := newHistories(func(ctx context.Context, of *cimeter.Build, limit int) ([]*cimeter.Record, error) {
			asked.Add(1)
			select {
			case <-time.After(time.Duration(takes.Load())):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if fails.Load() {
				return nil, errors.New("down")
			}
			return []*cimeter.Record{build(of.Name)}, nil
		})
		running(h, func() {
			ask := func(name string) bool { return h.usual(t.Context(), build(name)) != nil }
			want := func(what string, got, want bool, n int64) {
				t.Helper()
				if got != want || asked.Load() != n {
					t.Errorf("%s: known %t, asked %d times: want %t, %d", what, got, asked.Load(), want, n)
				}
			}
			want("at once", ask("a"), true, 1)
			want("again", ask("a"), true, 1)
			time.Sleep(historyAge + time.Second)
			want("old", ask("a"), true, 2)

			takes.Store(int64(time.Second))
			start := time.Now()
			want("slow", ask("b"), false, 3)
			if d := time.Since(start); d != historyTime {
				t.Errorf("waited %v for a slow one, want %v", d, historyTime)
			}
			time.Sleep(time.Second)
			want("when it has come", ask("b"), true, 3)

			takes.Store(int64(time.Hour))
			want("c", ask("c"), false, 4)
			want("d", ask("d"), false, 5)
			want("more than two at once", ask("e"), false, 5)
			time.Sleep(askTime)
			synctest.Wait()
			takes.Store(0)
			fails.Store(true)
			want("down", ask("f"), false, 6)
			want("down still", ask("f"), false, 6)
			fails.Store(false)
			time.Sleep(failedAge)
			want("up again", ask("f"), true, 7)
			want("of no project", h.usual(t.Context(), &cimeter.Record{}) != nil, false, 7)
		})
		if h.usual(t.Context(), build("late")) != nil || asked.Load() != 7 {
			t.Error("asked after the end")
		}
	})
}

func TestHistories_Bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistories(func(context.Context, *cimeter.Build, int) ([]*cimeter.Record, error) { return nil, nil })
		running(h, func() {
			for i := range 3 * maxHistories {
				h.usual(t.Context(), build(fmt.Sprint(i)))
				synctest.Wait()
			}
			if n := len(h.jobs); n > maxHistories {
				t.Errorf("%d jobs are remembered, want at most %d", n, maxHistories)
			}
		})
	})
}

func TestServer_lately(t *testing.T) {
	s := &Server{recent: map[string]recent{}}
	at := time.Unix(1000, 0)
	s.keep("a", []byte("answer"), at)
	if s.lately("b", at) != nil || string(s.lately("a", at.Add(askAgain-1))) != "answer" || s.lately("a", at.Add(askAgain)) != nil {
		t.Error("want the last answer to the same container, for a moment")
	}
	s.keep("b", nil, at.Add(time.Hour))
	if len(s.recent) != 1 {
		t.Errorf("%d answers are kept, want 1", len(s.recent))
	}
}

func TestPace(t *testing.T) {
	var p pace
	at, waited := time.Unix(0, 0), time.Duration(0)
	for range 1000 {
		d := p.next(at)
		at = at.Add(d)
		waited += d
	}
	if least := time.Duration(1000-burst) * time.Second / perSecond; waited < least*9/10 || waited > least*11/10 {
		t.Errorf("1000 connections at once take %v, want about %v", waited, least)
	}
	if d := p.next(at.Add(time.Hour)); d != 0 {
		t.Errorf("after an hour: %v, want 0", d)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"record":{"key":"gitlab/x/1","stages":[{"name":"s"}]},"stage":"s","url":"http://x"}`))
	f.Add([]byte(`{"problem":"no"}`))
	f.Add([]byte(`{"record":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decode(b)
		if (err == nil) != (a != nil && a.Record != nil && a.Record.Key != "") {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

func FuzzSender(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 32))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 16 && b[12] == 1 { // SCM_RIGHTS: its numbers would be closed here
			return
		}
		if pid, err := sender(b); (err == nil) != (pid > 0) {
			t.Errorf("%d, %v", pid, err)
		}
	})
}
