package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/cgroup"
	"github.com/cimeter/cimeter/internal/process"
)

// Caller is a process that asks for the account of its own build. Its number
// names it only while Same says so.
type Caller struct {
	agent     *Agent
	pid       int
	pidfd     int    // -1: the kernel has none
	start     uint64 // when it began, where there is no pidfd
	container string
	shell     *shell        // of a process in no container: its family
	learn     time.Duration // learnTime
}

// Hold takes hold of process pid, and looks which container it is in, or else
// which family of processes it was born into. The error wraps
// [cimeter.ErrNotFound] when it is in none, and [cimeter.ErrGone] when there is no
// such process.
func (a *Agent) Hold(pid int) (_ *Caller, err error) {
	c := &Caller{agent: a, pid: pid, pidfd: -1, learn: learnTime}
	c.pidfd, err = process.OpenPidfd(pid)
	if errors.Is(err, cimeter.ErrUnsupported) {
		c.start, err = a.procs.StartTime(pid)
	}
	if err != nil {
		return nil, err
	}
	b, err := a.procs.Cgroup(pid) // after the hold: it is of the process that is held
	if err == nil {
		c.container, err = containerOf(b)
		if errors.Is(err, cimeter.ErrNotFound) && a.shells != nil {
			c.shell, err = a.shells.familyOf(pid)
		}
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	return c, nil
}

// containerOf returns the id of the container that a process with this
// /proc/PID/cgroup is in; [cimeter.ErrNotFound] is none. A process that is in one
// container here and in another there is [cimeter.ErrConflict].
func containerOf(b []byte) (id string, err error) {
	groups, err := cgroup.ParseProcCgroup(b)
	if err != nil {
		return "", err
	}
	for _, g := range groups {
		one, _, ok := cgroup.Container(g.Path)
		if !ok || g.Deleted {
			continue
		}
		if id != "" && id != one {
			return "", fmt.Errorf("in containers %.12s and %.12s: %w", id, one, cimeter.ErrConflict)
		}
		id = one
	}
	if id == "" {
		return "", fmt.Errorf("in no container: %w", cimeter.ErrNotFound)
	}
	return id, nil
}

// Scope names what the process is a part of: its container's id, or its family's.
// No two have one.
func (c *Caller) Scope() string {
	if c.shell != nil {
		return c.shell.scope()
	}
	return c.container
}

// Same reports whether the process still lives, so that its number was its own
// since it was held.
func (c *Caller) Same() bool {
	if c.pidfd < 0 {
		start, err := c.agent.procs.StartTime(c.pid)
		return err == nil && start == c.start
	}
	fds := []unix.PollFd{{Fd: int32(c.pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if err != unix.EINTR {
			return err == nil && n == 0 // readable: it has ended
		}
	}
}

// Close lets go of the process.
func (c *Caller) Close() {
	if c.pidfd >= 0 {
		unix.Close(c.pidfd)
		c.pidfd = -1
	}
}

// learnTime is how long an account waits for a container that nobody has told the
// meter of yet: to ask may be the first that a step does.
const learnTime = 600 * time.Millisecond

// Account returns the account so far of the build that the process's container
// or family belongs to, and the stage that runs. The error wraps
// [cimeter.ErrNotFound] when it belongs to no build, and [cimeter.ErrUnavailable]
// when the meter does not answer before ctx ends; the meter waits for nobody.
func (c *Caller) Account(ctx context.Context) (*cimeter.Record, string, error) {
	if c.shell != nil {
		if err := c.freshen(ctx); err != nil {
			return nil, "", err
		}
	}
	type told struct {
		attrib.Running
		ok, unsettled bool
	}
	answer := make(chan told, 1)
	enough := time.NewTimer(c.learn)
	defer enough.Stop()
	for {
		c.agent.meter.post(func() {
			r, ok := c.agent.meter.accountOf(c, time.Now)
			answer <- told{r, ok, !ok && c.shell == nil && c.agent.meter.untold(c.container)}
		})
		var t told
		select {
		case <-ctx.Done():
			return nil, "", fmt.Errorf("%.24s: the meter is busy: %w", c.Scope(), cimeter.ErrUnavailable)
		case t = <-answer:
		}
		if t.ok {
			return t.Record, t.Stage, nil
		}
		none := fmt.Errorf("%.24s: of no build: %w", c.Scope(), cimeter.ErrNotFound)
		if !t.unsettled {
			return nil, "", none
		}
		select {
		case <-ctx.Done():
			return nil, "", none
		case <-enough.C:
			return nil, "", none
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// untold reports whether it is not known yet what a container belongs to.
func (m *meter) untold(container string) bool {
	k := m.known[container]
	return k == nil || k.stand == nothing || k.stand == waiting || k.stand == ofPod || k.stand == ours && k.running == nil && k.seen == 0
}

// accountOf renders the account of the build that a caller's container or family
// is booked on.
func (m *meter) accountOf(c *Caller, now func() time.Time) (attrib.Running, bool) {
	if c.shell != nil {
		return m.accountOfShell(c.shell, now)
	}
	k := m.known[c.container]
	if k == nil || k.stand != ours || k.running == nil || k.running.closed {
		return attrib.Running{}, false
	}
	return m.accountOfBuild(k.running.segment.BuildKey(), now) // what the ledger booked it on, not what it claims
}

// accountOfBuild reads the counters of a build's containers and renders its account.
func (m *meter) accountOfBuild(key string, now func() time.Time) (attrib.Running, bool) {
	if key == "" {
		return attrib.Running{}, false
	}
	for _, l := range m.lives {
		if !l.closed && l.exited.IsZero() && l.segment.BuildKey() == key {
			m.sample(l, cgroup.Fast)
		}
	}
	return m.ledger.RunningBuild(key, now())
}
