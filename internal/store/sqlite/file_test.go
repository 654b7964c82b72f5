package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/sqlite"
	"github.com/cimeter/cimeter/internal/storetest"
)

func put(t testing.TB, s *sqlite.Store, n int) []store.Put {
	t.Helper()
	puts := storetest.NewMaker(1, 24*time.Hour).Puts(0, n)
	for part := range slices.Chunk(puts, 50) {
		if _, err := s.Put(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	return puts
}

func openAt(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDurability holds what SQLite's promise of durable commits rests on.
func TestDurability(t *testing.T) {
	s := open(t).(*sqlite.Store)
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "trusted_schema": "0", "busy_timeout": "10000", "cell_size_check": "1"} {
		got, err := s.Pragmas(t.Context(), pragma)
		if err != nil || len(got) != 5 || slices.ContainsFunc(got, func(v string) bool { return v != want }) {
			t.Errorf("%s = %q, %v; want %s on every connection", pragma, got, err, want)
		}
	}
	version, err := s.Value(t.Context(), "SELECT sqlite_version()")
	if err != nil {
		t.Fatal(err)
	}
	// Up to 3.51.2 a WAL that was reset at a bad moment could damage the file.
	least := []int{3, 51, 3}
	for i, part := range strings.Split(version, ".") {
		n, _ := strconv.Atoi(part)
		if n != least[i] {
			if n < least[i] {
				t.Errorf("SQLite is %s, want at least 3.51.3", version)
			}
			break
		}
	}
}

// What builds are called is nobody else's business (T30).
func TestOpen_private(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "builds.sqlite")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, path)
	defer s.Close()
	put(t, s, 5)
	if err := s.Backup(t.Context(), filepath.Join(dir, "backup")); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 5 {
		t.Fatalf("%v, %v: want the file, what SQLite keeps beside it, the lock and the backup", files, err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v: want 0600", f.Name(), info.Mode(), err)
		}
	}
}

func TestReadersCannotWrite(t *testing.T) {
	s := open(t).(*sqlite.Store)
	err := s.Queryer().Query(t.Context(), "DELETE FROM names", nil, func(func(...any) error) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "readonly") {
		t.Errorf("a reader writes: %v", err)
	}
}

func TestOpen_again(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?c%41.sqlite")
	s := openAt(t, path)
	puts := put(t, s, 20)
	if _, err := sqlite.Open(t.Context(), sqlite.Options{Path: path}); !errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("a second process opens the file: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error("the file has another name:", err)
	}
	s = openAt(t, path)
	defer s.Close()
	if s.Unclean() {
		t.Error("unclean after Close")
	}
	if r, err := s.Get(t.Context(), puts[7].Record.Key); err != nil || r.Number != puts[7].Record.Number {
		t.Errorf("Get = %+v, %v", r, err)
	}
}

func TestOpen_otherSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "builds.sqlite")
	s := openAt(t, path)
	if err := s.Exec(t.Context(), "PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	_, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Migrate: true})
	if !errors.Is(err, cimeter.ErrConflict) || !strings.Contains(err.Error(), "version 99") || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("a newer schema: %v", err)
	}
}

func TestOpen_damaged(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole.sqlite")
	s := openAt(t, whole)
	puts := put(t, s, 100)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for page := 0; page < len(b)/4096; page += 3 {
		bad := slices.Clone(b)
		for i := range 64 { // the page's head, where its cells are told
			bad[page*4096+i] ^= 0x5a
		}
		path := filepath.Join(dir, "bad"+strconv.Itoa(page)+".sqlite")
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
		if err != nil {
			refused++
			if !errors.Is(err, cimeter.ErrUnavailable) || !strings.Contains(err.Error(), "backup") {
				t.Fatalf("page %d damaged: %v; want to hear what to do", page, err)
			}
			continue
		}
		// A page of a body's middle or a free one: a wrong record is never told.
		for _, p := range puts {
			r, err := s.Get(t.Context(), p.Record.Key)
			if err == nil && r.EndedAt != p.Record.EndedAt {
				t.Fatalf("page %d damaged: %s is wrong", page, p.Record.Key)
			}
		}
		s.Close()
	}
	if refused < 10 {
		t.Errorf("%d damaged files were refused", refused)
	}
	for name, content := range map[string][]byte{"text": []byte(strings.Repeat("no database ", 1000)), "half": b[:len(b)/2]} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sqlite.Open(t.Context(), sqlite.Options{Path: path}); !errors.Is(err, cimeter.ErrUnavailable) {
			t.Errorf("%s: %v; want it refused", name, err)
		}
	}
}

func TestOpen_noFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "builds.sqlite")
	if _, err := sqlite.Open(t.Context(), sqlite.Options{Path: path}); !errors.Is(err, cimeter.ErrUnavailable) || !strings.Contains(err.Error(), path) {
		t.Errorf("Open = %v; want an error that names the file", err)
	}
}

func TestBackup_whileWriting(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, filepath.Join(dir, "builds.sqlite"))
	defer s.Close()
	first := put(t, s, 200)
	more := storetest.NewMaker(2, 24*time.Hour).Puts(1000, 600)
	var acknowledged atomic.Int64
	begun, done := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < len(more) && err == nil; i += 5 {
			_, err = s.Put(t.Context(), more[i:i+5])
			acknowledged.Store(int64(i + 5))
			if i == 20 {
				close(begun)
			}
		}
		done <- err
	}()
	<-begun
	before := acknowledged.Load()
	copied := filepath.Join(dir, "backup.sqlite")
	if err := s.Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(t.Context(), copied); !errors.Is(err, cimeter.ErrConflict) {
		t.Errorf("a backup takes the place of a file: %v", err)
	}
	b := openAt(t, copied)
	defer b.Close()
	if err := b.Check(t.Context()); err != nil || b.Unclean() {
		t.Errorf("the backup: unclean %t, %v", b.Unclean(), err)
	}
	n := 0
	if err := b.Each(t.Context(), nil, true, func(r *cimeter.Record) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	st, err := b.Stats(t.Context())
	if err != nil || int(st.Builds) != n || n < len(first)+int(before) || n%5 != 0 {
		t.Errorf("the backup holds %d builds, its figures say %d, %v; want whole batches, at least %d", n, st.Builds, err, len(first)+int(before))
	}
	for _, p := range first {
		if _, err := b.Get(t.Context(), p.Record.Key); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.part*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestPut_full fills the disk that the file may take: nothing is acknowledged
// that is not kept, reads go on, and with room it goes on without being opened
// again.
func TestPut_full(t *testing.T) {
	s := open(t).(*sqlite.Store)
	m := storetest.NewMaker(3, time.Hour)
	if err := s.Exec(t.Context(), "PRAGMA max_page_count = 300"); err != nil {
		t.Fatal(err)
	}
	acknowledged, first := 0, 0
	var err error
	for ; first < 5000; first += 20 {
		var got store.PutResult
		if got, err = s.Put(t.Context(), m.Puts(first, 20)); err != nil {
			break
		}
		acknowledged += got.Stored
	}
	if !errors.Is(err, cimeter.ErrUnavailable) || acknowledged == 0 {
		t.Fatalf("Put on a full disk after %d builds: %v; want it unavailable", acknowledged, err)
	}
	n := 0
	if err := s.Each(t.Context(), nil, true, func(*cimeter.Record) error { n++; return nil }); err != nil || n != acknowledged {
		t.Errorf("%d builds, %v; want the %d acknowledged", n, err, acknowledged)
	}
	if err := s.Exec(t.Context(), "PRAGMA max_page_count = 100000"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Put(t.Context(), m.Puts(first, 20)); err != nil || got.Stored != 20 {
		t.Errorf("Put with room again = %+v, %v", got, err)
	}
}

func TestClose(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "builds.sqlite"))
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Put(t.Context(), storetest.NewMaker(1, time.Hour).Puts(0, 1)); !errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("Put after Close: %v; want it unavailable", err)
	}
	if _, err := s.Retain(t.Context(), store.Retention{}); !errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("Retain after Close: %v; want it unavailable", err)
	}
}
