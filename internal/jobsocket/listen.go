package jobsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cimeter/cimeter"
)

// maxPath is the longest path that fits a unix address, and what is put behind
// it while the socket is made.
const (
	maxPath   = 107 - len(newSuffix)
	newSuffix = ".new"
)

// Listener is the socket's file.
type Listener struct {
	*net.UnixListener
	path string
	id   os.FileInfo
}

// Listen makes the socket with the given mode, and its folder where there is
// none. A socket that nobody listens on any more is replaced in one step, so
// that a job finds the old or the new one. The error wraps
// [cimeter.ErrConflict] when somebody listens there or the path is something
// else.
func Listen(path string, mode os.FileMode) (_ *Listener, err error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("job socket %s: %d bytes: want at most %d: %w", path, len(path), maxPath, cimeter.ErrInvalid)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("job socket: %w", err)
	}
	if err := vacant(path); err != nil {
		return nil, err
	}
	fresh := path + newSuffix
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("job socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("job socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	defer func() {
		if err != nil {
			l.Close()
			os.Remove(fresh)
			err = fmt.Errorf("job socket: %w", err)
		}
	}()
	if err := os.Chmod(fresh, mode); err != nil {
		return nil, err
	}
	id, err := os.Lstat(fresh)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(fresh, path); err != nil {
		return nil, err
	}
	return &Listener{UnixListener: l, path: path, id: id}, nil
}

// vacant returns why nothing may be put at path.
func vacant(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("job socket: %w", err)
	case st.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("job socket %s: there is something that is no socket: %w", path, cimeter.ErrConflict)
	}
	c, err := net.DialTimeout("unix", path, deadline)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		c.Close()
	}
	return fmt.Errorf("job socket %s: somebody listens there: %w", path, cimeter.ErrConflict)
}

// Close ends listening and removes the file, unless another one has its place.
func (l *Listener) Close() error {
	if st, err := os.Lstat(l.path); err == nil && os.SameFile(st, l.id) {
		os.Remove(l.path)
	}
	return l.UnixListener.Close()
}
