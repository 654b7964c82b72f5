package watch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cimeter/cimeter/internal/watch"
)

func TestWatcher_Within(t *testing.T) {
	root := t.TempDir()
	mkdir(t, root, "docker", "c-1", "init")
	mkdir(t, root, "docker", "c-1", "docker", "c-there")
	mkdir(t, root, "docker", "c-2")
	w := open(t, root, 0)
	var got []watch.Event
	keep := func(e watch.Event) { got = append(got, e) }
	if err := w.Scan(keep); err != nil {
		t.Fatal(err)
	}
	got = nil
	w.Within("/docker/c-1", keep)
	w.Within("/docker/c-1", keep) // told again, watched once
	there := watch.Event{Kind: watch.Born, Path: "/docker/c-1/docker/c-there"}
	if want := []watch.Event{there, there}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	mkdir(t, root, "docker", "c-1", "docker", "c-new", "docker", "c-deeper") // what is nested twice is c-new's
	mkdir(t, root, "docker", "c-2", "docker", "c-new")                       // nobody asked
	mkdir(t, root, "docker", "c-1", "docker", "buildkit", "c-step")
	if err := os.Remove(filepath.Join(root, "docker", "c-1", "docker", "c-there")); err != nil {
		t.Fatal(err)
	}
	got = collect(t, w, 3)
	want := []watch.Event{
		{Kind: watch.Born, Path: "/docker/c-1/docker/c-new"},
		{Kind: watch.Born, Path: "/docker/c-1/docker/buildkit/c-step"},
		{Kind: watch.Removed, Path: "/docker/c-1/docker/c-there"},
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}

	t.Run("a scan tells of what is nested as well", func(t *testing.T) {
		var paths []string
		if err := w.Scan(func(e watch.Event) { paths = append(paths, e.Path) }); err != nil {
			t.Fatal(err)
		}
		slices.Sort(paths)
		if want := []string{"/docker/c-1", "/docker/c-1/docker/buildkit/c-step", "/docker/c-1/docker/c-new", "/docker/c-2"}; !slices.Equal(paths, want) {
			t.Fatalf("got %v, want %v", paths, want)
		}
	})
	t.Run("it ends with the container", func(t *testing.T) {
		before, _ := w.Folders()
		if err := os.RemoveAll(filepath.Join(root, "docker", "c-1")); err != nil {
			t.Fatal(err)
		}
		collect(t, w, 3)
		mkdir(t, root, "docker", "c-1", "docker", "c-new")
		if got := collect(t, w, 1); got[0].Path != "/docker/c-1" {
			t.Fatalf("got %v", got)
		}
		if after, _ := w.Folders(); after >= before {
			t.Errorf("%d folders watched, before %d", after, before)
		}
	})
}

// Who runs in a container makes as many folders as he likes: a bounded number of
// them is watched, and those of others are not affected.
func TestWatcher_withinBounds(t *testing.T) {
	root := t.TempDir()
	for i := range 1000 {
		mkdir(t, root, "docker", "c-1", fmt.Sprint("many-", i))
	}
	mkdir(t, root, "docker", "c-2", "docker")
	deep := filepath.Join(root, "docker", "c-2", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a")
	mkdir(t, deep)
	w := open(t, root, 0)
	before, missed := w.Folders()
	w.Within("/docker/c-1", func(e watch.Event) { t.Errorf("event %v", e) })
	w.Within("/docker/c-2", func(e watch.Event) { t.Errorf("event %v", e) })
	after, missedNow := w.Folders()
	if n := after - before; n > 2*64 || n < 64 {
		t.Errorf("%d folders watched in containers, want 64 of one and few of the other", n)
	}
	if missedNow != missed {
		t.Errorf("%d folders missed, want none: what is nested is in the container's counters", missedNow)
	}
	mkdir(t, deep, "c-too-deep")
	mkdir(t, root, "docker", "c-2", "docker", "c-new")
	if got := collect(t, w, 1); got[0].Path != "/docker/c-2/docker/c-new" {
		t.Fatalf("got %v", got)
	}
}

// Folders that are gone make room for others.
func TestWatcher_withinRoom(t *testing.T) {
	root := t.TempDir()
	for i := range 100 {
		mkdir(t, root, "docker", "c-1", fmt.Sprint("many-", i))
	}
	w := open(t, root, 0)
	w.Within("/docker/c-1", func(e watch.Event) { t.Errorf("event %v", e) })
	for i := range 100 {
		if err := os.Remove(filepath.Join(root, "docker", "c-1", fmt.Sprint("many-", i))); err != nil {
			t.Fatal(err)
		}
	}
	mkdir(t, root, "docker", "c-1", "buildkit", "c-step")
	if got := collect(t, w, 1); got[0].Path != "/docker/c-1/buildkit/c-step" {
		t.Fatalf("got %v", got)
	}
}
