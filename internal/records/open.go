package records

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cimeter/cimeter"
)

// Open makes the directory (mode 0700) where it is missing, removes leftovers
// of unfinished writes, and reads the names of the records in it, not their
// contents. An error names the path and what to do; it wraps
// [cimeter.ErrConflict] when another process has the directory open.
func Open(o Options) (*Dir, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxRecords == 0 {
		o.MaxRecords = DefaultMaxRecords
	}
	if o.Dir == "" || o.MaxBytes < 0 || o.MaxRecords < 0 {
		return nil, fmt.Errorf("open records directory %q: %d bytes, %d records: want a path and positive bounds: %w",
			o.Dir, o.MaxBytes, o.MaxRecords, cimeter.ErrInvalid)
	}
	d := &Dir{o: o}
	if err := d.open(); err != nil {
		if d.handle != nil {
			d.handle.Close()
		}
		return nil, fmt.Errorf("open records directory %s: %w (%s)", o.Dir, err, advice(err))
	}
	return d, nil
}

// advice says what the operator can do about an error of Open.
func advice(err error) string {
	switch {
	case errors.Is(err, cimeter.ErrConflict):
		return "stop the other cimeter, or give this one another data directory"
	case errors.Is(err, syscall.EROFS):
		return "mount it writable, or choose another data directory"
	case errors.Is(err, fs.ErrPermission):
		return "make it writable for the user that cimeter runs as, or choose another data directory"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free space or inodes on it, or choose another data directory"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist):
		return "move the file that is in the way, or choose another data directory"
	}
	return "check the file system, or choose another data directory"
}

func (d *Dir) open() error {
	checkpoints := filepath.Join(d.o.Dir, checkpointFolder)
	for _, dir := range []string{d.o.Dir, checkpoints} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		// A directory that was there before may be open to others (T30).
		if fi, err := os.Stat(dir); err != nil {
			return err
		} else if fi.Mode().Perm()&0o077 != 0 {
			if err := os.Chmod(dir, 0o700); err != nil {
				return err
			}
		}
	}
	handle, err := os.Open(d.o.Dir)
	if err != nil {
		return err
	}
	d.handle = handle
	if err := syscall.Flock(int(handle.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("in use by another process: %w", cimeter.ErrConflict)
		}
		return fmt.Errorf("lock: %w", err)
	}
	if err := d.probe(); err != nil {
		return err
	}
	if err := scan(checkpoints, func(name string) error {
		return d.removeLeftover(checkpoints, name)
	}); err != nil {
		return err
	}
	if err := d.load(); err != nil {
		return err
	}
	// A killed process may have renamed a record without syncing the directory.
	if err := handle.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	d.evict()
	return nil
}

// probe finds out at once, not at the first record, that nothing can be written.
func (d *Dir) probe() error {
	f, err := os.CreateTemp(d.o.Dir, tempPrefix+"*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// removeLeftover removes a file that a process left when it was killed before
// it could give it its name.
func (d *Dir) removeLeftover(folder, name string) error {
	if !strings.HasPrefix(name, tempPrefix) {
		return nil
	}
	d.stats.Leftovers++
	return os.Remove(filepath.Join(folder, name))
}

// load makes the index of the names in the directory, and of one key's two
// records, which only a copy made by hand can bring about, keeps the later.
func (d *Dir) load() error {
	damaged := false
	err := scan(d.o.Dir, func(name string) error {
		if e, ok := parseName(name); ok {
			d.entries = append(d.entries, e)
			d.bytes += e.size
			return nil
		}
		damaged = damaged || strings.HasSuffix(name, corruptSuffix)
		return d.removeLeftover(d.o.Dir, name)
	})
	if err != nil {
		return err
	}
	slices.SortFunc(d.entries, func(a, b entry) int {
		return cmp.Or(bytes.Compare(a.hash[:], b.hash[:]), cmp.Compare(a.ended, b.ended))
	})
	once := d.entries[:0]
	for i, e := range d.entries {
		if i+1 < len(d.entries) && d.entries[i+1].hash == e.hash {
			d.bytes -= e.size
			d.setAside(e)
			continue
		}
		once = append(once, e)
	}
	d.entries = once
	slices.SortFunc(d.entries, compare)
	if damaged {
		d.trimCorrupt()
	}
	return nil
}

// scan calls fn with the name of every regular file of a folder, a few at a
// time: a full directory's list would be a few MiB. fn may remove the file.
func scan(folder string, fn func(name string) error) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		list, err := f.ReadDir(256)
		for _, file := range list {
			if file.Type().IsRegular() {
				if err := fn(file.Name()); err != nil {
					return err
				}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
