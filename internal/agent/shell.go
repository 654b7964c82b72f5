package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter/internal/process"
	"github.com/cimeter/cimeter/internal/procevents"
)

const tokenWakeShells, tokenEvents = -1, -2

func newShells(a *Agent, o *Processes) (*shells, error) {
	s := &shells{Agent: a, opts: o, epoll: -1, wake: -1, pidfds: make(map[int]int), holders: make(map[string]int), ends: make(map[runnersBuild]time.Duration), gauges: newShellGauges(a.opts.Tally)}
	err := s.open()
	if err != nil {
		s.close()
		return nil, fmt.Errorf("follow processes: %w", err)
	}
	return s, nil
}

func (s *shells) open() (err error) {
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll_create1: %w", err)
	}
	if s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	if err := s.register(s.wake, tokenWakeShells); err != nil {
		return err
	}
	s.forest, err = s.procs.NewForest(process.ForestOptions{
		Events: s.opts.Events, Runner: s.opts.Runner, Foreign: foreign, Born: s.born, Look: s.look, Orphan: s.orphan, Ended: s.over,
	})
	if err != nil || !s.opts.Must {
		return err
	}
	return s.subscribe()
}

// foreign reports whether a process of that /proc/PID/cgroup is in a container.
func foreign(b []byte) bool {
	_, err := containerOf(b)
	return err == nil
}

func (s *shells) register(fd, token int) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(token)}
	if err := unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

func (s *shells) close() {
	s.inboxMu.Lock()
	s.done = true
	s.inboxMu.Unlock()
	if s.conn != nil {
		s.conn.Close()
	}
	if s.forest != nil {
		s.forest.Close()
	}
	for _, fd := range s.pidfds {
		unix.Close(fd)
	}
	for _, fd := range []int{s.wake, s.epoll} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// subscribe begins to follow the kernel's events.
func (s *shells) subscribe() error {
	conn, err := procevents.Open()
	if err != nil {
		return err
	}
	if err := s.register(conn.FD(), tokenEvents); err != nil {
		conn.Close()
		return err
	}
	s.conn, s.lost = conn, true // what happened before is found by looking
	s.gauges.eventsUp.Set(1)
	return nil
}

// unsubscribe ends it.
func (s *shells) unsubscribe() {
	s.conn.Close()
	s.conn = nil
	s.gauges.eventsUp.Set(0)
}

// begin finds what runs already.
func (s *shells) begin(now time.Time) {
	s.first = true
	s.tick(now)
	s.first = false
}

// run follows processes until ctx ends.
func (s *shells) run(ctx context.Context) {
	defer s.close()
	stop := context.AfterFunc(ctx, func() { s.post(func() {}) })
	defer stop()
	due := time.Now() // of the last tick
	for ctx.Err() == nil {
		now, next := time.Now(), s.nextTick(due)
		if !now.Before(next) {
			s.tick(now)
			if due = next; now.Sub(due) > s.Agent.opts.Interval {
				due = now
			}
			continue
		}
		s.wait(min(next.Sub(now), 30*time.Second))
		if !s.ours && s.conn != nil {
			s.letGather(time.Until(next))
		}
	}
	s.tick(time.Now()) // what the meter reads last
}

// wait waits at most d for events.
func (s *shells) wait(d time.Duration) {
	n, err := unix.EpollWait(s.epoll, s.ready[:], int((d+time.Millisecond-1)/time.Millisecond))
	if err != nil {
		return // interrupted
	}
	for _, e := range s.ready[:n] {
		switch pid := int(e.Fd); pid {
		case tokenWakeShells:
			s.takeInbox()
		case tokenEvents:
			s.drain()
		default:
			s.unwatch(pid)
			s.forest.Exit(pid, 0, 0, 0)
		}
	}
}

// giveUp lets events gather again though a family is not known for long.
func (s *shells) giveUp(now time.Time) {
	if s.unknown == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.list {
		if sh.counted && now.Sub(sh.started) > giveUpAfter {
			s.nowKnown(sh)
		}
	}
}

// letGather takes events every now and then as long as there are some and they
// are others', for at most d.
func (s *shells) letGather(d time.Duration) {
	s.pause[0] = unix.PollFd{Fd: int32(s.wake), Events: unix.POLLIN}
	for !s.ours && s.conn != nil {
		gather := gatherOthers
		if time.Since(s.stirred) < quickFor {
			gather = gatherYoung
		}
		if d -= gather; d < 0 {
			return
		}
		if n, err := unix.Poll(s.pause[:], int(gather/time.Millisecond)); err == nil && n > 0 || s.drain() == 0 {
			return
		}
	}
}

// drain takes the events that wait, and returns how many there were. It notes
// whether most of them were ours.
func (s *shells) drain() (all int) {
	if s.conn == nil {
		return 0
	}
	s.own = 0
	runners := s.forest.Runners()
	defer func() {
		s.forest.Settled()
		if s.forest.Runners() > runners {
			s.stirred = time.Now()
		}
		s.ours = s.unknown > 0 || s.own > 0 && s.own*2 >= all
	}()
	for s.conn != nil {
		n, err := s.conn.Read(s.events[:])
		for i := range s.events[:n] {
			s.happened(&s.events[i])
		}
		all += n
		s.gauges.events.Add(float64(n))
		switch {
		case errors.Is(err, procevents.ErrOverrun):
			s.lost = true
			s.gauges.overruns.Add(1)
		case err != nil:
			s.log.Warn("process events cannot be read, processes are found by looking", "err", err)
			s.unsubscribe()
		case n < len(s.events):
			return all
		}
	}
	return all
}

func (s *shells) happened(e *procevents.Event) {
	var ours bool
	switch e.Kind {
	case procevents.Fork:
		ours = s.forest.Fork(e.Parent, e.Pid, e.At)
	case procevents.Exec:
		ours = s.forest.Exec(e.Pid, e.At)
	case procevents.Exit:
		ours = s.forest.Exit(e.Pid, e.Parent, e.Code, e.At)
	}
	if ours {
		s.own++
	}
}

// nextTick is when the next tick is due after one that was due at last. While there is
// nothing to follow it is that which looks for a runner.
func (s *shells) nextTick(last time.Time) time.Time {
	next := last.Add(s.Agent.opts.Interval)
	if s.forest.Runners() > 0 || s.conn != nil {
		return next
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if look := s.scanned.Add(s.scanPause()); len(s.list) == 0 && len(s.holders) == 0 && look.After(next) {
		return look
	}
	return next
}

// scanPause is the time between two looks for a runner while there is none, by what
// the last one cost.
func (s *shells) scanPause() time.Duration {
	return min(max(idleScan, s.scanCost*scanCostTimes), 2*idleScan)
}

// tick looks at what no event tells, once in an interval.
func (s *shells) tick(now time.Time) {
	s.arrangeEvents(now)
	s.drain()
	every := checkScan
	switch {
	case s.forest.Runners() == 0:
		every = s.scanPause()
	case s.conn == nil:
		every = fullScan
	}
	if s.lost || now.Sub(s.scanned) >= every {
		s.scanned = now
		s.scan()
	} else if s.conn == nil && s.forest.Runners() > 0 && !s.forest.Walk(true) {
		s.scan()
	}
	s.forest.Round(s.conn == nil)
	s.giveUp(now)
	s.leftOver()
	s.publish(now)
	s.count()
}

// arrangeEvents subscribes when there is a runner, and ends it when there was
// none for long: events are of all processes of the machine.
func (s *shells) arrangeEvents(now time.Time) {
	if s.forest.Runners() > 0 {
		s.runnerSeen = now
	}
	switch {
	case s.conn != nil && !s.opts.Must && now.Sub(s.runnerSeen) > eventsAgain:
		s.unsubscribe()
	case s.conn == nil && s.opts.Events && s.forest.Runners() > 0 && now.Sub(s.asked) >= eventsAgain:
		first := s.asked.IsZero()
		s.asked = now
		if err := s.subscribe(); err != nil && first {
			s.log.Info("process events are not to be had: short processes are found in their parents' accounts", "err", err)
		}
	}
}

func (s *shells) scan() {
	if s.lost {
		s.mu.Lock()
		for _, sh := range s.list {
			sh.scanned = true
		}
		s.mu.Unlock()
	}
	s.lost = false
	before := process.ThreadTime()
	if err := s.forest.Scan(s.conn == nil || s.first); err != nil {
		s.log.Warn("processes not looked at", "err", err)
	}
	s.scanCost = process.ThreadTime() - before // more or less than that where Go changed the thread
	if s.conn == nil && s.opts.Events && s.asked.IsZero() {
		s.arrangeEvents(s.scanned) // a runner was found: do not wait for the next tick
		if s.conn != nil {
			s.lost = false
			if err := s.forest.Scan(true); err != nil {
				s.log.Warn("processes not looked at", "err", err)
			}
		}
	}
}

// publish hands the totals of all families to the meter.
func (s *shells) publish(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.list {
		if sh.ended.IsZero() {
			sh.publish(now)
		}
	}
	for holder, pid := range s.holders {
		if !s.forest.Lives(pid) {
			delete(s.holders, holder)
			s.freed = append(s.freed, holder)
		}
	}
}

func (sh *shell) publish(at time.Time) {
	sh.sample.Reset()
	sh.sample.At = at
	sh.family.Set(&sh.sample)
	sh.proportional = sh.family.Proportional()
	sh.start = sh.family.Start
}

// wall turns a time of the kernel's monotonic clock into one of the day.
func wall(at time.Duration) time.Time { return time.Now().Add(at - process.Monotonic()) }

func shellID(pid int) string { return "process-" + strconv.Itoa(pid) }
