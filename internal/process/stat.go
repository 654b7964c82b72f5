package process

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// Stat is what /proc/PID/stat tells of a process (proc_pid_stat(5)).
type Stat struct {
	Pid                int
	Comm               string // at most 15 bytes, the process's own to choose, verbatim
	State              byte   // R running, S sleeping, Z ended and not waited for ...
	Parent             int
	UserTime           time.Duration // of all its threads, in steps of 10 ms
	SystemTime         time.Duration
	ChildrenUserTime   time.Duration // of children it has waited for, and of theirs
	ChildrenSystemTime time.Duration
	Threads            int
	StartTime          uint64 // ticks (1/100 s) since the machine was started
	ResidentBytes      uint64 // pages shared with others count for each of them; off by up to 64 pages a thread
}

// The fields behind the name, counted from 0; proc_pid_stat(5) counts from 3.
const (
	fieldParent             = 1
	fieldUserTime           = 11
	fieldSystemTime         = 12
	fieldChildrenUserTime   = 13
	fieldChildrenSystemTime = 14
	fieldThreads            = 17
	fieldStartTime          = 19
	fieldResident           = 21
	numFields               = 22 // those that we need
)

// parseStat reads the line of /proc/PID/stat:
//
//	1467 ((sd-pam)) S 1465 1465 1465 0 -1 4194624 87 0 0 0 0 0 0 0 20 0 1 0 3315 172462080 896 18446744073709551615 ...
//
// The name may hold spaces, brackets and newlines; no field behind it does, so it
// ends at the last closing bracket.
func parseStat(b []byte) (Stat, error) {
	open, shut := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || shut < open {
		return Stat{}, fmt.Errorf("no name in brackets: %w", cimeter.ErrInvalid)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	if err != nil || pid <= 0 {
		return Stat{}, fmt.Errorf("no pid before the name: %w", cimeter.ErrInvalid)
	}
	s := Stat{Pid: pid, Comm: string(b[open+1 : shut])}
	rest := b[shut+1:]
	for i := range numFields {
		var f []byte
		if f, rest = field(rest); len(f) == 0 {
			return Stat{}, fmt.Errorf("%d fields behind the name, want at least %d: %w", i, numFields, cimeter.ErrInvalid)
		}
		if i == 0 {
			s.State = f[0]
			continue
		}
		var to *time.Duration
		switch i {
		case fieldUserTime:
			to = &s.UserTime
		case fieldSystemTime:
			to = &s.SystemTime
		case fieldChildrenUserTime:
			to = &s.ChildrenUserTime
		case fieldChildrenSystemTime:
			to = &s.ChildrenSystemTime
		case fieldParent, fieldThreads, fieldStartTime, fieldResident:
		default:
			continue
		}
		v, err := strconv.ParseUint(string(f), 10, 63)
		if err == nil && to != nil && v > uint64(1<<63-1)/uint64(tick) {
			err = strconv.ErrRange
		}
		if err != nil {
			return Stat{}, fmt.Errorf("field %d behind the name is no number: %w", i, cimeter.ErrInvalid)
		}
		switch i {
		case fieldParent:
			s.Parent = int(v)
		case fieldThreads:
			s.Threads = int(v)
		case fieldStartTime:
			s.StartTime = v
		case fieldResident:
			s.ResidentBytes = v * uint64(unix.Getpagesize())
		default:
			*to = time.Duration(v) * tick
		}
	}
	return s, nil
}

// field takes a field off b; it is empty when there is none.
func field(b []byte) (f, rest []byte) {
	b = bytes.TrimLeft(b, " \t\n")
	end := bytes.IndexAny(b, " \t\n")
	if end < 0 {
		end = len(b)
	}
	return b[:end], b[end:]
}

// parseStatm returns the second number of /proc/PID/statm, the pages resident:
//
//	4731 1210 903 203 0 873 0
func parseStatm(b []byte) (pages uint64, err error) {
	_, rest := field(b)
	f, _ := field(rest)
	if len(f) == 0 || len(f) > 15 {
		return 0, fmt.Errorf("second field is no number of pages: %w", cimeter.ErrInvalid)
	}
	for _, c := range f {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("second field is no number of pages: %w", cimeter.ErrInvalid)
		}
		pages = pages*10 + uint64(c-'0')
	}
	return pages, nil
}

// parseIO reads /proc/PID/io and ignores lines that it does not know:
//
//	rchar: 323934931
//	wchar: 323929600
//	syscr: 632687
//	syscw: 632675
//	read_bytes: 0
//	write_bytes: 323932160
//	cancelled_write_bytes: 0
func parseIO(b []byte) (IO, error) {
	var io IO
	seen := 0
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte("\n"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		var to *uint64
		switch string(name) {
		case "read_bytes":
			to = &io.ReadBytes
		case "write_bytes":
			to = &io.WriteBytes
		case "syscr":
			to = &io.ReadCalls
		case "syscw":
			to = &io.WriteCalls
		default:
			continue
		}
		v, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
		if err != nil {
			return IO{}, fmt.Errorf("%s is no number: %w", name, cimeter.ErrInvalid)
		}
		*to = v
		seen++
	}
	if seen < 4 {
		return IO{}, fmt.Errorf("%d of 4 lines: %w", seen, cimeter.ErrInvalid)
	}
	return io, nil
}
