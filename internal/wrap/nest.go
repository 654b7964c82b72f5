package wrap

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// prefix begins the name of every cgroup that a run makes:
// cimeter-run-<pid>-<inode of the pid namespace>-<random>.
const prefix = "cimeter-run-"

// inner is the cgroup below the run's own in which its command starts on a
// unified hierarchy. There a cgroup with controllers for its children may hold
// no process (the kernel's no-internal-process rule); with the command one
// level down, runs inside the command can have cgroups beside it that still
// count towards this run.
const inner = "main"

// nest is the set of cgroups, one in each hierarchy, made for one command.
type nest struct {
	places []place
	self   selfMove
	onV1   bool     // CPU time is counted by the v1 controller
	io     bool     // block IO is counted by the io controller of a unified hierarchy
	missed []string // what could not be made, for people
}

// place is one made cgroup.
type place struct {
	hierarchy
	parent string // the folder it was made in
	made   string // folder of the run's own cgroup
	joined string // folder that the command is put in: made, or inner below it
}

// paths returns where the run's cgroups are below their mount points, each once.
func (n *nest) paths() []string {
	var paths []string
	for _, p := range n.places {
		rel, err := filepath.Rel(p.mount, p.made)
		if err != nil {
			continue
		}
		if rel = "/" + rel; !slices.Contains(paths, rel) {
			paths = append(paths, rel)
		}
	}
	return paths
}

// has reports whether the nest covers controller, by v1 or by a unified
// hierarchy that has it.
func (n *nest) has(controller string) bool {
	return slices.ContainsFunc(n.places, func(p place) bool { return p.hasController(controller) })
}

func (p *place) hasController(name string) bool {
	return slices.Contains(p.controllers, name) ||
		p.unified && slices.Contains(words(filepath.Join(p.made, "cgroup.controllers")), name)
}

// countsCPU reports whether the nest counts CPU time: by cpuacct on v1, by the
// cpu.stat of any unified cgroup elsewhere.
func (n *nest) countsCPU() bool {
	return slices.ContainsFunc(n.places, func(p place) bool {
		return p.unified && !n.onV1 || slices.Contains(p.controllers, "cpuacct")
	})
}

// nestName returns a new name; pid and ns tell a later run whether its maker
// is gone.
func nestName(pid int, ns uint64) string {
	var b [6]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return fmt.Sprintf("%s%d-%x-%s", prefix, pid, ns, hex.EncodeToString(b[:]))
}

// pidNamespace returns the inode of the own pid namespace, 0 when not known.
func pidNamespace(proc string) uint64 {
	fi, err := os.Stat(filepath.Join(proc, "self/ns/pid"))
	if err != nil {
		return 0
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// makeNest makes a cgroup called name in every hierarchy of hs where that may
// be done. It fails when CPU time would not be counted by what could be made;
// then nothing is left behind.
func makeNest(hs []hierarchy, name string) (*nest, error) {
	n := &nest{}
	n.onV1 = slices.ContainsFunc(hs, func(h hierarchy) bool { return slices.Contains(h.controllers, "cpuacct") })
	for _, h := range hs {
		if h.unified {
			if err := n.makeUnified(h, name); err != nil {
				n.missed = append(n.missed, reason(err))
			}
			continue
		}
		made := filepath.Join(h.dir(), name)
		if err := os.Mkdir(made, 0o755); err != nil {
			n.missed = append(n.missed, reason(err))
			continue
		}
		n.places = append(n.places, place{hierarchy: h, parent: h.dir(), made: made, joined: made})
	}
	if !n.countsCPU() {
		n.remove()
		return nil, fmt.Errorf("make a cgroup: %s", why(n.missed, "none that counts CPU time"))
	}
	n.io = slices.ContainsFunc(n.places, func(p place) bool { return p.unified && p.hasController("io") })
	return n, nil
}

// processes returns how many processes live in the run's cgroups.
func (n *nest) processes() int {
	most := 0
	for _, p := range n.places {
		// Any one hierarchy has them all, but for one that the command left itself.
		if slices.Contains(p.controllers, "cpuacct") || p.unified {
			most = max(most, countProcesses(p.made))
		}
	}
	return most
}

func countProcesses(dir string) int {
	count := len(words(filepath.Join(dir, "cgroup.procs")))
	for _, sub := range folders(dir) {
		count += countProcesses(sub)
	}
	return count
}

// folders returns the cgroups directly below dir. Its link count tells whether
// there are any.
func folders(dir string) []string {
	var st syscall.Stat_t
	if syscall.Stat(dir, &st) != nil || st.Nlink == 2 {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var subs []string
	for _, e := range entries {
		if e.IsDir() {
			subs = append(subs, filepath.Join(dir, e.Name()))
		}
	}
	return subs
}

// remove takes the run's cgroups away, deepest first, and undoes the rest. A
// cgroup that still has processes stays for a later run's sweep.
func (n *nest) remove() {
	for _, p := range n.places {
		removeTree(p.made)
	}
	n.self.undo()
	n.places = nil
}

// removeTree removes the cgroup dir and all below it, deepest first. The kernel
// lets go of a cgroup a moment after its last process was waited for.
func removeTree(dir string) {
	for try := range 5 {
		for _, sub := range folders(dir) {
			removeTree(sub)
		}
		err := syscall.Rmdir(dir)
		if err != syscall.EBUSY || len(words(filepath.Join(dir, "cgroup.procs"))) > 0 {
			return
		}
		time.Sleep(time.Duration(1<<try) * time.Millisecond / 2)
	}
}

// sweep removes what runs of this pid namespace that were killed left behind
// in the folders of n. A cgroup that still has processes stays.
func (n *nest) sweep(ns uint64) {
	for _, p := range n.places {
		entries, err := os.ReadDir(p.parent)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if pid, ok := maker(e.Name(), ns); ok && e.IsDir() && syscall.Kill(pid, 0) == syscall.ESRCH {
				removeTree(filepath.Join(p.parent, e.Name()))
			}
		}
	}
}

// maker returns the pid of the run that made the cgroup name; false when it is
// of another pid namespace or not a run's.
func maker(name string, ns uint64) (int, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	f := strings.Split(strings.TrimSuffix(rest, "-self"), "-")
	if !ok || len(f) != 3 || ns == 0 || f[1] != strconv.FormatUint(ns, 16) {
		return 0, false
	}
	pid, err := strconv.Atoi(f[0])
	return pid, err == nil && pid > 0
}

// words returns the words of a small kernel file, none when it cannot be read.
// It asks the kernel directly: package os would first offer the file to epoll.
func words(path string) []string {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	b := make([]byte, 0, 512)
	for {
		b = slices.Grow(b, 512)
		n, err := syscall.Read(fd, b[len(b):cap(b)])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return nil
		}
		if n == 0 {
			return strings.Fields(string(b))
		}
		b = b[:len(b)+n]
	}
}

// writable reports whether this process may write path, by its effective ids.
func writable(path string) bool {
	const wOK, atEAccess = 2, 0x200
	return syscall.Faccessat(atFDCWD, path, wOK, atEAccess) == nil
}

const atFDCWD = -0x64

// write writes s to a kernel file in one call.
func write(path, s string) error {
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = syscall.Write(fd, []byte(s))
	return errors.Join(err, syscall.Close(fd))
}

// reason is what the kernel said, without the path: a person cannot act on a
// random name.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}
