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
	own, err := fs.Name(os.Getpid())
	if own == "" || len(own) > 15 || err != nil {
		t.Errorf("got %q, %v, want a name of its own", own, err)
	}
	name := own
	for name == own && err == nil { // the kernel lets Start return before it renames
		name, err = fs.Name(cmd.Process.Pid)
	}
	if name != "sleep" || err != nil {
		t.Errorf("got %q, %v, want sleep", name, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if _, err := fs.Name(cmd.Process.Pid); !errors.Is(err, cimeter.ErrGone) {
		t.Errorf("of a process that is gone: %v", err)
	}
}
