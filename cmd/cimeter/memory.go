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
		debug.SetGCPercent(garbagePercent) // what is mapped of the program counts too
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
	// releaseEvery is the time between two releases of the program's pages.
	releaseEvery = 5 * time.Second
	// garbagePercent is how much garbage there may be beside what is in use once
	// a role is under way: little, for a small heap is collected at little cost.
	garbagePercent = 30
)

// releaseUnused gives back what only the start needed, and from then on the pages of
// the program that something has mapped which does not happen all the time.
func releaseUnused(procRoot string) {
	time.AfterFunc(startTime, func() {
		debug.SetGCPercent(garbagePercent)
		debug.FreeOSMemory()
		releaseOften(programPages(procRoot))
	})
}

func releaseOften(mapped []pages) {
	releasePages(mapped)
	time.AfterFunc(releaseEvery, func() { releaseOften(mapped) })
}

// pages are a part of the address space, in bytes.
type pages struct{ from, size uintptr }

// programPages returns where the program itself is mapped and only read: packages'
// initialisation and whatever happens once touch many of its pages, metering few.
func programPages(procRoot string) (mapped []pages) {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	f, err := os.Open(filepath.Join(procRoot, "self", "maps"))
	if err != nil {
		return nil
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
		if err1 == nil && err2 == nil && b > a {
			mapped = append(mapped, pages{uintptr(a), uintptr(b - a)})
		}
	}
	return mapped
}

// releasePages gives pages back. The kernel maps what is needed of them again from
// its page cache, sixteen at a time, so that few faults make many pages.
func releasePages(mapped []pages) {
	for _, p := range mapped {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, p.from, p.size, unix.MADV_DONTNEED) // refused: nothing is gained
	}
}
