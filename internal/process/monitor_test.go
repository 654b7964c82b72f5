package process_test

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/process"
)

// One thread, the runtime's first, is woken late; all others as before.
func TestFS_SetMonitorSlack(t *testing.T) {
	fs := process.Open("")
	if err := fs.SetMonitorSlack(2 * time.Millisecond); err != nil {
		if errors.Is(err, cimeter.ErrUnauthorized) && os.Getuid() != 0 {
			return // nothing changed; only root may
		}
		t.Fatal(err)
	}
	defer func() {
		if err := fs.SetMonitorSlack(50 * time.Microsecond); err != nil {
			t.Error(err)
		}
	}()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	var tids []int
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		tids = append(tids, tid)
	}
	slices.Sort(tids)
	for i, tid := range tids {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/timerslack_ns")
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		if late := strings.TrimSpace(string(b)) == "2000000"; late != (i == 1) {
			t.Errorf("thread %d of %d has a slack of %s ns", i, len(tids), b)
		}
	}
}
