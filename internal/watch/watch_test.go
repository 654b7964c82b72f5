package watch_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter/internal/watch"
)

func isContainer(path string) bool { return strings.HasPrefix(filepath.Base(path), "c-") }

func open(t *testing.T, root string, folders int) *watch.Watcher {
	t.Helper()
	w, err := watch.New(watch.Options{Root: root, IsContainer: isContainer, MaxFolders: folders})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func mkdir(t *testing.T, elem ...string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(elem...), 0o755); err != nil {
		t.Fatal(err)
	}
}

// collect waits until want events have come, or ten seconds have gone.
func collect(t *testing.T, w *watch.Watcher, want int) []watch.Event {
	t.Helper()
	var got []watch.Event
	for end := time.Now().Add(10 * time.Second); len(got) < want; {
		if time.Now().After(end) {
			t.Fatalf("%d events, want %d: %v", len(got), want, got)
		}
		if err := w.Wait(time.Second, func(e watch.Event) { got = append(got, e) }); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

func TestWatcher_folders(t *testing.T) {
	root := t.TempDir()
	mkdir(t, root, "docker", "c-old")
	mkdir(t, root, "system.slice", "deep", "c-deep")
	w := open(t, root, 0)

	t.Run("a scan tells of what is there", func(t *testing.T) {
		var got []string
		if err := w.Scan(func(e watch.Event) { got = append(got, e.Path) }); err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		if want := []string{"/docker/c-old", "/system.slice/deep/c-deep"}; !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
	t.Run("birth and removal", func(t *testing.T) {
		mkdir(t, root, "docker", "c-new")
		if err := os.Remove(filepath.Join(root, "docker", "c-new")); err != nil {
			t.Fatal(err)
		}
		got := collect(t, w, 2)
		want := []watch.Event{{Kind: watch.Born, Path: "/docker/c-new"}, {Kind: watch.Removed, Path: "/docker/c-new"}}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
	t.Run("a parent made together with its container", func(t *testing.T) {
		mkdir(t, root, "ci", "job-1", "slot", "c-nested")
		got := collect(t, w, 1)
		if want := (watch.Event{Kind: watch.Born, Path: "/ci/job-1/slot/c-nested"}); got[0] != want {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
	t.Run("nothing inside a container is looked at", func(t *testing.T) {
		mkdir(t, root, "docker", "c-old", "docker", "c-inner")
		mkdir(t, root, "docker", "c-after")
		got := collect(t, w, 1)
		if got[0].Path != "/docker/c-after" {
			t.Fatalf("got %v", got)
		}
	})
	t.Run("a parent removed and made again", func(t *testing.T) {
		if err := os.RemoveAll(filepath.Join(root, "ci")); err != nil {
			t.Fatal(err)
		}
		collect(t, w, 1)
		mkdir(t, root, "ci", "job-1", "c-again")
		if got := collect(t, w, 1); got[0].Path != "/ci/job-1/c-again" {
			t.Fatalf("got %v", got)
		}
	})
}

func TestWatcher_pidfd(t *testing.T) {
	w := open(t, t.TempDir(), 0)
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const token = 1<<40 + 7
	if err := w.AddPidfd(fd, token); err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(0, func(e watch.Event) { t.Errorf("%v before the end", e) }); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if got := collect(t, w, 1); got[0] != (watch.Event{Kind: watch.Exited, Token: token}) {
		t.Fatalf("got %v", got)
	}
	w.RemovePidfd(fd)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestWatcher_file(t *testing.T) {
	root := t.TempDir()
	w := open(t, root, 0)
	file := filepath.Join(root, "cgroup.events")
	if err := os.WriteFile(file, []byte("populated 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.AddFile(file, 3); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("populated 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := collect(t, w, 1); got[0] != (watch.Event{Kind: watch.Changed, Token: 3}) {
		t.Fatalf("got %v", got)
	}
}

func TestWatcher_Wake(t *testing.T) {
	w := open(t, t.TempDir(), 0)
	go w.Wake()
	start := time.Now()
	if err := w.Wait(time.Minute, func(e watch.Event) { t.Errorf("event %v", e) }); err != nil {
		t.Fatal(err)
	}
	if time.Since(start) > 30*time.Second {
		t.Fatal("the wait was not ended by Wake")
	}
}

// More births than the kernel queues are told as an overflow, and a scan finds
// every one.
// Who wakes a watcher while it is closed, or after, writes into no other file that
// has the number of its descriptor then.
func TestWatcher_Wake_closed(t *testing.T) {
	root := t.TempDir()
	for range 200 {
		w := open(t, root, 0)
		var waking sync.WaitGroup
		waking.Go(func() {
			for range 50 {
				w.Wake()
			}
		})
		w.Close()
		var others [3]int // as many as it had
		for i := range others {
			var err error
			if others[i], err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
				t.Fatal(err)
			}
		}
		waking.Wait()
		w.Wake()
		for _, fd := range others {
			var b [8]byte
			if _, err := unix.Read(fd, b[:]); err != unix.EAGAIN {
				t.Errorf("another file was written to: %v (%v)", b, err)
			}
			unix.Close(fd)
		}
		if t.Failed() {
			return
		}
	}
}

func TestWatcher_overflow(t *testing.T) {
	root := t.TempDir()
	w := open(t, root, 0)
	b, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Fatal(err)
	}
	var limit int
	if _, err := fmt.Sscan(string(b), &limit); err != nil {
		t.Fatal(err)
	}
	n := limit/2 + 10 // each makes two events
	for i := range n {
		dir := filepath.Join(root, fmt.Sprintf("c-%d", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if i > 9 {
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	overflowed := false
	for !overflowed {
		before := overflowed
		seen := 0
		if err := w.Wait(0, func(e watch.Event) { seen++; overflowed = overflowed || e.Kind == watch.Overflow }); err != nil {
			t.Fatal(err)
		}
		if seen == 0 && before == overflowed {
			t.Fatal("the queue is empty and no overflow was told")
		}
	}
	found := make(map[string]bool)
	if err := w.Scan(func(e watch.Event) { found[e.Path] = true }); err != nil {
		t.Fatal(err)
	}
	if len(found) != 10 {
		t.Fatalf("the scan found %d folders, want 10", len(found))
	}
}

func TestWatcher_bound(t *testing.T) {
	root := t.TempDir()
	for i := range 20 {
		mkdir(t, root, fmt.Sprint("parent-", i))
	}
	w := open(t, root, 5)
	if watched, missed := w.Folders(); watched != 5 || missed != 16 {
		t.Fatalf("%d watched, %d missed; want 5 and 16", watched, missed)
	}
}

func TestNew_noRoot(t *testing.T) {
	if _, err := watch.New(watch.Options{Root: filepath.Join(t.TempDir(), "none"), IsContainer: isContainer}); err == nil {
		t.Fatal("no error for a root that does not exist")
	}
}
