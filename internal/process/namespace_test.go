package process_test

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/process"
)

func TestFS_OwnPids(t *testing.T) {
	fs := process.Open("")
	if own, err := fs.OwnPids(os.Getpid()); err != nil || own {
		t.Errorf("of this process: %v, %v, want none of its own", own, err)
	}
	if os.Geteuid() == 0 {
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if own, err := fs.OwnPids(cmd.Process.Pid); err != nil || !own {
			t.Errorf("of process 1 of a namespace: %v, %v, want its own", own, err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	}
	if _, err := fs.OwnPids(1 << 30); !errors.Is(err, cimeter.ErrGone) {
		t.Errorf("of no process: %v, want ErrGone", err)
	}
}
