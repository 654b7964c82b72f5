package process_test

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/process"
)

func TestFS_Name(t *testing.T) {
	fs := process.Open("/proc")
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	name, err := fs.Name(cmd.Process.Pid)
	if name != "sleep" || err != nil {
		t.Errorf("got %q, %v, want sleep", name, err)
	}
	if name, err := fs.Name(os.Getpid()); name == "" || len(name) > 15 || err != nil {
		t.Errorf("got %q, %v, want a name of its own", name, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if _, err := fs.Name(cmd.Process.Pid); !errors.Is(err, cimeter.ErrGone) {
		t.Errorf("of a process that is gone: %v", err)
	}
}
