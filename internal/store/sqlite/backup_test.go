package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store/sqlite"
)

// TestBackup_fromOutside copies a file that another process, here another
// handle, uses and writes.
func TestBackup_fromOutside(t *testing.T) {
	dir := t.TempDir()
	path, copied := filepath.Join(dir, "builds.sqlite"), filepath.Join(dir, "copy.sqlite")
	s := openAt(t, path)
	defer s.Close()
	puts := put(t, s, 50)
	if found, want, err := sqlite.Version(t.Context(), path); err != nil || found != want || want < 1 {
		t.Errorf("Version = %d, %d, %v; want the one of this program", found, want, err)
	}
	if err := sqlite.Migrate(t.Context(), path); !errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("Migrate of a store in use = %v; want it unavailable", err)
	}
	if err := sqlite.Backup(t.Context(), path, copied); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Put(t.Context(), puts[:10]); err != nil || got.Duplicates != 10 {
		t.Errorf("Put after the backup = %+v, %v", got, err)
	}
	if err := sqlite.Migrate(t.Context(), copied); err != nil {
		t.Error(err)
	}
	b := openAt(t, copied)
	defer b.Close()
	if st, err := b.Stats(t.Context()); err != nil || st.Builds != 50 {
		t.Errorf("the backup holds %d builds, %v; want 50", st.Builds, err)
	}
}

func TestBackup_refused(t *testing.T) {
	dir := t.TempDir()
	none, empty, to := filepath.Join(dir, "none"), filepath.Join(dir, "empty"), filepath.Join(dir, "copy")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(dir, "newer")
	s := openAt(t, newer)
	if err := s.Exec(t.Context(), "PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	for _, c := range []struct {
		path string
		want error
	}{{none, cimeter.ErrNotFound}, {dir, cimeter.ErrInvalid}, {empty, cimeter.ErrInvalid}, {newer, cimeter.ErrConflict}} {
		if err := sqlite.Backup(t.Context(), c.path, to); !errors.Is(err, c.want) {
			t.Errorf("Backup of %s = %v; want %v", c.path, err, c.want)
		}
	}
	if err := sqlite.Migrate(t.Context(), none); !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("Migrate of no file = %v", err)
	}
	if err := sqlite.Migrate(t.Context(), newer); !errors.Is(err, cimeter.ErrConflict) {
		t.Errorf("Migrate of a newer schema = %v", err)
	}
	if left, _ := filepath.Glob(to + "*"); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a file was made")
	}
}
