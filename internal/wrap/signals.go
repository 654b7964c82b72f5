package wrap

import (
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// signals keeps this process alive through the signals that are meant for the
// command and passes on those that do not reach it by themselves.
type signals struct {
	ch chan os.Signal

	mu    sync.Mutex
	child *child // nil when there is none any more
}

// forwarded are the signals that others send to a process by its id. The stop
// signals (TSTP, TTIN, TTOU) are left alone: they stop this process with the
// command, as a shell's job control expects.
var forwarded = [...]os.Signal{
	syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGWINCH, syscall.SIGALRM,
}

// catch begins to hold signals for a command that is about to start. A signal
// that this process was started to ignore stays ignored, here and in the
// command. SIGPIPE is only held: a reader of the summary that is gone must not
// change the exit status.
func catch() *signals {
	s := &signals{ch: make(chan os.Signal, 64)}
	held := []os.Signal{syscall.SIGPIPE}
	for _, sig := range forwarded {
		if !signal.Ignored(sig) {
			held = append(held, sig)
		}
	}
	if signal.Ignored(syscall.SIGINT) {
		// A shell without job control starts a background command with both
		// ignored. Go's runtime hides that from everyone for SIGQUIT.
		signal.Ignore(syscall.SIGQUIT)
		held = slices.DeleteFunc(held, func(sig os.Signal) bool { return sig == syscall.SIGQUIT })
	}
	signal.Notify(s.ch, held...)
	return s
}

// forward passes signals on to the command until end is called.
func (s *signals) forward(c *child) {
	s.child = c
	go func() {
		for sig := range s.ch {
			if n, ok := sig.(syscall.Signal); ok && n != syscall.SIGPIPE && !(fromTerminal(n) && foreground()) {
				s.pass(n)
			}
		}
	}()
}

func (s *signals) pass(n syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child != nil {
		s.child.signal(n)
	}
}

// end stops the passing on. Signals stay held, until this process ends: what
// comes now comes too late for the command and must not cut off the summary.
func (s *signals) end() {
	s.mu.Lock()
	s.child = nil
	s.mu.Unlock()
}

// standAside moves this process out of the process group that it shares with
// the command, so that a signal to the whole group reaches the command once, and
// not a second time from here. What is sent to this process alone is passed on
// as before, and a killed group leaves somebody to tell the tale.
//
// It stays where its parent is of another group, as a shell with job control
// is: that waits for this process to stop with the command on Ctrl-Z. There a
// command gets a signal to the group, but for those of the terminal, twice, as
// it does from timeout(1).
func standAside() {
	parent := os.Getppid()
	if parent <= 0 { // in another pid namespace
		return
	}
	if group, err := unix.Getpgid(parent); err != nil || group != unix.Getpgrp() {
		return
	}
	// A terminal may stop whoever writes to it from the background.
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.Setpgid(0, 0)
}

// signal sends sig to the command. It may be gone already; its pidfd then
// keeps the signal from whoever has its number now.
func (c *child) signal(sig syscall.Signal) {
	if c.pidfd >= 0 && unix.PidfdSendSignal(c.pidfd, sig, nil, 0) != unix.ENOSYS {
		return
	}
	_ = syscall.Kill(c.pid, sig)
}

// fromTerminal reports whether a terminal sends sig to its whole foreground
// process group, the command included.
func fromTerminal(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGCONT:
		return true
	}
	return false
}

// foreground reports whether this process (and with it the command) is in the
// foreground of a terminal.
func foreground() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	pgrp, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && pgrp == unix.Getpgrp()
}

// Die ends this process by sig, so that whoever waits for it sees what they
// would have seen of the command. It returns when that cannot be done.
func Die(sig syscall.Signal) {
	runtime.LockOSThread()
	// No core of ours beside the command's.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	// Go's own handlers turn some signals into a trace and exit 2: give sig its
	// default action behind the runtime's back, and unblock it on this thread.
	// All zero is SIG_DFL without flags in every layout of struct sigaction.
	var action [64]byte
	set := uint64(1) << (uint(sig) - 1)
	const setSize = 8
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, setSize, 0, 0)
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_UNBLOCK, uintptr(unsafe.Pointer(&set)), 0, setSize, 0, 0)
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig)
	time.Sleep(100 * time.Millisecond) // the kernel acts on return from the call; this is for signals that do not kill
}
