package records

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cimeter/cimeter"
)

// Defaults and bounds.
const (
	DefaultMaxBytes   = 256 << 20 // about 10,000 builds of 25 KiB: a week at 60 builds an hour
	DefaultMaxRecords = 20000     // bounds the index in memory to 40 bytes each
	MaxRecordBytes    = 1 << 20   // of one record's JSON: forty times a usual one
	maxCorrupt        = 16        // files set aside, kept for whoever looks into the cause
	maxScan           = 2000      // files that one List reads at most
)

// Options are what Open needs.
type Options struct {
	Dir        string
	MaxBytes   int64 // of all records together; 0 is DefaultMaxBytes
	MaxRecords int   // 0 is DefaultMaxRecords
	// Fault is called before each step of a write with the step's name (see
	// the Step constants); an error it returns is that step's. For tests; nil
	// in production.
	Fault func(step string) error
}

// The steps of a write, in order. StepEvict comes after the record is safe.
const (
	StepCreate  = "create"
	StepWrite   = "write"
	StepSync    = "sync"
	StepRename  = "rename"
	StepSyncDir = "syncdir"
	StepEvict   = "evict"
)

// Stats count what became of files since Open, Open itself included.
type Stats struct {
	Evicted            uint64 // records removed to stay within the bounds
	EvictErrors        uint64 // removals that the file system refused; tried again at the next Put
	Corrupt            uint64 // record files set aside as damaged
	CheckpointsCorrupt uint64 // checkpoint files dropped as damaged
	Leftovers          uint64 // files of unfinished writes removed by Open
}

// Dir is an open directory of records.
type Dir struct {
	o      Options
	handle *os.File // the directory, locked; synced after each rename

	write sync.Mutex // held by whoever writes or removes record files
	check sync.Mutex // held by whoever writes or removes checkpoint files

	mu      sync.Mutex // guards what follows; never held over I/O
	entries []entry    // oldest first
	bytes   int64
	stats   Stats
}

// Close releases the directory for another process.
func (d *Dir) Close() error { return d.handle.Close() }

// Usage tells how many records there are and their size in bytes.
func (d *Dir) Usage() (files int, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.entries), d.bytes
}

// Stats returns the counts since Open.
func (d *Dir) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// Evicted is how many records were removed to stay within the bounds.
func (d *Dir) Evicted() uint64 { return d.Stats().Evicted }

// Put writes r. It is durable when Put returns nil. A record of the same key
// that is there already is never written again: Put returns nil when it is the
// same and wraps [cimeter.ErrConflict] when it is not. It wraps
// [cimeter.ErrInvalid] for a record without key or end, or one that is too
// large; an error of the file system is wrapped as it is (errors.Is with
// syscall.ENOSPC tells a full disk). After an error nothing of r is left, and
// Put may be called again.
//
// Records that are over the bound are removed, oldest end first, after r is
// safe; r itself may be the oldest.
func (d *Dir) Put(r *cimeter.Record) error {
	e, file, err := encode(r)
	if err != nil {
		return err
	}
	if e.size > d.o.MaxBytes {
		return fmt.Errorf("put record %s: %d bytes: want at most the directory's bound of %d: %w", r.Key, e.size, d.o.MaxBytes, cimeter.ErrInvalid)
	}
	d.write.Lock()
	defer d.write.Unlock()
	if old, ok := d.find(e.hash); ok {
		b, err := os.ReadFile(d.path(old))
		switch {
		case err == nil && bytes.Equal(b, file):
			return nil
		case err == nil && valid(b):
			return fmt.Errorf("put record %s: another record of this key is there: %w", r.Key, cimeter.ErrConflict)
		case err == nil:
			d.setAside(old)
		case errors.Is(err, fs.ErrNotExist): // removed by hand
		default:
			return fmt.Errorf("put record %s: compare with the one there: %w", r.Key, err)
		}
		d.forget(old)
	}
	if renamed, err := d.writeFile(d.o.Dir, e.name(), file); err != nil {
		if renamed {
			os.Remove(d.path(e))
		}
		return fmt.Errorf("put record %s: %w", r.Key, err)
	}
	d.mu.Lock()
	at, _ := slices.BinarySearchFunc(d.entries, e, compare)
	d.entries = slices.Insert(d.entries, at, e)
	d.bytes += e.size
	d.mu.Unlock()
	d.evict()
	return nil
}

// writeFile makes dir/name with the given content. When it returns no error
// that is durable. When renamed is true beside an error, the file is there, but
// a power cut may still take it away.
func (d *Dir) writeFile(dir, name string, content []byte) (renamed bool, err error) {
	if err := d.fault(StepCreate); err != nil {
		return false, err
	}
	f, err := os.CreateTemp(dir, tempPrefix+"*") // mode 0600
	if err != nil {
		return false, err
	}
	defer func() {
		if !renamed {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := d.fault(StepWrite); err != nil {
		return false, err
	}
	if _, err := f.Write(content); err != nil {
		return false, err
	}
	if err := d.fault(StepSync); err != nil {
		return false, err
	}
	// After a failed sync the kernel may hold the pages as clean: a second sync
	// of this file would succeed without anything on the disk.
	if err := f.Sync(); err != nil {
		return false, err
	}
	if err := f.Close(); err != nil {
		return false, err
	}
	if err := d.fault(StepRename); err != nil {
		return false, err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, name)); err != nil {
		return false, err
	}
	if err := d.fault(StepSyncDir); err != nil {
		return true, err
	}
	return true, d.syncDir(dir)
}

func (d *Dir) syncDir(dir string) error {
	if dir == d.o.Dir {
		return d.handle.Sync()
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (d *Dir) fault(step string) error {
	if d.o.Fault == nil {
		return nil
	}
	if err := d.o.Fault(step); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return nil
}

// evict removes the oldest records until the rest is within the bounds. A file
// that cannot be removed stays, is counted, and is tried again next time.
func (d *Dir) evict() {
	for {
		d.mu.Lock()
		over := len(d.entries) > d.o.MaxRecords || d.bytes > d.o.MaxBytes
		var oldest entry
		if over {
			oldest = d.entries[0]
		}
		d.mu.Unlock()
		if !over {
			return
		}
		err := d.fault(StepEvict)
		if err == nil {
			err = os.Remove(d.path(oldest))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.count(func(s *Stats) { s.EvictErrors++ })
			return
		}
		d.forget(oldest)
		d.count(func(s *Stats) { s.Evicted++ })
	}
}

func (d *Dir) count(f func(*Stats)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.stats)
}

// find looks a key's entry up. It walks the index: a Put or Get is rare, and a
// map would double the memory of 20,000 entries.
func (d *Dir) find(hash [hashBytes]byte) (entry, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := len(d.entries) - 1; i >= 0; i-- {
		if d.entries[i].hash == hash {
			return d.entries[i], true
		}
	}
	return entry{}, false
}

func (d *Dir) forget(e entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at, ok := slices.BinarySearchFunc(d.entries, e, compare); ok {
		d.entries = slices.Delete(d.entries, at, at+1)
		d.bytes -= e.size
	}
}

func (d *Dir) path(e entry) string { return filepath.Join(d.o.Dir, e.name()) }

// setAside renames a damaged file so that it is neither served nor lost.
func (d *Dir) setAside(e entry) {
	d.count(func(s *Stats) { s.Corrupt++ })
	if err := os.Rename(d.path(e), d.path(e)+corruptSuffix); err != nil {
		os.Remove(d.path(e))
	}
	d.trimCorrupt()
}

// trimCorrupt bounds the files set aside to the latest ones.
func (d *Dir) trimCorrupt() {
	var names []string
	err := scan(d.o.Dir, func(name string) error {
		if strings.HasSuffix(name, corruptSuffix) {
			names = append(names, name)
		}
		return nil
	})
	if err != nil || len(names) <= maxCorrupt {
		return
	}
	slices.Sort(names) // by the end of the build
	for _, name := range names[:len(names)-maxCorrupt] {
		os.Remove(filepath.Join(d.o.Dir, name))
	}
}

func compare(a, b entry) int {
	return cmp.Or(cmp.Compare(a.ended, b.ended), bytes.Compare(a.hash[:], b.hash[:]))
}
