package testdocker

import (
	"bufio"
	"bytes"
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

// hierarchy is one mounted cgroup hierarchy.
type hierarchy struct {
	mount   string // mount point
	v2      bool
	options string // of the file system: the controllers, for v1
}

// hierarchies lists what /proc/self/mountinfo mounts (proc(5)).
func hierarchies() ([]hierarchy, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("listing cgroup mounts: %w", err)
	}
	var all []hierarchy
	for line := range strings.Lines(string(b)) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 || l[3] != "/" {
			continue
		}
		switch r[0] {
		case "cgroup", "cgroup2":
			all = append(all, hierarchy{mount: l[4], v2: r[0] == "cgroup2", options: r[2]})
		}
	}
	return all, nil
}

// has reports whether a v1 hierarchy has the controller.
func (h hierarchy) has(controller string) bool {
	return !h.v2 && slices.Contains(strings.Split(h.options, ","), controller)
}

// CPU is the CPU time that all containers below the daemon's parent cgroup
// have used, those that are gone included: the kernel's own truth. It is 0
// before the first container.
func (d *Daemon) CPU() (time.Duration, error) { return CgroupCPU(d.parent) }

// Cgroups lists the cgroups of containers below the daemon's parent cgroup, in
// every hierarchy, with their processes: for messages.
func (d *Daemon) Cgroups() []string {
	var all []string
	for _, dir := range folders(d.parent) {
		if len(filepath.Base(dir)) != 64 {
			continue // a parent
		}
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue // gone meanwhile
		}
		all = append(all, fmt.Sprintf("%s %v", dir, strings.Fields(string(b))))
	}
	return all
}

// CgroupCPU is the CPU time used in a cgroup and below it, ever.
func CgroupCPU(path string) (time.Duration, error) {
	all, err := hierarchies()
	if err != nil {
		return 0, err
	}
	for _, h := range all { // v1 first: on a hybrid machine it is where runtimes book
		if h.has("cpuacct") {
			n, err := readUint(filepath.Join(h.mount, path, "cpuacct.usage"))
			return time.Duration(n), absentIsZero(err)
		}
	}
	for _, h := range all {
		if !h.v2 {
			continue
		}
		n, err := readKey(filepath.Join(h.mount, path, "cpu.stat"), "usage_usec")
		return time.Duration(n) * time.Microsecond, absentIsZero(err)
	}
	return 0, errors.New("reading the CPU time of a cgroup: no hierarchy with cpuacct and no cgroup2 is mounted")
}

// absentIsZero forgives a cgroup that nothing was ever put in.
func absentIsZero(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// V2 reports whether containers are booked in cgroup v2 here.
func V2() (bool, error) {
	all, err := hierarchies()
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(all, func(h hierarchy) bool { return h.has("memory") || h.has("cpuacct") }), nil
}

func readUint(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
}

func readKey(path, key string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			return strconv.ParseUint(f[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("reading %s: no %s", path, key)
}

// folders lists a cgroup and all below it in every hierarchy, deepest first.
func folders(path string) []string {
	all, err := hierarchies()
	if err != nil || path == "" || path == "/" {
		return nil
	}
	var dirs []string
	for _, h := range all {
		_ = filepath.WalkDir(filepath.Join(h.mount, path), func(p string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, p)
			}
			return nil // what vanishes while walking needs no removal
		})
	}
	slices.Sort(dirs)
	slices.Reverse(dirs)
	return dirs
}

// killCgroup kills every process below a cgroup.
func killCgroup(path string) error {
	var errs []error
	for _, dir := range folders(path) {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue // gone meanwhile, or a threaded folder: the next round sees its domain
		}
		s := bufio.NewScanner(bytes.NewReader(b))
		for s.Scan() {
			pid, err := strconv.Atoi(s.Text())
			if err != nil || pid <= 1 || pid == os.Getpid() {
				continue
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				errs = append(errs, fmt.Errorf("killing process %d of cgroup %s: %w", pid, dir, err))
			}
		}
	}
	return errors.Join(errs...)
}

// removeCgroup kills what is in a cgroup and removes it everywhere.
func removeCgroup(path string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		var failed error
		if err := killCgroup(path); err != nil {
			failed = err
		}
		for _, dir := range folders(path) {
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = err
			}
		}
		if failed == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("removing cgroup %s: %w", path, failed)
		}
	}
}
