package testdocker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Sweep takes away what daemons of earlier test processes left that were
// killed before they could. Daemons of living processes are left alone.
func Sweep(tb testing.TB) {
	tb.Helper()
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), "cimeter-test-*-*"))
	if err != nil {
		tb.Fatalf("listing leftovers: %v", err)
	}
	for _, dir := range dirs {
		parent, netns, orphan := readOwner(dir)
		if !orphan {
			continue
		}
		tb.Logf("taking away the leftovers of an earlier run in %s", dir)
		if err := removeAll(dir, parent, netns); err != nil {
			tb.Logf("taking away leftovers: %v", err)
		}
	}
}

// readOwner reads what belongs to the daemon of dir; orphan is set when the
// process that started it is gone.
func readOwner(dir string) (parent, netns string, orphan bool) {
	b, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if err != nil {
		return "", "", false // not ours, or just being made
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) < 3 {
		return "", "", false
	}
	pid, start, _ := strings.Cut(lines[0], " ")
	n, err := strconv.Atoi(pid)
	if err != nil {
		return "", "", false
	}
	if now, err := startTime(n); err == nil && now == start {
		return "", "", false
	}
	return lines[1], lines[2], true
}

// removeAll ends the processes of a daemon and removes its cgroups, mounts,
// network namespace and folder.
func removeAll(dir, parent, netns string) error {
	var errs []error
	if err := endProcesses(dir, "dockerd", "containerd", "containerd-shim-runc-v2", "containerd-shim-runc-v1"); err != nil {
		errs = append(errs, err)
	}
	if parent != "" {
		if err := removeCgroup(parent); err != nil {
			errs = append(errs, err)
		}
	}
	if err := endProcesses(dir, "dockerd", "containerd", "containerd-shim-runc-v2", "containerd-shim-runc-v1"); err != nil { // shims that outlived their containers
		errs = append(errs, err)
	}
	if err := unmountBelow(dir); err != nil {
		errs = append(errs, err)
	}
	if netns != "" {
		if _, err := os.Stat(netnsPath(netns)); err == nil {
			if err := command("ip", "netns", "delete", netns); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		errs = append(errs, fmt.Errorf("removing the daemon's folder: %w", err))
	}
	return errors.Join(errs...)
}

// endProcesses kills the programs of these names that name dir on their
// command line and waits until they are gone.
func endProcesses(dir string, names ...string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		pids := processesNaming(dir, names)
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("ending the processes of %s: %v are still there", dir, pids)
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("killing process %d of %s: %w", pid, dir, err)
			}
		}
	}
}

// processesNaming lists the programs of these names whose command line names
// dir.
func processesNaming(dir string, names []string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil {
			continue // gone meanwhile
		}
		args := strings.Split(string(b), "\x00")
		if !slices.Contains(names, filepath.Base(args[0])) {
			continue
		}
		if slices.ContainsFunc(args[1:], func(a string) bool { return strings.Contains(a, dir+"/") }) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// unmountBelow takes every mount below dir away, last mounted first.
func unmountBelow(dir string) error {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("listing mounts: %w", err)
	}
	var mounts []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && (f[4] == dir || strings.HasPrefix(f[4], dir+"/")) {
			mounts = append(mounts, f[4])
		}
	}
	slices.Reverse(mounts)
	var errs []error
	for _, m := range mounts {
		err := syscall.Unmount(m, syscall.MNT_DETACH)
		if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("unmounting %s: %w", m, err))
		}
	}
	return errors.Join(errs...)
}
