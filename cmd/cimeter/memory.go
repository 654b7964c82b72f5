package main

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter/internal/cgroup"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/process"
)

// limitMemory keeps the process under its memory limit, where it has one.
func limitMemory(conf config.Config) {
	limit := int64(conf.Agent.MemoryLimit)
	if limit == 0 {
		limit = ownLimit(conf.Agent) / 10 * 9
	}
	if limit > 0 {
		debug.SetMemoryLimit(limit)
	}
}

// ownLimit returns the memory limit in bytes of the agent's own cgroup, 0 when
// it has none or none can be told.
func ownLimit(conf config.Agent) int64 {
	host, err := cgroup.Open(cgroup.Options{Root: conf.CgroupRoot, Proc: conf.ProcRoot, Sys: conf.SysRoot})
	if err != nil {
		return 0
	}
	defer host.Close()
	b, err := process.Open(conf.ProcRoot).Cgroup(os.Getpid())
	if err != nil {
		return 0
	}
	memberships, err := cgroup.ParseProcCgroup(b)
	if err != nil {
		return 0
	}
	path, ok := host.PathOf(memberships)
	if !ok {
		return 0
	}
	g, err := host.Group(path)
	if err != nil {
		return 0
	}
	defer g.Close()
	return int64(min(g.Limits().MemoryBytes.Value, 1<<62))
}

const (
	// startTime is how long after its start a role is taken to be under way.
	startTime = 5 * time.Second
	// longestRelease is the longest time between two releases.
	longestRelease = 10 * time.Minute
	// garbagePercent is how much garbage there may be beside what is in use once
	// a role is under way: little, for a small heap is collected at little cost.
	garbagePercent = 30
)

// releaseUnused gives back what the process used once, after a time and then after
// ever longer ones.
func releaseUnused(procRoot string, after time.Duration) {
	time.AfterFunc(after, func() {
		debug.SetGCPercent(garbagePercent)
		debug.FreeOSMemory()
		releaseProgram(procRoot)
		releaseUnused(procRoot, min(2*after, longestRelease))
	})
}

// releaseProgram gives back the pages of the program itself: packages'
// initialisation and whatever happens once touch many, and metering few. The kernel
// maps what is needed of them again from its page cache, sixteen at a time, so that
// few faults make many pages.
func releaseProgram(procRoot string) {
	self, err := os.Executable()
	if err != nil {
		return
	}
	f, err := os.Open(filepath.Join(procRoot, "self", "maps"))
	if err != nil {
		return
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		// 00400000-00ae7000 r-xp 00000000 fe:00 9998641    /usr/bin/cimeter (proc(5))
		l := strings.Fields(s.Text())
		if len(l) != 6 || l[5] != self || strings.Contains(l[1], "w") {
			continue // a page that was written to has no other copy
		}
		from, to, _ := strings.Cut(l[0], "-")
		a, err1 := strconv.ParseUint(from, 16, 64)
		b, err2 := strconv.ParseUint(to, 16, 64)
		if err1 != nil || err2 != nil || b <= a {
			continue
		}
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(a), uintptr(b-a), unix.MADV_DONTNEED) // refused: nothing is gained
	}
}
