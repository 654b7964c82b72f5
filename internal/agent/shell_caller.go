package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/process"
)

// holdTime is how long it may take to find the family of a process: the goroutine
// that knows it is busy for some milliseconds at most, unless the machine is.
const holdTime = 500 * time.Millisecond

// overlapSlack is how much two programs may seem to have run at once of which one
// was started after the other's end: an end without events is noticed late.
const overlapSlack = 500 * time.Millisecond

// keepEnds is how many builds' last ends are known, and for how long at least.
const keepEnds, keepEndsFor = 1024, 10 * time.Minute

// post has fn called by the goroutine that follows processes, or never if that
// has ended. Any goroutine may post.
func (s *shells) post(fn func()) {
	s.inboxMu.Lock()
	defer s.inboxMu.Unlock()
	if s.done {
		return
	}
	s.inbox = append(s.inbox, fn)
	s.awake()
}

// awake ends the goroutine's wait.
func (s *shells) awake() { _, _ = unix.Write(s.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) } // it has room for it

func (s *shells) takeInbox() {
	var b [8]byte
	_, _ = unix.Read(s.wake, b[:]) // of a context that ends there is nothing else to do
	s.inboxMu.Lock()
	all := s.inbox
	s.inbox = nil
	s.inboxMu.Unlock()
	for _, fn := range all {
		fn()
	}
}

// familyOf returns the family that process pid was born into. It waits for the
// goroutine that follows processes. The error wraps [cimeter.ErrNotFound] when the process is of none.
func (s *shells) familyOf(pid int) (*shell, error) {
	answer := make(chan *shell, 1)
	s.post(func() { answer <- s.memberOf(pid) })
	late := time.NewTimer(holdTime)
	defer late.Stop()
	select {
	case sh := <-answer:
		if sh == nil {
			return nil, fmt.Errorf("in no container, and below no runner: %w", cimeter.ErrNotFound)
		}
		return sh, nil
	case <-late.C:
		return nil, fmt.Errorf("processes are looked at: %w", cimeter.ErrUnavailable)
	}
}

// memberOf is familyOf in that goroutine. Who asks may be the first of its family
// that tells whose it is.
func (s *shells) memberOf(pid int) *shell {
	s.drain()
	f := s.forest.Of(pid)
	if f == nil || f.Runner == 0 { // a family without a runner is what it says alone
		return nil
	}
	sh := f.Tag.(*shell)
	if !sh.known {
		s.look(f, pid)
	}
	return sh
}

// freshen brings up to date what the families of sh's build have used, and reports
// whether sh may be told.
func (s *shells) freshen(sh *shell) bool {
	s.drain()
	if !sh.known || sh.contested {
		return false
	}
	s.mu.Lock()
	list := slices.Clone(s.list)
	s.mu.Unlock()
	for _, other := range list {
		if other.known && other.identity.Build.Key == sh.identity.Build.Key {
			s.forest.Refresh(other.family)
		}
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range list {
		if other.ended.IsZero() {
			other.publish(now)
		}
	}
	return true
}

// contest notes that two programs of one runner ran at once for a build that has
// them one after the other: one of them says that it is what the other is, and
// neither is told anything.
func (s *shells) contest(sh *shell) {
	if sh.family.Runner == 0 || !s.opts.OneAtATime(sh.identity.Build.CI) {
		return
	}
	key := runnersBuild{sh.family.Runner, sh.identity.Build.Key}
	if end, ok := s.ends[key]; ok && sh.family.Started < end-overlapSlack {
		sh.contested = true
	}
	for _, other := range s.list {
		if other == sh || !other.known || (runnersBuild{other.family.Runner, other.identity.Build.Key}) != key {
			continue
		}
		if ended := other.family.RootEnded; ended != 0 {
			sh.contested = sh.contested || sh.family.Started < ended-overlapSlack
		} else if s.forest.Runs(other.family) && s.forest.Runs(sh.family) {
			sh.contested, other.contested = true, true
		}
	}
	if sh.contested {
		s.log.Warn("a build is claimed by two jobs of one runner at once: neither is told its summary", "build", key.build, "process", sh.family.Root)
	}
}

// runnersBuild is a build of one runner's process.
type runnersBuild struct {
	runner int
	build  string
}

// noteEnd keeps when the first process of a family ended, for contest.
func (s *shells) noteEnd(sh *shell) {
	f := sh.family
	if !sh.known || f.Runner == 0 || f.RootEnded == 0 || !s.opts.OneAtATime(sh.identity.Build.CI) {
		return
	}
	if len(s.ends) >= keepEnds {
		for key, end := range s.ends {
			if process.Monotonic()-end > keepEndsFor {
				delete(s.ends, key)
			}
		}
	}
	key := runnersBuild{f.Runner, sh.identity.Build.Key}
	s.ends[key] = max(s.ends[key], f.RootEnded)
}

// scope names a family for good.
func (sh *shell) scope() string { return fmt.Sprintf("%s at %d", sh.id, sh.family.Started) }

// freshen has the figures of the build's processes brought up to date.
func (c *Caller) freshen(ctx context.Context) error {
	answer := make(chan bool, 1)
	s := c.agent.shells
	s.post(func() { answer <- s.freshen(c.shell) })
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: processes are looked at: %w", c.shell.id, cimeter.ErrUnavailable)
	case told := <-answer:
		if !told {
			return fmt.Errorf("%s: of no build: %w", c.shell.id, cimeter.ErrNotFound)
		}
		return nil
	}
}

// accountOfShell is accountOf for a family of processes.
func (m *meter) accountOfShell(sh *shell, now func() time.Time) (attrib.Running, bool) {
	m.takeShells(now())
	m.shells.mu.Lock()
	told := sh.segment != nil && !sh.dropped && sh.ended.IsZero()
	m.shells.mu.Unlock()
	if !told {
		return attrib.Running{}, false
	}
	return m.accountOfBuild(sh.segment.BuildKey(), now)
}
