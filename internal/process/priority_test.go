package process_test

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/process"
)

// TestFS_SetNice runs in a child: this process goes on with other tests.
func TestFS_SetNice(t *testing.T) {
	const variable = "CIMETER_TEST_NICE"
	if os.Getenv(variable) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^TestFS_SetNice$", "-test.v")
		cmd.Env = append(os.Environ(), variable+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	fs := process.Open("/proc")
	if err := fs.SetNice(7); err != nil {
		t.Fatal(err)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			t.Fatal(err)
		}
		// The system call returns 20 - nice (getpriority(2), C library/kernel differences).
		if raw, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err != nil || raw != 13 {
			t.Errorf("thread %d: nice value %d, %v; want 7", tid, 20-raw, err)
		}
	}
	if err := fs.SetNice(-5); err != nil && !errors.Is(err, cimeter.ErrUnauthorized) {
		t.Errorf("error %v, want none or unauthorized", err)
	}
}
