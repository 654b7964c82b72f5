package cgroup_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
)

// TestLivePeak begins a new peak in a cgroup of this machine, where its kernel has
// that: one reader's does not change another's. Where it has not, nothing changes.
func TestLivePeak(t *testing.T) {
	h := live(t)
	path, dirs := makeGroup(t, h, "peak")
	g, err := h.Group(path)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	peak := func(g *cgroup.Group) uint64 {
		t.Helper()
		var s cimeter.Sample
		if err := g.Read(&s, cgroup.Full); err != nil {
			t.Fatal(err)
		}
		v, ok := s.Gauge(cimeter.MemoryPeak)
		if !ok {
			t.Fatal("no peak")
		}
		return v
	}
	touch(t, dirs, 48<<20)
	before := peak(g)
	if before < 48<<20 {
		t.Fatalf("a peak of %d bytes, want 48 MiB at least", before)
	}
	var u syscall.Utsname
	if err := syscall.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var release strings.Builder
	for _, c := range u.Release {
		if c == 0 {
			break
		}
		release.WriteByte(byte(c))
	}
	var major, minor int
	if _, err := fmt.Sscanf(release.String(), "%d.%d", &major, &minor); err != nil {
		t.Fatalf("release %q: %v", release.String(), err)
	}
	want := h.Layout() == "v2" && (major > 6 || major == 6 && minor >= 12)
	if got := g.ResetPeak(); got != want {
		t.Fatalf("reset %v on Linux %s, %s, want %v", got, release.String(), h.Layout(), want)
	}
	if !want {
		if after := peak(g); after != before {
			t.Errorf("a peak of %d bytes, before %d", after, before)
		}
		return
	}
	low := peak(g)
	touch(t, dirs, 16<<20)
	after := peak(g)
	t.Logf("peaks %d, after the reset %d, then %d", before, low, after)
	if low > 32<<20 || after < 16<<20 || after > 40<<20 {
		t.Errorf("a new peak of %d bytes, want 16 MiB and a little", after)
	}
	o, err := h.Group(path)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if v := peak(o); v < before {
		t.Errorf("another reader's peak is %d bytes, want %d", v, before)
	}
	if !g.ResetPeak() || peak(g) > 32<<20 {
		t.Error("it cannot begin anew twice")
	}
}

// touch has a process in the cgroup use so much memory, and end.
func touch(t *testing.T, dirs []string, bytes int) {
	t.Helper()
	cmd, start := child(t, dirs, "touch "+strconv.Itoa(bytes))
	start()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}
