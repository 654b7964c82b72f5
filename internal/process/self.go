package process

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Self tells what the calling process itself uses, without allocating. Make it
// with FS.Self. It is not safe for concurrent use.
type Self struct{ statm int }

// Self opens what tells of the calling process. The error says why its memory
// cannot be told.
func (fs *FS) Self() (*Self, error) {
	fd, err := retry(func() (int, error) { return unix.Open(fs.proc+"/self/statm", unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return &Self{statm: -1}, fmt.Errorf("read own memory: %w", kind(err))
	}
	return &Self{statm: fd}, nil
}

// CPU returns the CPU time, user and system, of all threads (getrusage(2)).
func (s *Self) CPU() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read own CPU time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// Resident returns the bytes that the process has resident.
func (s *Self) Resident() (uint64, error) {
	var buf [128]byte
	n, err := unix.Pread(s.statm, buf[:], 0)
	if err != nil {
		return 0, fmt.Errorf("read own memory: %w", err)
	}
	pages, err := parseStatm(buf[:n])
	if err != nil {
		return 0, fmt.Errorf("parse own statm: %w", err)
	}
	return pages * uint64(unix.Getpagesize()), nil
}

// Close gives the descriptor back.
func (s *Self) Close() {
	if s.statm >= 0 {
		unix.Close(s.statm)
		s.statm = -1
	}
}
