package records_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cimeter/cimeter/internal/records"
)

// TestMain is also the process that the tests kill, starve and cut off. It
// writes builds from a number on, each a checkpoint and then a record, and
// tells on its standard output what was acknowledged, before it goes on.
func TestMain(m *testing.M) {
	if dir := os.Getenv("RECORDS_CHILD_DIR"); dir != "" {
		if err := child(dir); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(dir string) error {
	runtime.LockOSThread() // strace counts the calls of each thread
	number := func(name string) int {
		n, _ := strconv.Atoi(os.Getenv(name))
		return n
	}
	first, count := number("RECORDS_CHILD_FIRST"), number("RECORDS_CHILD_COUNT")
	killStep, killAt := os.Getenv("RECORDS_CHILD_KILL_STEP"), number("RECORDS_CHILD_KILL_AT")
	step := func(s string) error {
		if s == killStep {
			if killAt--; killAt == 0 {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
		return nil
	}
	o := records.Options{Dir: dir, MaxRecords: number("RECORDS_CHILD_MAX"), Fault: step}
	d, err := records.Open(o)
	if err != nil && count > 0 {
		fmt.Println("failed open", err)
		d, err = records.Open(o)
	}
	if err != nil {
		return err
	}
	try := func(what string, n int, f func() error) error {
		err := f()
		if err != nil && count > 0 { // a fault that goes away: what failed must work the next time
			fmt.Println("failed", what, n, err)
			err = f()
		}
		if err == nil {
			fmt.Println(what, n)
		}
		return err
	}
	for n := first; count == 0 || n < first+count; n++ {
		if err := errors.Join(
			try("checkpoint", n, func() error { return d.Checkpoint(key(n), []byte(key(n))) }),
			try("put", n, func() error { return d.Put(record(n)) }),
			try("drop", n, func() error { return d.DropCheckpoint(key(n)) }),
		); err != nil {
			return err
		}
	}
	return nil
}

// truth is what a child told.
type truth struct {
	put, checkpoint map[int]bool
	failed          []string
	last            int // the highest number it told of
}

func readTruth(out string) truth {
	t := truth{put: map[int]bool{}, checkpoint: map[int]bool{}, last: -1}
	s := bufio.NewScanner(strings.NewReader(out))
	for s.Scan() {
		what, rest, _ := strings.Cut(s.Text(), " ")
		n, err := strconv.Atoi(rest)
		switch {
		case what == "failed":
			t.failed = append(t.failed, rest)
		case err != nil: // "error ...", or cut off by the kill
		case what == "put":
			t.put[n] = true
		case what == "checkpoint":
			t.checkpoint[n] = true
		}
		if err == nil {
			t.last = max(t.last, n)
		}
	}
	return t
}
