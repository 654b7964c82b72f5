// Package filesd writes the list of targets as a file of Prometheus' file_sd.
//
// It owns one file. A reader sees the old list or the new one and never half of
// one: the new one is written beside it, synced, and renamed over it. It never
// logs. Start with [New]. A File is used by one goroutine.
package filesd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cimeter/cimeter/internal/discover/targets"
)

// File is a file of targets.
type File struct {
	path string
	last []byte
}

// New returns the file at path, which need not exist; its folder must. Its name
// ends in .json, or Prometheus does not read it.
func New(path string) *File { return &File{path: path} }

// Path is where the file is.
func (f *File) Path() string { return f.path }

// Write makes the file say groups. What it says already, and nobody changed, is
// not written again: each change wakes every Prometheus that watches.
func (f *File) Write(groups []targets.Group) error {
	b, err := targets.Encode(groups)
	if err != nil {
		return err
	}
	if f.last != nil && bytes.Equal(b, f.last) {
		if now, err := os.ReadFile(f.path); err == nil && bytes.Equal(now, b) {
			return nil
		}
	}
	if err := replace(f.path, b); err != nil {
		return fmt.Errorf("write targets: %w", err)
	}
	f.last = b
	return nil
}

// Remove takes the file away. One that is gone already is no error.
func (f *File) Remove() error {
	f.last = nil
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove targets: %w", err)
	}
	return nil
}

func replace(path string, b []byte) (err error) {
	// The name must match no glob that Prometheus reads, such as *.json.
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".unfinished-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(temp.Name())
		}
	}()
	_, err = temp.Write(b)
	// Prometheus runs as somebody else; there is nothing secret in it.
	err = errors.Join(err, temp.Chmod(0o644), temp.Sync(), temp.Close())
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
