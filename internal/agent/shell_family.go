package agent

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/process"
)

// born takes up a family.
func (s *shells) born(f *process.Family) {
	sh := &shell{family: f, id: shellID(f.Root), start: f.Start, started: wall(f.Started), late: s.first, scanned: s.conn == nil}
	if old, ok := f.Tag.(*shell); ok { // an orphan's, which is known already
		sh.known, sh.identity = old.known, old.identity
	}
	f.Tag = sh
	s.stirred = time.Now()
	if !sh.known {
		s.unknown++
		sh.counted = true
	}
	if s.conn == nil {
		s.watchEnd(f.Root)
	}
	s.mu.Lock()
	s.list = append(s.list, sh)
	s.mu.Unlock()
}

// watchEnd has the end of a process told where no event does.
func (s *shells) watchEnd(pid int) {
	if len(s.pidfds) >= maxFamilyFds {
		return // found by looking
	}
	s.unwatch(pid)
	fd, err := process.OpenPidfd(pid)
	if err != nil {
		return // gone, or no such thing in this kernel: found by looking
	}
	if s.register(fd, pid) != nil {
		unix.Close(fd)
		return
	}
	s.pidfds[pid] = fd
}

func (s *shells) unwatch(pid int) {
	if fd, ok := s.pidfds[pid]; ok {
		delete(s.pidfds, pid)
		unix.Close(fd)
	}
}

// look finds out by one of its processes whose a family is, and in which stage.
func (s *shells) look(f *process.Family, pid int) {
	sh := f.Tag.(*shell)
	if !sh.known { // this goroutine alone writes it
		var id cimeter.Identity
		var ok bool
		if pid != f.Root && f.RootEnded == 0 { // what it says counts more than what those below it do
			id, ok = s.identify(f.Root)
		}
		if !ok {
			id, ok = s.identify(pid)
		}
		if !ok {
			return
		}
		s.settleIdentity(sh, id)
	}
	if sh.identity.Stage != "" || sh.command != "" {
		f.Known()
		return
	}
	line, err := s.procs.AppendCmdline(nil, pid)
	if err != nil {
		return
	}
	stage, fixed, ok, open := s.opts.Stage(sh.identity.Build.CI, pid == f.Root, line)
	clear(line) // it may hold a token
	if !open {
		f.Known()
	}
	if ok {
		s.mu.Lock()
		sh.command, sh.fixed = stage, fixed
		s.mu.Unlock()
		f.Known()
	}
}

func (s *shells) identify(pid int) (cimeter.Identity, bool) {
	env, err := s.procs.Environ(pid, s.opts.Variables)
	if err != nil {
		if errors.Is(err, cimeter.ErrUnauthorized) && !s.refused {
			s.refused = true
			s.log.Warn("builds without containers are not metered: variables of others' processes may not be read", "err", err,
				"hint", "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, or agent.processes: off")
		}
		return cimeter.Identity{}, false
	}
	return s.opts.Identify(env)
}

// settleIdentity notes whose a family is. The runner above it is its group: a
// process of another runner that claims the build is refused.
func (s *shells) settleIdentity(sh *shell, id cimeter.Identity) {
	var holder string
	if runner := sh.family.Runner; runner != 0 {
		if start, err := s.procs.StartTime(runner); err == nil {
			id.Group = fmt.Sprintf("runner process %d, started at %d", runner, start)
			if s.opts.OneJob(id.Build.CI) {
				holder = id.Group
			}
		}
	}
	if sh.family.Start == 0 { // by which an agent that comes back knows it again
		sh.family.Start, _ = s.procs.StartTime(sh.family.Root) // gone: it will not be there then either
	}
	sh.family.Proved()
	sh.family.LookAtMost(stageLooks)
	s.nowKnown(sh)
	s.mu.Lock()
	sh.start = sh.family.Start
	sh.known, sh.identity, sh.holder = true, id, holder
	s.contest(sh)
	s.mu.Unlock()
}

// nowKnown notes that nobody waits to know whose a family is any more.
func (s *shells) nowKnown(sh *shell) {
	if sh.counted {
		sh.counted = false
		s.unknown--
	}
}

// orphan finds the family of a process that has no parent: it keeps its build by
// the variables that it inherited.
func (s *shells) orphan(pid int) *process.Family {
	id, ok := s.identify(pid)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.list) - 1; i >= 0; i-- {
		sh := s.list[i]
		if sh.known && sh.ended.IsZero() && sh.identity.Build.Key == id.Build.Key && sh.identity.Stage == id.Stage {
			return sh.family
		}
	}
	f := s.forest.Adopt(pid)
	f.Known()
	f.Tag = &shell{known: true, identity: id}
	return f
}

// over takes the end of a family.
func (s *shells) over(f *process.Family) {
	s.unwatch(f.Root)
	s.stirred = time.Now()
	sh := f.Tag.(*shell)
	s.nowKnown(sh)
	s.mu.Lock()
	defer s.mu.Unlock()
	sh.publish(time.Now())
	sh.ended = wall(f.Ended)
	s.noteEnd(sh)
	if f.Coded {
		sh.exit = cimeter.Some(exitCode(f.Code))
	}
}

// exitCode is a status of wait(2) as a shell shows it.
func exitCode(status int) int {
	w := unix.WaitStatus(status)
	if w.Signaled() {
		return 128 + int(w.Signal())
	}
	return w.ExitStatus()
}

// leftOver ends families whose first process has ended, and with it all that
// their runner started for the build: a daemon that was left behind would keep it
// for ever.
func (s *shells) leftOver() {
	now := process.Monotonic()
	s.mu.Lock()
	var drop []*shell // most often none
	for _, sh := range s.list {
		f := sh.family
		if !sh.ended.IsZero() || f.RootEnded == 0 || now-f.RootEnded < leftOver || s.atWork(sh) {
			continue
		}
		drop = append(drop, sh)
	}
	s.mu.Unlock()
	for _, sh := range drop {
		sh.family.Ended = sh.family.RootEnded
		s.over(sh.family)
		s.forest.Drop(sh.family)
	}
}

// atWork reports whether a first process of sh's build lives, or ended just now.
func (s *shells) atWork(sh *shell) bool {
	if !sh.known {
		return false
	}
	if sh.holder != "" && s.forest.Lives(sh.family.Runner) {
		return true
	}
	now := process.Monotonic()
	if s.opts.Leaves(sh.identity.Build.CI) && now-sh.family.RootEnded < leavesFor {
		return true
	}
	for _, other := range s.list {
		if other.known && other.identity.Build.Key == sh.identity.Build.Key && other.ended.IsZero() &&
			(other.family.RootEnded == 0 || now-other.family.RootEnded < leftOver) {
			return true
		}
	}
	return false
}
