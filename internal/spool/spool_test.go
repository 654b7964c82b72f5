package spool_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/spool"
)

func open(t testing.TB, o spool.Options) *spool.Spool {
	t.Helper()
	s, err := spool.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func key(n int) string { return fmt.Sprintf("gitlab/x/%d", n) }

func line(n int) []byte {
	return fmt.Appendf(nil, `{"key":%q,"n":%d,"fill":%q}`, key(n), n, strings.Repeat("x", 300))
}

func add(t testing.TB, s *spool.Spool, ns ...int) {
	t.Helper()
	for _, n := range ns {
		if err := s.Add(key(n), line(n)); err != nil {
			t.Fatal(err)
		}
	}
}

// waiting returns the numbers of the records that wait, in order, and checks
// each for what it was.
func waiting(t testing.TB, s *spool.Spool) (ns []int) {
	t.Helper()
	after := uint64(0)
	for {
		entries, err := s.Next(after, 7, 4096)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			return ns
		}
		for _, e := range entries {
			var n int
			if _, err := fmt.Sscanf(string(e.Line), `{"key":"gitlab/x/%d"`, &n); err != nil || !bytes.Equal(e.Line, line(n)) {
				t.Fatalf("entry %d holds %q", e.Seq, e.Line)
			}
			if e.Seq <= after {
				t.Fatalf("entry %d after %d", e.Seq, after)
			}
			after = e.Seq
			ns = append(ns, n)
		}
	}
}

func entries(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.entry"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SPOOL_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("SPOOL_SEED=%s: want a number", s)
		}
	}
	t.Logf("SPOOL_SEED=%d plays this again", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func TestSpool_order(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s := open(t, spool.Options{Dir: dir})
	add(t, s, 5, 3, 9, 1)
	if got := waiting(t, s); !slices.Equal(got, []int{5, 3, 9, 1}) {
		t.Errorf("got %v: want the order of receipt", got)
	}
	id := s.ID()
	t.Run("a key that waits is not added again", func(t *testing.T) {
		add(t, s, 9)
		if got := waiting(t, s); len(got) != 4 {
			t.Errorf("%v", got)
		}
	})
	t.Run("a second process is kept out", func(t *testing.T) {
		if _, err := spool.Open(spool.Options{Dir: dir}); !errors.Is(err, cimeter.ErrConflict) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v: want a conflict that names %s", err, dir)
		}
	})
	t.Run("it is the same after a restart", func(t *testing.T) {
		s.Close()
		s = open(t, spool.Options{Dir: dir})
		add(t, s, 2)
		if got := waiting(t, s); !slices.Equal(got, []int{5, 3, 9, 1, 2}) || s.ID() != id {
			t.Errorf("%v, ID %s: want all in order, and ID %s", got, s.ID(), id)
		}
	})
	t.Run("what is acknowledged is gone for good", func(t *testing.T) {
		got, err := s.Next(0, 2, 1<<20)
		if err != nil || len(got) != 2 {
			t.Fatalf("%v, %v", got, err)
		}
		for _, e := range got {
			for range 2 { // twice is no error
				if err := s.Ack(e.Seq); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := waiting(t, s); !slices.Equal(got, []int{9, 1, 2}) {
			t.Errorf("%v", got)
		}
		st := s.Stats()
		if st.Records != 3 || st.Bytes <= 0 || len(entries(t, dir)) != 3 {
			t.Errorf("%+v, %d files: want 3", st, len(entries(t, dir)))
		}
	})
	t.Run("nobody else may read it", func(t *testing.T) {
		for path, want := range map[string]os.FileMode{dir: 0o700, entries(t, dir)[0]: 0o600, filepath.Join(dir, "refused"): 0o700} {
			if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != want {
				t.Errorf("%s: %v, %v: want %o", path, fi.Mode(), err, want)
			}
		}
	})
}

func TestSpool_invalid(t *testing.T) {
	s := open(t, spool.Options{Dir: t.TempDir(), MaxBytes: 2048})
	for name, l := range map[string]string{"empty": "", "two lines": "{\n}", "over the bound": strings.Repeat("x", 2048), "huge": strings.Repeat("x", 2<<20)} {
		if err := s.Add("a/b", []byte(l)); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%s: %v: want invalid", name, err)
		}
	}
	if err := s.Add("", []byte("{}")); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("no key: %v: want invalid", err)
	}
	if s.Stats() != (spool.Stats{}) {
		t.Errorf("%+v: want nothing", s.Stats())
	}
	for _, o := range []spool.Options{{}, {Dir: t.TempDir(), MaxBytes: -1}, {Dir: "/proc/none/spool"}} {
		if s, err := spool.Open(o); err == nil || s != nil {
			t.Errorf("%+v was opened", o)
		}
	}
}

// Over the bound the oldest go, and the count of them is exact (F20).
func TestSpool_bound(t *testing.T) {
	dir := t.TempDir()
	s := open(t, spool.Options{Dir: dir, MaxBytes: 20_000})
	const ended = 300
	for n := range ended {
		add(t, s, n)
		if st := s.Stats(); st.Bytes > 20_000 {
			t.Fatalf("%d bytes: want at most 20000", st.Bytes)
		}
	}
	kept := waiting(t, s)
	st := s.Stats()
	if len(kept) != st.Records || int(st.Over) != ended-len(kept) || kept[len(kept)-1] != ended-1 || kept[0] != ended-len(kept) || len(kept) < 40 {
		t.Errorf("kept %d from %d to %d, %+v: want the newest, and all others counted", len(kept), kept[0], kept[len(kept)-1], st)
	}
	s.Close()
	s = open(t, spool.Options{Dir: dir, MaxBytes: 5_000}) // a smaller bound holds at once
	if st := s.Stats(); st.Bytes > 5_000 || int(st.Over) != len(kept)-st.Records {
		t.Errorf("%+v: want at most 5000 bytes and the rest counted", st)
	}
}

// A bit that flips costs that record alone, and is counted (F16).
func TestSpool_bitFlip(t *testing.T) {
	iterations := 1000
	if testing.Short() {
		iterations = 100
	}
	random := seeded(t)
	dir := t.TempDir()
	s := open(t, spool.Options{Dir: dir})
	for i := range iterations {
		add(t, s, 0, 1, 2)
		hit := random.IntN(3)
		file := entries(t, dir)[hit]
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b[random.IntN(len(b))] ^= 1 << random.IntN(8)
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		want := slices.Delete([]int{0, 1, 2}, hit, hit+1)
		if got := waiting(t, s); !slices.Equal(got, want) || int(s.Stats().Corrupt) != i+1 {
			t.Fatalf("got %v, %d corrupt: want %v, %d", got, s.Stats().Corrupt, want, i+1)
		}
		es, err := s.Next(0, 3, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			if err := s.Ack(e.Seq); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A file that was cut off or filled with zeros at any byte is dropped, and
// those before it stand (F17).
func TestSpool_truncated(t *testing.T) {
	dir := t.TempDir()
	s := open(t, spool.Options{Dir: dir})
	add(t, s, 1, 2)
	s.Close()
	last := entries(t, dir)[1]
	whole, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		for _, tail := range [][]byte{nil, make([]byte, len(whole)-n)} {
			if err := os.WriteFile(last, append(whole[:n:n], tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := spool.Open(spool.Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			if got := waiting(t, s); !slices.Equal(got, []int{1}) || s.Stats().Corrupt != 1 {
				t.Fatalf("cut at %d: got %v, %+v: want the first alone", n, got, s.Stats())
			}
			s.Close()
		}
	}
}

func TestSpool_refuse(t *testing.T) {
	dir := t.TempDir()
	s := open(t, spool.Options{Dir: dir})
	for n := range 130 {
		add(t, s, n)
		es, err := s.Next(0, 1, 1<<20)
		if err != nil || len(es) != 1 {
			t.Fatal(es, err)
		}
		if err := s.Refuse(es[0].Seq, "line 1: no\nkey"); err != nil {
			t.Fatal(err)
		}
	}
	add(t, s, 500)
	names, err := os.ReadDir(filepath.Join(dir, "refused"))
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 100 || s.Stats().Refused != 130 || s.Stats().Records != 1 {
		t.Errorf("%d set aside, %+v: want 100 kept of 130 counted", len(names), s.Stats())
	}
	b, err := os.ReadFile(filepath.Join(dir, "refused", names[99].Name()))
	if err != nil || string(b) != string(line(129))+"\n"+`reason: "line 1: no\nkey"`+"\n" {
		t.Errorf("%q, %v: want the record and the reason in two lines", b, err)
	}
	// What is set aside after a restart counts as newer.
	s.Close()
	s = open(t, spool.Options{Dir: dir})
	es, err := s.Next(0, 1, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Refuse(es[0].Seq, "x"), s.Refuse(es[0].Seq, "again")); err != nil {
		t.Fatal(err)
	}
	if names, err = os.ReadDir(filepath.Join(dir, "refused")); err != nil || len(names) != 100 {
		t.Fatal(len(names), err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "refused", names[99].Name())); !bytes.HasPrefix(b, line(500)) {
		t.Errorf("%q: want the newest to stand", b)
	}
	// Also when nothing else waits.
	s.Close()
	s = open(t, spool.Options{Dir: dir})
	add(t, s, 600)
	if es, err = s.Next(0, 1, 1<<20); err != nil || s.Refuse(es[0].Seq, "x") != nil {
		t.Fatal(err)
	}
	if names, err = os.ReadDir(filepath.Join(dir, "refused")); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "refused", names[len(names)-1].Name())); !bytes.HasPrefix(b, line(600)) {
		t.Errorf("%q: want the newest to stand", b)
	}
}

// Bytes bound both what one call returns and what is kept of what was refused.
func TestSpool_large(t *testing.T) {
	dir := t.TempDir()
	s := open(t, spool.Options{Dir: dir})
	large := bytes.Repeat([]byte("x"), spool.MaxRecordBytes)
	for n := range 20 {
		if err := s.Add(key(n), large); err != nil {
			t.Fatal(err)
		}
	}
	for size, want := range map[int64]int{1: 1, 5 << 19: 2, 100 << 20: 20} {
		if es, err := s.Next(0, 100, size); err != nil || len(es) != want {
			t.Errorf("%d entries in %d bytes, %v: want %d", len(es), size, err, want)
		}
	}
	for seq := range uint64(25) {
		if err := s.Refuse(seq, "too much"); err != nil {
			t.Fatal(err)
		}
	}
	names, err := os.ReadDir(filepath.Join(dir, "refused"))
	if err != nil || s.Stats().Refused != 20 || len(names) < 10 || len(names) > 16 {
		t.Errorf("%d set aside, %+v, %v: want 16 MiB at most of 20", len(names), s.Stats(), err)
	}
}

// A step that fails leaves nothing, and the same call works when it is over.
func TestSpool_fault(t *testing.T) {
	for _, step := range []string{spool.StepCreate, spool.StepWrite, spool.StepSync, spool.StepRename, spool.StepSyncDir, spool.StepEvict} {
		t.Run(step, func(t *testing.T) {
			var broken string
			dir := t.TempDir()
			s := open(t, spool.Options{Dir: dir, MaxBytes: 1200, Fault: func(at string) error {
				if at == broken {
					return syscall.ENOSPC
				}
				return nil
			}})
			add(t, s, 1, 2, 3)
			broken = step
			if err := s.Add(key(4), line(4)); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("%v: want ENOSPC", err)
			}
			broken = ""
			add(t, s, 4)
			got := waiting(t, s)
			if got[len(got)-1] != 4 || len(entries(t, dir)) != len(got) || len(got)+int(s.Stats().Over) != 4 {
				t.Errorf("%v, %d files, %+v", got, len(entries(t, dir)), s.Stats())
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".unfinished-*")); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
	t.Run("remove", func(t *testing.T) {
		broken := true
		s := open(t, spool.Options{Dir: t.TempDir(), Fault: func(at string) error {
			if broken && at == spool.StepRemove {
				return syscall.EROFS
			}
			return nil
		}})
		add(t, s, 1)
		es, _ := s.Next(0, 1, 1<<20)
		if err := s.Ack(es[0].Seq); !errors.Is(err, syscall.EROFS) || s.Stats().Records != 1 {
			t.Errorf("%v, %+v: want it to wait still", err, s.Stats())
		}
		broken = false
		if err := s.Ack(es[0].Seq); err != nil || s.Stats().Records != 0 {
			t.Errorf("%v, %+v", err, s.Stats())
		}
	})
}

func TestOpen_leftovers(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".unfinished-1", "README", "0-0-0.entry"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, spool.Options{Dir: dir})
	if _, err := os.Stat(filepath.Join(dir, ".unfinished-1")); !errors.Is(err, os.ErrNotExist) || s.Stats().Records != 0 {
		t.Errorf("%v, %+v: want leftovers gone and foreign files left alone", err, s.Stats())
	}
	if _, err := os.Stat(filepath.Join(dir, "README")); err != nil {
		t.Error(err)
	}
}
