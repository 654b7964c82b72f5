package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/process"
	"github.com/cimeter/cimeter/internal/procevents"
)

// Processes say how builds are found that run in no container.
type Processes struct {
	// Events asks for the kernel's process events where they may be had. Without
	// them processes are found by looking once in an interval.
	Events bool
	// Must says that nothing but events will do.
	Must bool
	// Runner reports whether a program of that name is a CI runner.
	Runner func(comm []byte) bool
	// Variables are the only ones that are read of a process's environment, for
	// Identify.
	Variables []string
	Identify  ci.ProcessIdentifier
	// Stage tells by the command line of a process, which is compared and not
	// kept, the stage of its build: for good (fixed), or as evidence for a
	// Stager. first is set for a process that the runner itself started. open is
	// false where command lines of that CI system tell nothing.
	Stage func(ci string, first bool, cmdline []byte) (stage string, fixed, ok, open bool)
	// Container stands for a container's name in what a Stager is told.
	Container string
	// OneJob reports whether a runner of that CI system has one job in its life:
	// the build lasts as long.
	OneJob func(ci string) bool
}

const (
	// idleScan is the time between two looks for a runner while there is none.
	idleScan = 5 * time.Second
	// checkScan is the time between two looks at all processes beside events.
	checkScan = 30 * time.Second
	// eventsAgain is the time after which events are asked for again that could
	// not be had, and after which they are not asked for any more without a runner.
	eventsAgain = time.Minute
	// leftOver is how long after the end of the last process that a runner
	// started for a build what is left of it (daemons) still counts.
	leftOver = 10 * time.Second
	// maxFamilyFds bounds the pidfds that tell of ends where events do not.
	maxFamilyFds = 1024
)

// shells follow the builds that run in no container. Its goroutine has the
// forest; the list, and what is in it, is under the lock.
type shells struct {
	*Agent
	opts   *Processes
	forest *process.Forest
	conn   *procevents.Conn // nil: no events
	epoll  int
	wake   int
	pidfds map[int]int // of first processes, to pidfd
	events [256]procevents.Event
	ready  [64]unix.EpollEvent
	lost   bool
	first  bool // the first scan is being done
	gauges shellGauges
	counts process.ForestStats

	scanned, asked, runnerSeen time.Time

	mu      sync.Mutex
	list    []*shell
	holders map[string]int // runners that hold a build open, to their pid
	freed   []string       // those of them that have ended, not told to the ledger yet
}

// shell is a family of processes.
type shell struct {
	family *process.Family // the goroutine's of the forest; the rest is under the lock

	id       string
	start    uint64
	started  time.Time
	ended    time.Time // zero while it lives
	exit     cimeter.Opt[int]
	late     bool // it ran before the agent
	scanned  bool // it was followed by looking, at least for a time
	known    bool // identity is
	identity cimeter.Identity
	holder   string // what holds the build open: its runner; "": nothing
	command  string // stage that a command line told
	fixed    bool   // command is the stage, not only evidence for it
	sample   cimeter.Sample
	dropped  bool // of no build

	// The meter's.
	segment *attrib.Segment
	told    bool // command was told to the ledger
}

const tokenWakeShells, tokenEvents = -1, -2

func newShells(a *Agent, o *Processes) (*shells, error) {
	s := &shells{Agent: a, opts: o, epoll: -1, wake: -1, pidfds: make(map[int]int), holders: make(map[string]int), gauges: newShellGauges(a.opts.Tally)}
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
		Runner: s.opts.Runner, Foreign: foreign, Born: s.born, Look: s.look, Orphan: s.orphan, Ended: s.over,
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
	stop := context.AfterFunc(ctx, func() {
		_, _ = unix.Write(s.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // it has room for it
	})
	defer stop()
	next := time.Now().Add(s.Agent.opts.Interval)
	for ctx.Err() == nil {
		now := time.Now()
		if !now.Before(next) {
			s.tick(now)
			if next = next.Add(s.Agent.opts.Interval); now.After(next) {
				next = now.Add(s.Agent.opts.Interval)
			}
			continue
		}
		s.wait(next.Sub(now))
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
		case tokenEvents:
			s.drain()
		default:
			s.unwatch(pid)
			s.forest.Exit(pid, 0, 0, 0)
		}
	}
}

// drain takes the events that wait.
func (s *shells) drain() {
	for s.conn != nil {
		n, err := s.conn.Read(s.events[:])
		for i := range s.events[:n] {
			s.happened(&s.events[i])
		}
		s.gauges.events.Add(float64(n))
		switch {
		case errors.Is(err, procevents.ErrOverrun):
			s.lost = true
			s.gauges.overruns.Add(1)
		case err != nil:
			s.log.Warn("process events cannot be read, processes are found by looking", "err", err)
			s.unsubscribe()
		case n < len(s.events):
			return
		}
	}
}

func (s *shells) happened(e *procevents.Event) {
	switch e.Kind {
	case procevents.Fork:
		s.forest.Fork(e.Parent, e.Pid, e.At)
	case procevents.Exec:
		s.forest.Exec(e.Pid, e.At)
	case procevents.Exit:
		s.forest.Exit(e.Pid, e.Parent, e.Code, e.At)
	}
}

// tick looks at what no event tells, once in an interval.
func (s *shells) tick(now time.Time) {
	s.arrangeEvents(now)
	s.drain()
	every := checkScan
	switch {
	case s.forest.Runners() == 0:
		every = idleScan
	case s.conn == nil:
		every = 0
	}
	if s.lost || now.Sub(s.scanned) >= every {
		s.scanned = now
		s.scan()
	}
	s.forest.Round()
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
	if err := s.forest.Scan(s.conn == nil || s.first); err != nil {
		s.log.Warn("processes not looked at", "err", err)
	}
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
	sh.start = sh.family.Start
}

// wall turns a time of the kernel's monotonic clock into one of the day.
func wall(at time.Duration) time.Time { return time.Now().Add(at - process.Monotonic()) }

func shellID(pid int) string { return "process-" + strconv.Itoa(pid) }
