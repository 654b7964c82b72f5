package sqlite

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/cimeter/cimeter"
)

// lockFile holds a file that says that a process uses the store. The lock ends
// with the process.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %v: %w", err, cimeter.ErrUnavailable)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("used by another process (%s: %v): %w", path, err, cimeter.ErrUnavailable)
	}
	return f, nil
}

// private makes a file that only its owner reads, or makes one so: SQLite gives
// its -wal and -shm the mode that the file has.
func private(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("%v: %w", err, cimeter.ErrUnavailable)
	}
	defer f.Close()
	if err := f.Chmod(0o600); err != nil {
		return fmt.Errorf("%v: %w", err, cimeter.ErrUnavailable)
	}
	return nil
}

// leads are the roles held within this process, the only one that there is.
type leads struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when it is released
}

// Lead waits until this caller is the only one that does what name says. held
// is closed when that is over: never before release here, where one process
// uses the store.
func (s *Store) Lead(ctx context.Context, name string) (held <-chan struct{}, release func(), err error) {
	for {
		s.leads.mu.Lock()
		other, taken := s.leads.held[name]
		if !taken {
			if s.leads.held == nil {
				s.leads.held = map[string]chan struct{}{}
			}
			mine := make(chan struct{})
			s.leads.held[name] = mine
			s.leads.mu.Unlock()
			return mine, sync.OnceFunc(func() {
				s.leads.mu.Lock()
				defer s.leads.mu.Unlock()
				delete(s.leads.held, name)
				close(mine)
			}), nil
		}
		s.leads.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("lead %s: %w", name, ctx.Err())
		}
	}
}
