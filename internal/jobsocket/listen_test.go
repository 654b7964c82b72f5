package jobsocket_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/jobsocket"
)

func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "job-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestListen(t *testing.T) {
	path := filepath.Join(folder(t), "a", "s")
	l, err := jobsocket.Listen(path, 0o620)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(path); err != nil || st.Mode() != fs.ModeSocket|0o620 {
		t.Errorf("%v, %v: want a socket of mode 0620", st, err)
	}
	if _, err := jobsocket.Listen(path, 0o666); !errors.Is(err, cimeter.ErrConflict) {
		t.Errorf("a second one: got %v, want a conflict", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// What a killed agent leaves is replaced; its end removes nothing of a later one.
func TestListen_Stale(t *testing.T) {
	path := filepath.Join(folder(t), "s")
	for range 2 { // a socket, and one beside it that was never moved
		old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		old.SetUnlinkOnClose(false)
		old.Close()
		if err := os.Link(path, path+".new"); err != nil {
			t.Fatal(err)
		}
		first, err := jobsocket.Listen(path, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path, path+".moved"); err != nil {
			t.Fatal(err)
		}
		second, err := jobsocket.Listen(path, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		first.Close()
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("the end of the first removed the second: %v", err)
		}
		second.Close()
	}
}

func TestListen_Failure(t *testing.T) {
	dir := folder(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		file: cimeter.ErrConflict, dir: cimeter.ErrConflict, "/" + strings.Repeat("x", 120): cimeter.ErrInvalid, file + "/s": nil,
	} {
		l, err := jobsocket.Listen(path, 0o666)
		if l != nil || err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%.40s: got %v, want %v", path, err, want)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
		t.Errorf("the file is %q, %v", b, err)
	}
}
