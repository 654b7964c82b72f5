package runnerjobs_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/github"
	"github.com/cimeter/cimeter/internal/runnerjobs"
)

// source plays the API server: answers says what each watch of a runner does.
type source struct {
	mu      sync.Mutex
	watches map[string]int
	answer  func(ctx context.Context, name string, nth int, fn func(github.Ephemeral)) error
}

func (s *source) WatchRunner(ctx context.Context, _, name string, fn func(github.Ephemeral)) error {
	s.mu.Lock()
	if s.watches == nil {
		s.watches = make(map[string]int)
	}
	s.watches[name]++
	n := s.watches[name]
	s.mu.Unlock()
	return s.answer(ctx, name, n, fn)
}

func (s *source) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches[name]
}

var busy = github.Ephemeral{ConfigURL: "https://github.com/acme", Repository: "acme/shop", RunID: "99", Job: "test"}

// inTable runs test in a bubble of time with a table that runs.
func inTable(t *testing.T, s *source, test func(t *testing.T, table *runnerjobs.Table, said *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		said := &bytes.Buffer{}
		table := runnerjobs.New(s, slog.New(slog.NewTextHandler(said, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- table.Run(ctx) }()
		test(t, table, said)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// A runner that waits is watched, again when the server ends the watch, until it has
// a job; then not any more, and the job is known for good.
func TestTable(t *testing.T) {
	s := &source{answer: func(ctx context.Context, _ string, nth int, fn func(github.Ephemeral)) error {
		fn(github.Ephemeral{ConfigURL: busy.ConfigURL})
		if nth == 3 {
			fn(busy)
			<-ctx.Done() // as the adapter goes on
			return ctx.Err()
		}
		time.Sleep(time.Minute)
		return nil
	}}
	inTable(t, s, func(t *testing.T, table *runnerjobs.Table, said *bytes.Buffer) {
		if e, asked := table.Job("ns", "r"); e.Known() || !asked {
			t.Errorf("at first: %+v, %v", e, asked)
		}
		time.Sleep(90 * time.Second)
		if e, asked := table.Job("ns", "r"); e.Known() || !asked {
			t.Errorf("while it waits: %+v, %v", e, asked)
		}
		time.Sleep(10 * time.Minute)
		if e, asked := table.Job("ns", "r"); e != busy || !asked {
			t.Errorf("with a job: %+v, %v", e, asked)
		}
		if n := s.count("r"); n != 3 {
			t.Errorf("watched %d times, want 3", n)
		}
		if said.Len() > 0 {
			t.Errorf("it said: %s", said)
		}
	})
}

// Nobody waits for a runner that is not there, that may not be asked for, or for a
// server that does not answer; failures are said once.
func TestTable_failures(t *testing.T) {
	for name, tt := range map[string]struct {
		err     error
		says    string
		watches int // at least
	}{
		"gone":         {cimeter.ErrNotFound, "", 1},
		"forbidden":    {cimeter.ErrUnauthorized, "unauthorized", 1},
		"another form": {cimeter.ErrInvalid, "invalid", 1},
		"no answer":    {cimeter.ErrUnavailable, "unavailable", 5},
	} {
		t.Run(name, func(t *testing.T) {
			s := &source{answer: func(_ context.Context, name string, _ int, _ func(github.Ephemeral)) error {
				return fmt.Errorf("watch %s: %w", name, tt.err)
			}}
			inTable(t, s, func(t *testing.T, table *runnerjobs.Table, said *bytes.Buffer) {
				for i := range 3 {
					if e, asked := table.Job("ns", fmt.Sprint("r", i)); e.Known() || !asked {
						t.Errorf("at first: %+v, %v", e, asked)
					}
				}
				time.Sleep(5 * time.Minute)
				if e, asked := table.Job("ns", "r1"); e.Known() || asked {
					t.Errorf("later: %+v, %v: want nobody to ask", e, asked)
				}
				if n := s.count("r1"); n < tt.watches || n > 20 {
					t.Errorf("watched %d times, want %d to 20", n, tt.watches)
				}
				if n := strings.Count(said.String(), "level=WARN"); tt.says == "" && n > 0 || tt.says != "" && (n != 1 || !strings.Contains(said.String(), tt.says)) {
					t.Errorf("it said:\n%s", said)
				}
			})
		})
	}
}

// The server comes back.
func TestTable_back(t *testing.T) {
	s := &source{answer: func(_ context.Context, _ string, nth int, fn func(github.Ephemeral)) error {
		if nth < 6 {
			return cimeter.ErrUnavailable
		}
		fn(busy)
		return nil
	}}
	inTable(t, s, func(t *testing.T, table *runnerjobs.Table, _ *bytes.Buffer) {
		table.Job("ns", "r")
		time.Sleep(10 * time.Minute)
		if e, asked := table.Job("ns", "r"); e != busy || !asked {
			t.Errorf("%+v, %v", e, asked)
		}
	})
}

// However many runners are asked for, the watches and what is remembered are bounded.
func TestTable_bounds(t *testing.T) {
	var mu sync.Mutex
	running, most := 0, 0
	s := &source{answer: func(ctx context.Context, _ string, _ int, _ func(github.Ephemeral)) error {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		<-ctx.Done()
		mu.Lock()
		running--
		mu.Unlock()
		return ctx.Err()
	}}
	inTable(t, s, func(t *testing.T, table *runnerjobs.Table, _ *bytes.Buffer) {
		for i := range 5000 {
			if _, asked := table.Job("ns", fmt.Sprint(i)); !asked {
				t.Fatal("not asked")
			}
			if i%10 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if running != 64 || most != 64 {
			t.Errorf("%d watches, at most %d, want 64", running, most)
		}
	})
}
