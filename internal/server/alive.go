package server

import (
	"sync"
	"time"
)

// silence is how long the store may be asked without an answer: each question has a
// deadline of at most weighEvery, and an error is an answer. A disk that hangs for
// half a minute is waited for.
const silence = 2 * time.Minute

// answers notes since when the store has been asked.
type answers struct {
	mu    sync.Mutex
	last  uint64
	since map[uint64]time.Time // when each question that is open was asked
}

// ask notes a question; the answer is to be told by a call of what it returns.
func (a *answers) ask(now time.Time) (answered func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since == nil {
		a.since = make(map[uint64]time.Time)
	}
	a.last++
	id := a.last
	a.since[id] = now
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.since, id)
	}
}

// silent reports whether a question has been open for too long.
func (a *answers) silent(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, asked := range a.since {
		if now.Sub(asked) > silence {
			return true
		}
	}
	return false
}

// alive tells that the server works: the loop that looks after the fleet turns, and
// the store answers.
func (s *Server) alive(now time.Time) {
	if s.o.Alive != nil && !s.store.silent(now) {
		s.o.Alive(now)
	}
}

// beat is the time between two looks at the fleet.
func (s *Server) beat() time.Duration {
	if s.o.AliveEvery > 0 {
		return min(lookEvery, s.o.AliveEvery)
	}
	return lookEvery
}
