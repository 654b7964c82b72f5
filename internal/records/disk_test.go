package records_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cimeter/cimeter/internal/records"
)

// A full disk fails a Put as itself, and a Put works again when there is space,
// without a restart.
func TestDir_DiskFull(t *testing.T) {
	for _, c := range []struct{ name, options string }{{"no space", "size=1m"}, {"no inodes", "size=4m,nr_inodes=20"}} {
		t.Run(c.name, func(t *testing.T) {
			target := filepath.Join(t.TempDir(), "disk")
			mount(t, target, "-t", "tmpfs", "-o", c.options, "tmpfs")
			d := open(t, records.Options{Dir: filepath.Join(target, "records")})
			put(t, d, 1)
			if err := d.Checkpoint("a", []byte("old")); err != nil {
				t.Fatal(err)
			}
			fill := filepath.Join(target, "fill")
			if err := os.Mkdir(fill, 0o700); err != nil {
				t.Fatal(err)
			}
			var full error
			for n := 0; full == nil; n++ {
				full = os.WriteFile(filepath.Join(fill, fmt.Sprint(n)), bytes.Repeat([]byte("x"), 64<<10), 0o600)
			}
			if !errors.Is(full, syscall.ENOSPC) {
				t.Fatal(full)
			}
			for range 3 {
				if err := d.Put(record(2)); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), key(2)) {
					t.Errorf("got %v: want no space for %s", err, key(2))
				}
				if err := d.Checkpoint("a", []byte("new")); !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("got %v: want no space", err)
				}
			}
			if files, _ := d.Usage(); files != 1 || len(recordFiles(t, filepath.Join(target, "records"), "")) != 2 {
				t.Errorf("%d records, %v: want one, and nothing half written", files, recordFiles(t, filepath.Join(target, "records"), ""))
			}
			if got := all(t, d, 10, nil); len(got) != 1 {
				t.Errorf("reads %v meanwhile: want one", got)
			}
			if err := os.RemoveAll(fill); err != nil {
				t.Fatal(err)
			}
			put(t, d, 2)
			if err := d.Checkpoint("a", []byte("new")); err != nil {
				t.Error(err)
			}
			if got := all(t, d, 10, nil); len(got) != 2 {
				t.Errorf("got %v: want two", got)
			}
		})
	}
}

func TestDir_ReadOnly(t *testing.T) {
	target := filepath.Join(t.TempDir(), "disk")
	mount(t, target, "-t", "tmpfs", "-o", "size=1m", "tmpfs")
	dir := filepath.Join(target, "records")
	d := open(t, records.Options{Dir: dir})
	put(t, d, 1)
	if err := run("mount", "-o", "remount,ro", target); err != nil {
		t.Fatal(err)
	}
	if err := d.Put(record(2)); !errors.Is(err, syscall.EROFS) {
		t.Errorf("got %v: want a read-only file system", err)
	}
	if got, err := d.Get(key(1)); err != nil || got.Key != key(1) {
		t.Errorf("got %v, %v: want the record there", got, err)
	}
	d.Close()
	t.Run("at the start it says what to do", func(t *testing.T) {
		_, err := records.Open(records.Options{Dir: dir})
		if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "mount it writable") {
			t.Errorf("got %v: want the path and what to do", err)
		}
		_, err = records.Open(records.Options{Dir: filepath.Join(target, "other")})
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("got %v: want a read-only file system", err)
		}
	})
	if err := run("mount", "-o", "remount,rw", target); err != nil {
		t.Fatal(err)
	}
	d = open(t, records.Options{Dir: dir})
	put(t, d, 2)
}

func TestOpen_Permission(t *testing.T) {
	if _, err := records.Open(records.Options{Dir: "/proc/self/records"}); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v: want a refusal", err)
	}
}

// A sync that fails once fails the Put it belongs to; the file is gone, and the
// next try writes a new one. Every call of fsync is hit once.
func TestDir_SyncError(t *testing.T) {
	strace, err := exec.LookPath("strace")
	need(t, err, "strace")
	need(t, run(strace, "-f", "-o", "/dev/null", "true"), "permission to ptrace")
	hit := 0
	for when := 1; when <= 13; when++ {
		t.Run(fmt.Sprintf("fsync %d", when), func(t *testing.T) {
			dir := t.TempDir()
			c := newChild(t, dir, "RECORDS_CHILD_COUNT=3")
			c.Args = []string{strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync", "-e", fmt.Sprintf("inject=fsync:error=EIO:when=%d", when), c.Path}
			c.Path = strace
			if err := c.Run(); err != nil {
				t.Fatalf("%v: %s", err, c.out.String())
			}
			got := readTruth(c.out.String())
			if len(got.put) != 3 || len(got.failed) > 1 {
				t.Errorf("%d records, failed %q: want 3 and at most one failure", len(got.put), got.failed)
			}
			for _, f := range got.failed {
				hit++
				if !strings.Contains(f, "input/output error") {
					t.Errorf("failed %s: want the disk's error", f)
				}
			}
			verify(t, dir, got)
			if n := len(recordFiles(t, dir, ".record")); n != 3 {
				t.Errorf("%d files: want 3", n)
			}
		})
	}
	if hit < 12 {
		t.Errorf("%d of 13 calls failed: the fault is no test", hit)
	}
}
