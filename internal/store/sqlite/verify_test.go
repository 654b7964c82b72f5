package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store/sqlite"
)

// A file is checked while a store has it open; one of which any page is damaged is
// told, and what to do about it (F18).
func TestVerify(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "builds.sqlite")
	s := openAt(t, path)
	put(t, s, 100)
	if n, err := sqlite.Verify(t.Context(), path); err != nil || n != 100 {
		t.Fatalf("a store in use: %d builds, %v: want 100", n, err)
	}
	if err := s.Exec(t.Context(), "UPDATE meta SET value = value"); err != nil {
		t.Errorf("the store that has it open: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	told, pages := 0, len(b)/4096
	for page := range pages {
		bad := slices.Clone(b)
		for i := range 64 { // where its cells are told
			bad[page*4096+i] ^= 0x5a
		}
		at := filepath.Join(dir, "bad.sqlite")
		if err := os.WriteFile(at, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sqlite.Verify(t.Context(), at); err != nil {
			told++
			if !strings.Contains(err.Error(), at) || !errors.Is(err, cimeter.ErrUnavailable) || !strings.Contains(err.Error(), "backup") {
				t.Fatalf("page %d damaged: %v: want the file named, and what to do", page, err)
			}
		}
	}
	// What is in the middle of a record is no structure of the file's.
	if told < pages/2 {
		t.Errorf("%d of %d damaged pages were told", told, pages)
	}
	t.Logf("%d of %d damaged pages were told", told, pages)
	// An index that does not tell what the rows do.
	s = openAt(t, path)
	for _, statement := range []string{
		"CREATE INDEX probe ON meta (value)", "PRAGMA writable_schema = ON", "UPDATE sqlite_schema SET sql = 'CREATE INDEX probe ON meta (name)' WHERE name = 'probe'",
	} {
		if err := s.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Verify(t.Context(), path); !errors.Is(err, cimeter.ErrUnavailable) || !strings.Contains(err.Error(), "index probe") {
		t.Errorf("an index without its rows: %v", err)
	}
	none := filepath.Join(dir, "none")
	if _, err := sqlite.Verify(t.Context(), none); !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("no file: %v", err)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a file was made")
	}
	for name, content := range map[string]string{"empty": "", "text": strings.Repeat("no database ", 500)} {
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if n, err := sqlite.Verify(t.Context(), at); err == nil {
			t.Errorf("%s: a store of %d builds", name, n)
		}
	}
}
