package records_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/records"
)

func open(t *testing.T, o records.Options) *records.Dir {
	t.Helper()
	d, err := records.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func key(n int) string { return fmt.Sprintf("gitlab/gitlab.example.com/%d", n) }

// record is build n, which ended n seconds after a fixed time.
func record(n int) *cimeter.Record {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Second)
	r := &cimeter.Record{Schema: cimeter.RecordSchema, StartedAt: at.Add(-time.Minute), EndedAt: at, Complete: true}
	r.Key, r.CI, r.Project, r.Number = key(n), "gitlab", "group/app", fmt.Sprint(n)
	r.Usage.WallSeconds = 60
	r.Stages = []cimeter.Stage{{Name: "step_script", Attempt: 1, Boundary: cimeter.BoundaryContainer, StartedAt: r.StartedAt, EndedAt: at}}
	return r
}

func put(t *testing.T, d *records.Dir, ns ...int) {
	t.Helper()
	for _, n := range ns {
		if err := d.Put(record(n)); err != nil {
			t.Fatal(err)
		}
	}
}

// all pages through the whole directory.
func all(t *testing.T, d *records.Dir, page int, wanted records.Filter) (keys []string) {
	t.Helper()
	cursor := ""
	for {
		found, next, err := d.List(cursor, page, wanted)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) > page {
			t.Fatalf("a page of %d records: want at most %d", len(found), page)
		}
		for _, r := range found {
			keys = append(keys, r.Key)
		}
		if next == "" {
			return keys
		}
		cursor = next
	}
}

func recordFiles(t *testing.T, dir, suffix string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestDir_Put(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data", "records")
	d := open(t, records.Options{Dir: dir})
	put(t, d, 3, 1, 2)

	got, err := d.Get(key(2))
	if err != nil {
		t.Fatal(err)
	}
	if want := record(2); got.Key != want.Key || !got.EndedAt.Equal(want.EndedAt) || len(got.Stages) != 1 || got.Usage.WallSeconds != 60 {
		t.Errorf("got %+v: want %+v", got, want)
	}
	if _, err := d.Get(key(4)); !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("got %v: want not found", err)
	}

	t.Run("the same record again is no second file", func(t *testing.T) {
		put(t, d, 2)
		if n := len(recordFiles(t, dir, ".record")); n != 3 {
			t.Errorf("%d files: want 3", n)
		}
	})
	t.Run("another record of the same key is a conflict", func(t *testing.T) {
		r := record(2)
		r.EndedAt = r.EndedAt.Add(time.Hour)
		if err := d.Put(r); !errors.Is(err, cimeter.ErrConflict) {
			t.Errorf("got %v: want a conflict", err)
		}
		if got, err := d.Get(key(2)); err != nil || !got.EndedAt.Equal(record(2).EndedAt) {
			t.Errorf("got %v, %v: want the first record", got, err)
		}
	})
	t.Run("what cannot be kept is refused", func(t *testing.T) {
		noKey, noEnd, large := record(5), record(5), record(5)
		noKey.Key, noEnd.EndedAt = "", time.Time{}
		large.Project = strings.Repeat("x", records.MaxRecordBytes)
		for _, r := range []*cimeter.Record{noKey, noEnd, large} {
			if err := d.Put(r); !errors.Is(err, cimeter.ErrInvalid) {
				t.Errorf("got %v: want invalid", err)
			}
		}
	})
	t.Run("modes keep others out", func(t *testing.T) {
		for _, want := range []struct {
			path string
			mode os.FileMode
		}{{dir, 0o700}, {filepath.Join(dir, "checkpoints"), 0o700}, {recordFiles(t, dir, ".record")[0], 0o600}} {
			fi, err := os.Stat(want.path)
			if err != nil {
				t.Fatal(err)
			}
			if fi.Mode().Perm() != want.mode {
				t.Errorf("%s: mode %o: want %o", want.path, fi.Mode().Perm(), want.mode)
			}
		}
	})
	t.Run("a second process is kept out", func(t *testing.T) {
		if _, err := records.Open(records.Options{Dir: dir}); !errors.Is(err, cimeter.ErrConflict) || !strings.Contains(err.Error(), dir) {
			t.Errorf("got %v: want a conflict that names %s", err, dir)
		}
	})
	t.Run("all are there when it is opened again", func(t *testing.T) {
		files, bytes := d.Usage()
		d.Close()
		again := open(t, records.Options{Dir: dir})
		if f, b := again.Usage(); f != files || b != bytes || files != 3 {
			t.Errorf("%d files, %d bytes: want %d, %d", f, b, files, bytes)
		}
		if got, want := all(t, again, 2, nil), []string{key(3), key(2), key(1)}; !slices.Equal(got, want) {
			t.Errorf("got %v: want %v", got, want)
		}
	})
}

func TestOpen_Failure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]records.Options{
		"no path":           {},
		"a file in the way": {Dir: file},
		"a negative bound":  {Dir: t.TempDir(), MaxBytes: -1},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := records.Open(o)
			if err == nil || d != nil {
				t.Fatalf("got %v, %v: want an error only", d, err)
			}
			if !strings.Contains(err.Error(), o.Dir) {
				t.Errorf("%q does not name %q", err, o.Dir)
			}
		})
	}
}

func TestOpen_CleansUp(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".unfinished-1", ".unfinished-2", "README"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := open(t, records.Options{Dir: dir})
	if got := d.Stats().Leftovers; got != 2 {
		t.Errorf("%d leftovers: want 2", got)
	}
	if fi, _ := os.Stat(dir); fi.Mode().Perm() != 0o700 {
		t.Errorf("mode %o: want 700", fi.Mode().Perm())
	}
	if _, err := os.Stat(filepath.Join(dir, "README")); err != nil {
		t.Error("a file that is not ours was removed")
	}
}

func TestDir_Put_Bounds(t *testing.T) {
	t.Run("by number, oldest first, exactly", func(t *testing.T) {
		d := open(t, records.Options{Dir: t.TempDir(), MaxRecords: 5})
		for _, n := range []int{4, 9, 1, 7, 3, 8, 2, 6, 10, 5} {
			put(t, d, n)
		}
		if got, want := all(t, d, 3, nil), []string{key(10), key(9), key(8), key(7), key(6)}; !slices.Equal(got, want) {
			t.Errorf("got %v: want %v", got, want)
		}
		if d.Evicted() != 5 {
			t.Errorf("%d evicted: want 5", d.Evicted())
		}
	})
	t.Run("by size, exactly", func(t *testing.T) {
		dir := t.TempDir()
		d := open(t, records.Options{Dir: dir})
		put(t, d, 10, 11, 12, 13)
		_, bytes := d.Usage()
		d.Close()
		d = open(t, records.Options{Dir: dir, MaxBytes: bytes - 1}) // the bound holds from Open on
		if files, _ := d.Usage(); files != 3 || d.Evicted() != 1 {
			t.Errorf("%d records, %d evicted: want 3 and 1", files, d.Evicted())
		}
		put(t, d, 14)
		var onDisk int64
		for _, name := range recordFiles(t, dir, ".record") {
			fi, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			onDisk += fi.Size()
		}
		if files, used := d.Usage(); files != 3 || used != onDisk || used > bytes-1 || d.Evicted() != 2 {
			t.Errorf("%d records, %d bytes, %d on disk, %d evicted: want 3, equal, 2", files, used, onDisk, d.Evicted())
		}
		if _, err := d.Get(key(14)); err != nil {
			t.Error(err)
		}
	})
}

func TestDir_List(t *testing.T) {
	d := open(t, records.Options{Dir: t.TempDir()})
	for n := range 150 {
		put(t, d, n)
	}
	for _, page := range []int{1, 7, 64, 150, 500} {
		got := all(t, d, page, nil)
		if len(got) != 150 || got[0] != key(149) || got[149] != key(0) {
			t.Errorf("pages of %d: %d records from %s", page, len(got), got[0])
		}
	}
	even := all(t, d, 10, func(r *cimeter.Record) bool { return r.EndedAt.Second()%2 == 0 })
	if len(even) != 75 || even[0] != key(148) {
		t.Errorf("%d records from %s: want 75 from %s", len(even), even[0], key(148))
	}
	t.Run("records that come and go do not shift pages", func(t *testing.T) {
		first, next, err := d.List("", 10, nil)
		if err != nil {
			t.Fatal(err)
		}
		put(t, d, 1000)
		second, _, err := d.List(next, 10, nil)
		if err != nil {
			t.Fatal(err)
		}
		if first[9].Key != key(140) || second[0].Key != key(139) {
			t.Errorf("pages meet at %s, %s", first[9].Key, second[0].Key)
		}
	})
	for _, cursor := range []string{"x", "1-2", strings.Repeat("9", 19) + "-" + strings.Repeat("0", 32)} {
		if _, _, err := d.List(cursor, 10, nil); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("cursor %q: got %v: want invalid", cursor, err)
		}
	}
	if _, _, err := d.List("", 0, nil); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("limit 0: got %v: want invalid", err)
	}
}

func TestDir_Corrupt(t *testing.T) {
	dir := t.TempDir()
	d := open(t, records.Options{Dir: dir})
	put(t, d, 1, 2, 3)
	flip := func(n int) {
		t.Helper()
		name := recordFiles(t, dir, ".record")[n]
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 0x10
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flip(1)
	if r, err := d.Get(key(2)); !errors.Is(err, records.ErrDamaged) || r != nil {
		t.Errorf("got %v, %v: want a damaged file", r, err)
	}
	if _, err := d.Get(key(2)); !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("second time: got %v: want not found", err)
	}
	flip(0)
	if got, want := all(t, d, 10, nil), []string{key(3)}; !slices.Equal(got, want) {
		t.Errorf("got %v: want %v", got, want)
	}
	if files, _ := d.Usage(); files != 1 || d.Stats().Corrupt != 2 || len(recordFiles(t, dir, ".corrupt")) != 2 {
		t.Errorf("%d records, %d counted, %d set aside: want 1, 2, 2", files, d.Stats().Corrupt, len(recordFiles(t, dir, ".corrupt")))
	}
	flip(0)
	put(t, d, 3) // over a damaged one of the same key
	if _, err := d.Get(key(3)); err != nil {
		t.Error(err)
	}
	t.Run("files set aside are bounded", func(t *testing.T) {
		for n := 10; n < 40; n++ {
			put(t, d, n)
			flip(0)
			d.Get(key(n))
			flip(0)
			d.Get(key(n - 1))
			all(t, d, 100, nil)
		}
		if n := len(recordFiles(t, dir, ".corrupt")); n > 16 {
			t.Errorf("%d files set aside: want at most 16", n)
		}
	})
}

func TestDir_Checkpoint(t *testing.T) {
	dir := t.TempDir()
	d := open(t, records.Options{Dir: dir})
	for _, c := range []struct{ key, state string }{{"a/1", "one"}, {"a/2", "two\nlines\x00"}, {"a/3", ""}, {"a/1", "newer"}, {key(9), "finished"}} {
		if err := d.Checkpoint(c.key, []byte(c.state)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, d, 9) // and then the process dies before it drops the checkpoint
	d.Close()
	d = open(t, records.Options{Dir: dir})
	read := func() map[string]string {
		got := map[string]string{}
		if err := d.Checkpoints(func(key string, b []byte) error { got[key] = string(b); return nil }); err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := map[string]string{"a/1": "newer", "a/2": "two\nlines\x00", "a/3": ""}
	if got := read(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q: want %q", got, want)
	}
	names := recordFiles(t, filepath.Join(dir, "checkpoints"), ".checkpoint")
	if len(names) != 3 {
		t.Fatalf("%d files: want 3", len(names))
	}
	if err := os.Truncate(names[0], 20); err != nil {
		t.Fatal(err)
	}
	if got := read(); len(got) != 2 || d.Stats().CheckpointsCorrupt != 1 {
		t.Errorf("got %q, %d damaged: want two and 1", got, d.Stats().CheckpointsCorrupt)
	}
	for _, k := range []string{"a/1", "a/2", "a/3", "a/3"} {
		if err := d.DropCheckpoint(k); err != nil {
			t.Error(err)
		}
	}
	if got := read(); len(got) != 0 {
		t.Errorf("got %q: want none", got)
	}
	for _, k := range []string{"", "a\nb"} {
		if err := d.Checkpoint(k, nil); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("key %q: got %v: want invalid", k, err)
		}
	}
	if err := d.Checkpoint("a", make([]byte, records.MaxCheckpointBytes)); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("got %v: want invalid", err)
	}
	stop := errors.New("stop")
	if err := d.Checkpoint("a", nil); err != nil {
		t.Fatal(err)
	}
	if err := d.Checkpoints(func(string, []byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v: want the callback's error", err)
	}
}

func TestDir_Concurrent(t *testing.T) {
	d := open(t, records.Options{Dir: t.TempDir(), MaxRecords: 40})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for n := range 30 {
				if err := d.Put(record(n*4 + g)); err != nil {
					t.Error(err)
				}
				if err := d.Checkpoint(key(n), []byte("state")); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 20 {
				if _, _, err := d.List("", 20, nil); err != nil {
					t.Error(err)
				}
				d.Get(key(g))
				d.Usage()
			}
		})
	}
	wg.Wait()
	if files, _ := d.Usage(); files != 40 || d.Evicted() != 80 || d.Stats().Corrupt != 0 {
		t.Errorf("%d records, %d evicted, %d damaged: want 40, 80, 0", files, d.Evicted(), d.Stats().Corrupt)
	}
}

// At every step of a write an error leaves nothing behind, and the next try works.
func TestDir_Put_Faults(t *testing.T) {
	boom := errors.New("boom")
	for _, step := range []string{records.StepCreate, records.StepWrite, records.StepSync, records.StepRename, records.StepSyncDir} {
		t.Run(step, func(t *testing.T) {
			var at string
			dir := t.TempDir()
			d := open(t, records.Options{Dir: dir, Fault: func(s string) error {
				if s == at {
					return boom
				}
				return nil
			}})
			put(t, d, 1)
			if err := d.Checkpoint("a", []byte("old")); err != nil {
				t.Fatal(err)
			}
			at = step
			if err := d.Put(record(2)); !errors.Is(err, boom) || !strings.Contains(err.Error(), key(2)) {
				t.Errorf("got %v: want boom about %s", err, key(2))
			}
			if err := d.Checkpoint("a", []byte("new")); !errors.Is(err, boom) {
				t.Errorf("got %v: want boom", err)
			}
			if got := all(t, d, 10, nil); !slices.Equal(got, []string{key(1)}) {
				t.Errorf("got %v: want the first only", got)
			}
			if n := len(recordFiles(t, dir, "")); n != 2 { // the record and the folder
				t.Errorf("%d files: want 2", n)
			}
			at = ""
			put(t, d, 2)
			if got := all(t, d, 10, nil); len(got) != 2 {
				t.Errorf("got %v: want two", got)
			}
			if err := d.Checkpoints(func(_ string, b []byte) error {
				if s := string(b); s != "old" && (s != "new" || step != records.StepSyncDir) {
					t.Errorf("state %q after a fault at %s", s, step)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("an old record that cannot be removed stays and is tried again", func(t *testing.T) {
		fail := true
		d := open(t, records.Options{Dir: t.TempDir(), MaxRecords: 1, Fault: func(s string) error {
			if fail && s == records.StepEvict {
				return boom
			}
			return nil
		}})
		put(t, d, 1, 2)
		if files, _ := d.Usage(); files != 2 || d.Stats().EvictErrors != 1 || d.Evicted() != 0 {
			t.Errorf("%d records, %+v", files, d.Stats())
		}
		fail = false
		put(t, d, 3)
		if files, _ := d.Usage(); files != 1 || d.Evicted() != 2 {
			t.Errorf("%d records, %+v", files, d.Stats())
		}
	})
}
