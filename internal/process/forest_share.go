package process

import (
	"bytes"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

const (
	// shareBudget is the CPU time that a round may take for asking what processes
	// share, on average, and shareSaved how much of it can be saved up. The kernel walks
	// the page tables of a process for it: 10 µs, and 15 µs more for each MiB resident.
	shareBudget = 500 * time.Microsecond
	shareSaved  = 20 * shareBudget
	// shareRounds is after how many rounds a process is asked again, unless it has
	// grown or shrunk by a quarter before.
	shareRounds = 10
)

// Proportional reports whether most of the family's memory was told less what its
// processes share, with others and each other (Pss, proc_pid_smaps(5)), and not as
// what each has resident (Rss).
func (f *Family) Proportional() bool { return f.divided*2 > f.whole }

// memory returns the bytes that the process has resident, less what it shares as
// far as that was asked for.
func (n *treeNode) memory() uint64 { return n.resident - min(n.resident, n.shared) }

// shares asks what processes share, as many as the budget allows; which of those
// that are due is left to chance.
func (f *Forest) shares() {
	if f.noShares {
		return
	}
	f.shareLeft = min(f.shareLeft+shareBudget, shareSaved)
	for _, n := range f.nodes {
		if f.shareLeft <= 0 {
			return
		}
		if !n.runner && !n.contained && n.rounds > 1 && f.shareDue(n) {
			before := ThreadTime()
			f.askShare(n)
			f.shareLeft -= max(ThreadTime()-before, time.Microsecond)
		}
	}
}

// shareDue reports whether a process is to be asked: one that lives for more than a
// round, and what is known of it is old.
func (f *Forest) shareDue(n *treeNode) bool {
	if n.shareRound == 0 || f.rounds-n.shareRound >= shareRounds {
		return true
	}
	change := max(n.resident, n.shareOf) - min(n.resident, n.shareOf)
	return change > n.shareOf/4+1<<20
}

func (f *Forest) askShare(n *treeNode) {
	n.shareRound, n.shareOf = f.rounds, n.resident
	b, err := f.file(n.pid, "smaps_rollup")
	if err != nil {
		return // it has ended, or is another user's and may not be read
	}
	if len(b) == 0 {
		return // it is ending: it has no memory any more
	}
	rss, pss, err := parseRollup(b)
	if err != nil {
		f.noShares = true // a kernel that tells something else
		return
	}
	n.shared, n.divided = rss-min(rss, pss), true
}

// parseRollup returns what /proc/PID/smaps_rollup (Linux 4.14) tells, in bytes:
//
//	55d9b3e84000-7ffcd96f4000 ---p 00000000 00:00 0                          [rollup]
//	Rss:                1696 kB
//	Pss:                 173 kB
func parseRollup(b []byte) (rss, pss uint64, err error) {
	seen := 0
	for len(b) > 0 && seen < 2 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte("\n"))
		var to *uint64
		switch {
		case bytes.HasPrefix(line, []byte("Rss:")):
			to = &rss
		case bytes.HasPrefix(line, []byte("Pss:")):
			to = &pss
		default:
			continue
		}
		field, rest := nextField(line[len("Rss:"):])
		unit, _ := nextField(rest)
		if len(field) == 0 || len(field) > 15 || string(unit) != "kB" || decimal(field) == 0 && string(field) != "0" {
			return 0, 0, fmt.Errorf("%.40q: want a number of kB: %w", line, cimeter.ErrInvalid)
		}
		*to = decimal(field) << 10
		seen++
	}
	if seen < 2 {
		return 0, 0, fmt.Errorf("%d of 2 lines: %w", seen, cimeter.ErrInvalid)
	}
	return rss, pss, nil
}

// ThreadTime is the CPU time of the calling thread. A goroutine that is not locked to one
// may be on another when it asks again.
func ThreadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // never fails
	return time.Duration(t.Nano())
}
