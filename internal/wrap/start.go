package wrap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// The exit codes of a shell for a command that it cannot run.
const (
	exitCannotRun = 126
	exitNotFound  = 127
)

// StartError says that the command could not be started, with the exit code
// that a shell gives for it.
type StartError struct {
	Command string // as it was asked for
	Err     error
	Code    int // 126 or 127
}

func (e *StartError) Error() string { return fmt.Sprintf("%s: %v", e.Command, e.Err) }

// Unwrap returns what the kernel said.
func (e *StartError) Unwrap() error { return e.Err }

// defaultPath is where execvp(3) looks when PATH is not set.
const defaultPath = "/bin:/usr/bin"

// find returns the files that command may mean, in the order in which
// execvp(3) tries them.
func find(command, path string, pathSet bool) []string {
	if strings.Contains(command, "/") {
		return []string{command}
	}
	if command == "" {
		return nil
	}
	if !pathSet {
		path = defaultPath
	}
	var files []string
	for _, dir := range strings.Split(path, ":") {
		if dir == "" {
			dir = "."
		}
		f := dir + "/" + command
		var st unix.Stat_t
		if unix.Stat(f, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			files = append(files, f)
		}
	}
	return files
}

// child is the running command.
type child struct {
	pid   int
	pidfd int // -1 where the kernel has none (before 5.2)
}

// ending is how the command ended.
type ending struct {
	status syscall.WaitStatus
	spent  spent // by the command and by all it waited for
	err    error
}

// starter starts a command from a thread that stands in the cgroups of a nest,
// and waits for it. The command is killed when that thread ends: it must be
// locked, and live as long as this process.
type starter struct {
	argv  []string
	env   []string
	files []string // to try, in order
	nest  *nest    // nil: no cgroup
	// reap has all orphans of the command waited for too (the process must be a
	// subreaper) and gets what each spent.
	reap func(spent)
}

// start puts the calling thread into the cgroups, starts the command there and
// takes the thread back. It returns when the command runs, or could not be run. On v1 a child starts in its parent's cgroups; on a
// unified hierarchy it is cloned into one (Linux 5.7).
func (s *starter) start() (c *child, missed []string, err error) {
	c = &child{pidfd: -1}
	sys := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, PidFD: &c.pidfd}
	var back []string
	if s.nest != nil {
		kept := s.nest.places[:0]
		for _, p := range s.nest.places {
			if p.unified {
				fd, err := unix.Open(p.joined, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
				if err != nil {
					missed = append(missed, fmt.Sprintf("open cgroup: %v", err))
					removeTree(p.made)
					continue
				}
				defer unix.Close(fd)
				sys.UseCgroupFD, sys.CgroupFD = true, fd
			} else {
				// "0" is the calling thread. Named so, the kernel need not lock out
				// forks of the whole machine, which takes a grace period of some 10 ms.
				if err := write(filepath.Join(p.joined, "tasks"), "0"); err != nil {
					missed = append(missed, fmt.Sprintf("join cgroup: %s", reason(err)))
					removeTree(p.made)
					continue
				}
				back = append(back, filepath.Join(p.dir(), "tasks"))
			}
			kept = append(kept, p)
		}
		s.nest.places = kept
		defer func() {
			for _, f := range back {
				_ = write(f, "0") // left inside, the thread keeps the cgroup until it ends
			}
		}()
	}
	c.pid, err = s.exec(sys)
	if err != nil && sys.UseCgroupFD && !isExecError(err) {
		missed = append(missed, fmt.Sprintf("clone into cgroup: %v", err))
		sys.UseCgroupFD = false
		s.nest.dropUnified()
		c.pid, err = s.exec(sys)
	}
	if errors.Is(err, unix.EINVAL) { // from an emulator of another processor (qemu-user), which makes no pidfd
		sys.PidFD, c.pidfd = nil, -1
		c.pid, err = s.exec(sys)
	}
	return c, missed, err
}

// dropUnified gives up the cgroup of the unified hierarchy.
func (n *nest) dropUnified() {
	kept := n.places[:0]
	for _, p := range n.places {
		if p.unified {
			removeTree(p.made)
			continue
		}
		kept = append(kept, p)
	}
	n.places = kept
}

// isExecError reports whether err can come from finding or executing a file,
// and not from clone3 into a cgroup.
func isExecError(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.ENOTDIR, unix.ENOEXEC, unix.EISDIR, unix.ELOOP, unix.ENAMETOOLONG, unix.E2BIG, unix.ETXTBSY} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// exec starts the first of s.files that the kernel takes, as execvp(3) does: a
// file that is no program is given to the shell.
func (s *starter) exec(sys *syscall.SysProcAttr) (int, error) {
	attr := &syscall.ProcAttr{Env: s.env, Files: []uintptr{0, 1, 2}, Sys: sys}
	var denied error
	for _, f := range s.files {
		pid, err := syscall.ForkExec(f, s.argv, attr)
		if err == syscall.ENOEXEC {
			pid, err = syscall.ForkExec("/bin/sh", append([]string{"sh", f}, s.argv[1:]...), attr)
		}
		switch {
		case err == nil:
			return pid, nil
		case err == syscall.EACCES:
			denied = err // a later one may be allowed
		case err == syscall.ENOENT && len(s.files) > 1:
		default:
			return 0, err
		}
	}
	if denied != nil {
		return 0, denied
	}
	return 0, syscall.ENOENT
}

// wait waits for the command, and for its orphans when they are reaped.
func (s *starter) wait(pid int) ending {
	who := pid
	if s.reap != nil {
		who = -1
	}
	for {
		var st syscall.WaitStatus
		var ru syscall.Rusage
		got, err := syscall.Wait4(who, &st, 0, &ru)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return ending{err: fmt.Errorf("wait for the command: %w", err)}
		case got == pid:
			e := ending{status: st, spent: spentOf(&ru)}
			for s.reap != nil {
				got, err := syscall.Wait4(-1, &st, syscall.WNOHANG, &ru)
				if err == syscall.EINTR {
					continue
				}
				if err != nil || got <= 0 {
					break
				}
				s.reap(spentOf(&ru))
			}
			return e
		default:
			s.reap(spentOf(&ru))
		}
	}
}

// spent is what wait4(2) says that a process and all it waited for spent.
type spent struct {
	user, system int64 // nanoseconds
	read, write  int64 // bytes of block IO
	resident     int64 // bytes: largest resident set of one process
}

// spentOf converts ru: times in microseconds, blocks of 512 bytes, KiB.
func spentOf(ru *syscall.Rusage) spent {
	return spent{
		user: ru.Utime.Nano(), system: ru.Stime.Nano(),
		read: int64(ru.Inblock) * 512, write: int64(ru.Oublock) * 512,
		resident: int64(ru.Maxrss) * 1024,
	}
}

// add adds o.
func (s *spent) add(o spent) {
	s.user += o.user
	s.system += o.system
	s.read += o.read
	s.write += o.write
	s.resident = max(s.resident, o.resident)
}

// setIO sets the counters of block IO.
func (s *spent) setIO(into *cimeter.Sample) {
	into.SetCounter(cimeter.IOReadBytes, uint64(s.read))
	into.SetCounter(cimeter.IOWriteBytes, uint64(s.write))
}

// startError gives err the exit code of a shell.
func startError(command string, err error) *StartError {
	code := exitCannotRun
	if errors.Is(err, os.ErrNotExist) {
		code = exitNotFound
		if !strings.Contains(command, "/") {
			err = errors.New("command not found")
		}
	}
	return &StartError{Command: command, Err: err, Code: code}
}
