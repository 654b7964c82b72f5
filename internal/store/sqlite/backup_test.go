package sqlite_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store/sqlite"
	"github.com/cimeter/cimeter/internal/storetest"
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

// TestKill_backup kills a process at random moments of its backups: each file
// under its own name is whole.
func TestKill_backup(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "builds.sqlite")
	s := openAt(t, path)
	defer s.Close()
	put(t, s, 300)
	random := storetest.Seeded(t)
	half, whole := 0, 0
	for range storetest.Rounds(t, 20) {
		to := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "STORE_CHILD="+path, "STORE_CHILD_BACKUP="+filepath.Join(to, "copy"))
		cmd.Stdout = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for begun := false; !begun; { // the process is up
			entries, err := os.ReadDir(to)
			if err != nil {
				t.Fatal(err)
			}
			begun = len(entries) > 0
		}
		<-time.After(time.Duration(random.Int64N(int64(300 * time.Millisecond)))) // the random moment is the fault
		cmd.Process.Kill()
		cmd.Wait()
		entries, err := os.ReadDir(to)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.Contains(e.Name(), ".part") {
				half++
				continue
			}
			whole++
			b := openAt(t, filepath.Join(to, e.Name()))
			if st, err := b.Stats(t.Context()); err != nil || st.Builds != 300 || b.Unclean() {
				t.Errorf("%s: %d builds, unclean %t, %v; want all 300", e.Name(), st.Builds, b.Unclean(), err)
			}
			if err := b.Check(t.Context()); err != nil {
				t.Error(err)
			}
			b.Close()
		}
	}
	if half == 0 {
		t.Error("no backup was killed half-way")
	}
	if got, err := s.Put(t.Context(), storetest.NewMaker(9, time.Hour).Puts(9000, 3)); err != nil || got.Stored != 3 {
		t.Errorf("Put after the kills = %+v, %v", got, err)
	}
	t.Logf("%d whole, %d files of killed ones", whole, half)
}
