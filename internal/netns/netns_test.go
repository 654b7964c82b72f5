package netns_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/netns"
)

func TestHandle_Read(t *testing.T) {
	c := container(t)
	c.veth(1, "tv1", "eth0")
	r := reader(t)
	h := attach(t, r, c)
	if h.Source() != "netlink" {
		t.Fatalf("source: got %s, want netlink", h.Source())
	}
	before := now(t, r, h)
	c.send("10.1.0.9:9", 5, 300)
	if err := send("10.1.0.9:9", 3, 1000); err != nil {
		t.Fatal(err)
	}
	var s cimeter.Sample
	if err := h.Read(&s); err != nil {
		t.Fatal(err)
	}
	want(t, "without news of a refresh", of(t, &s).less(before), traffic{receive: frames(3, 1000), transmit: frames(5, 300)})
	want(t, "after it", now(t, r, h).less(before), traffic{receive: frames(3, 1000), transmit: frames(5, 300)})
	c.send("10.1.0.9:9", 1, 10)
	if err := h.ReadNow(&s); err != nil {
		t.Fatal(err)
	}
	want(t, "read at once", of(t, &s).less(before), traffic{receive: frames(3, 1000), transmit: frames(5, 300) + frames(1, 10)})
}

func TestHandle_ReadNow_whenTheProcessIsDead(t *testing.T) {
	c := container(t)
	c.veth(1, "tv1", "eth0")
	c.pin()
	r := reader(t)
	h := attach(t, r, c)
	before := now(t, r, h)
	c.send("10.1.0.9:9", 4, 500)
	c.stop()
	var s cimeter.Sample
	if err := h.ReadNow(&s); err != nil {
		t.Fatal(err)
	}
	want(t, "after its death", of(t, &s).less(before), traffic{transmit: frames(4, 500)})
}

func TestHandle_Read_ofAVethThatWent(t *testing.T) {
	c := container(t)
	c.veth(1, "tv1", "eth0")
	r := reader(t)
	h := attach(t, r, c)
	c.send("10.1.0.9:9", 2, 100)
	last := now(t, r, h)
	ip(t, "link", "del", "tv1")
	if err := r.Refresh(); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func(*cimeter.Sample) error{"Read": h.Read, "ReadNow": h.ReadNow} {
		var s cimeter.Sample
		if err := read(&s); !errors.Is(err, cimeter.ErrGone) {
			t.Errorf("%s: got %v, want gone", name, err)
		}
		want(t, name, of(t, &s), last)
	}
	// A new uplink of the same namespace is a new count.
	c.veth(1, "tv2", "eth0")
	again := attach(t, r, c)
	want(t, "new uplink", now(t, r, again), traffic{})
}

// While a refresh waits for the kernel, everything else goes on.
func TestReader_duringARefreshThatWaits(t *testing.T) {
	c, d := container(t), container(t)
	c.veth(1, "tv1", "eth0")
	d.veth(2, "tv2", "eth0")
	r := reader(t)
	h := attach(t, r, c)
	before := now(t, r, h)
	release := r.HoldSocket()
	refreshed := make(chan error)
	go func() { refreshed <- r.Refresh() }()
	c.send("10.1.0.9:9", 1, 70)
	var s cimeter.Sample
	if err := h.Read(&s); err != nil {
		t.Fatal(err)
	}
	want(t, "read", of(t, &s).less(before), traffic{transmit: frames(1, 70)})
	late, err := r.Attach(d.pid())
	if err != nil {
		t.Fatal(err)
	}
	if err := late.ReadNow(&s); err != nil {
		t.Fatal(err)
	}
	late.Close()
	h.Close()
	release()
	if err := <-refreshed; err != nil {
		t.Error(err)
	}
}

func TestReader_Attach_host(t *testing.T) {
	need(t)
	r := reader(t)
	for _, pid := range []int{os.Getpid(), 1} {
		if _, err := r.Attach(pid); !errors.Is(err, netns.ErrHost) {
			t.Errorf("pid %d: got %v, want host network", pid, err)
		}
	}
}

func TestReader_Attach_gone(t *testing.T) {
	c := container(t)
	pid := c.pid()
	c.stop()
	if _, err := reader(t).Attach(pid); !errors.Is(err, cimeter.ErrGone) {
		t.Errorf("got %v, want gone", err)
	}
}

func TestOpen_withoutProc(t *testing.T) {
	if _, err := netns.Open(netns.Options{Proc: t.TempDir() + "/none"}); !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("got %v, want not found", err)
	}
}

func TestReader_Attach_shared(t *testing.T) {
	pod := container(t)
	pod.veth(1, "tv1", "eth0")
	side := pod.join()
	r := reader(t)
	h := attach(t, r, pod)
	if _, err := r.Attach(side.pid()); !errors.Is(err, netns.ErrShared) {
		t.Fatalf("second process: got %v, want shared", err)
	}
	side.send("10.1.0.9:9", 2, 200)
	owner := now(t, r, h)
	h.Close()
	h2 := attach(t, r, side)
	want(t, "the next owner goes on", now(t, r, h2), owner)
	if h2.Namespace() != h.Namespace() {
		t.Errorf("namespace: got %d, want %d", h2.Namespace(), h.Namespace())
	}
	other := container(t)
	other.veth(2, "tv2", "eth0")
	if h3 := attach(t, r, other); h3.Namespace() == h.Namespace() {
		t.Errorf("another namespace has the same identity %d", h3.Namespace())
	}
}

func TestReader_Attach_beforeTheUplink(t *testing.T) {
	c := container(t)
	r := reader(t)
	if _, err := r.Attach(c.pid()); !errors.Is(err, netns.ErrNotReady) {
		t.Fatalf("only lo: got %v, want not ready", err)
	}
	// As the runtime does it: an end of a pair moves in, then gets its name.
	c.veth(1, "tv1", "veth1234567")
	if _, err := r.Attach(c.pid()); !errors.Is(err, netns.ErrNotReady) {
		t.Fatalf("not renamed: got %v, want not ready", err)
	}
	c.ip("link", "set", "veth1234567", "down")
	c.ip("link", "set", "veth1234567", "name", "eth0")
	if h := attach(t, r, c); h.Source() != "netlink" {
		t.Errorf("source: got %s, want netlink", h.Source())
	}
}

func TestReader_Attach_countsTheUplinkOnly(t *testing.T) {
	t.Run("not a network inside", func(t *testing.T) {
		c := container(t)
		c.ip("link", "add", "docker0", "type", "bridge")
		c.ip("link", "add", "veth1", "type", "veth", "peer", "name", "veth2")
		c.ip("link", "set", "veth1", "master", "docker0")
		c.ip("link", "set", "veth1", "up")
		c.ip("link", "set", "veth2", "up")
		c.ip("link", "set", "docker0", "up")
		c.ip("addr", "add", "172.17.0.1/16", "dev", "docker0")
		c.ip("neigh", "add", "172.17.0.9", "lladdr", "02:00:00:00:00:09", "dev", "docker0", "nud", "permanent")
		c.veth(1, "tv1", "eth0")
		r := reader(t)
		h := attach(t, r, c)
		before := now(t, r, h)
		c.send("172.17.0.9:9", 9, 900)
		c.send("10.1.0.9:9", 1, 100)
		if h.Source() != "netlink" {
			t.Errorf("source: got %s, want netlink", h.Source())
		}
		want(t, "uplink", now(t, r, h).less(before), traffic{transmit: frames(1, 100)})
	})
	t.Run("the one of the default route", func(t *testing.T) {
		c := container(t)
		c.veth(1, "tv1", "eth0")
		c.veth(2, "tv2", "eth1")
		c.ip("route", "add", "default", "via", "10.2.0.1")
		r := reader(t)
		h := attach(t, r, c)
		before := now(t, r, h)
		c.send("10.1.0.9:9", 5, 500)
		c.send("10.2.0.9:9", 3, 300)
		if h.Source() != "netlink" {
			t.Errorf("source: got %s, want netlink", h.Source())
		}
		want(t, "uplink", now(t, r, h).less(before), traffic{transmit: frames(3, 300)})
	})
	t.Run("a bridge over the veth is read inside", func(t *testing.T) {
		c := container(t)
		c.veth(1, "tv1", "eth0")
		c.ip("link", "add", "up0", "type", "bridge")
		c.ip("link", "set", "up0", "up")
		c.ip("addr", "add", "10.9.0.2/24", "dev", "up0")
		c.ip("route", "add", "default", "via", "10.9.0.1")
		r := reader(t)
		if h := attach(t, r, c); h.Source() != "proc" {
			t.Errorf("source: got %s, want proc", h.Source())
		}
	})
}

func TestHandle_Read_withoutAnEndOnOurSide(t *testing.T) {
	c, far := container(t), container(t)
	c.ip("link", "add", "eth0", "type", "veth", "peer", "name", "far0", "netns", strconv.Itoa(far.pid()))
	c.ip("link", "set", "eth0", "up")
	far.ip("link", "set", "far0", "up")
	c.ip("addr", "add", "10.1.0.2/24", "dev", "eth0")
	c.ip("neigh", "add", "10.1.0.9", "lladdr", "02:00:00:00:00:09", "dev", "eth0", "nud", "permanent")
	r := reader(t)
	h := attach(t, r, c)
	if h.Source() != "proc" {
		t.Fatalf("source: got %s, want proc", h.Source())
	}
	before := now(t, r, h)
	c.send("10.1.0.9:9", 6, 600)
	c.stop()
	var s cimeter.Sample
	if err := h.ReadNow(&s); err != nil {
		t.Fatal(err) // the open descriptor keeps the namespace
	}
	want(t, "after its death", of(t, &s).less(before), traffic{transmit: frames(6, 600)})
	far.ip("link", "del", "far0")
	if err := h.Read(&s); !errors.Is(err, cimeter.ErrGone) {
		t.Errorf("uplink deleted: got %v, want gone", err)
	}
	want(t, "last values", of(t, &s).less(before), traffic{transmit: frames(6, 600)})
}

func TestReader_Attach_anUplinkAfterAnother(t *testing.T) {
	c := container(t)
	c.ip("link", "add", "eth0", "type", "bridge")
	r := reader(t)
	old := attach(t, r, c)
	c.ip("link", "del", "eth0")
	var s cimeter.Sample
	if err := old.Read(&s); !errors.Is(err, cimeter.ErrGone) {
		t.Fatalf("uplink deleted: got %v, want gone", err)
	}
	c.veth(1, "tv1", "eth0")
	h := attach(t, r, c)
	old.Close()
	before := now(t, r, h)
	c.send("10.1.0.9:9", 1, 60)
	want(t, h.Source(), now(t, r, h).less(before), traffic{transmit: frames(1, 60)})
}

func TestReader_Refresh_amongManyInterfaces(t *testing.T) {
	need(t)
	var batch strings.Builder
	for i := range 150 {
		fmt.Fprintf(&batch, "link add many%d group 77 type veth peer name more%d\n", i, i)
	}
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("add interfaces: %v: %s", err, out)
	}
	t.Cleanup(func() { ip(t, "link", "del", "group", "77") })
	r := reader(t)
	for n := 1; n <= 3; n++ {
		c := container(t)
		c.veth(n, fmt.Sprintf("tv%d", n), "eth0")
		h := attach(t, r, c)
		before := now(t, r, h)
		c.send(fmt.Sprintf("10.%d.0.9:9", n), n, 100*n)
		want(t, fmt.Sprint("container ", n), now(t, r, h).less(before), traffic{transmit: frames(n, 100*n)})
	}
}

func TestReader_Attach_withoutCapabilities(t *testing.T) {
	c := container(t)
	c.veth(1, "tv1", "eth0")
	c.send("10.1.0.9:9", 2, 222)
	cmd := exec.Command("/proc/self/exe", strconv.Itoa(c.pid()))
	cmd.Env = append(os.Environ(), roleEnv+"="+roleRead)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got, want := string(out), fmt.Sprintf("netlink 0 %d namespace readable: false\n", frames(2, 222)); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReader_Attach_withoutNetlink(t *testing.T) {
	c := container(t)
	c.veth(1, "tv1", "eth0")
	r := reader(t)
	r.WithoutNetlink()
	h := attach(t, r, c)
	if h.Source() != "proc" {
		t.Errorf("source: got %s, want proc", h.Source())
	}
	before := now(t, r, h)
	c.send("10.1.0.9:9", 2, 50)
	want(t, "uplink", now(t, r, h).less(before), traffic{transmit: frames(2, 50)})
	if _, err := r.Attach(c.join().pid()); !errors.Is(err, netns.ErrShared) {
		t.Errorf("second process: got %v, want shared", err)
	}
}

// Where proc shows other pids than our system calls use, the namespace is known
// by a descriptor of it.
func TestReader_Attach_ofAnotherPidNamespace(t *testing.T) {
	c := container(t)
	c.veth(1, "tv1", "eth0")
	r := reader(t)
	r.WithForeignPids()
	h := attach(t, r, c)
	before := now(t, r, h)
	c.send("10.1.0.9:9", 2, 50)
	want(t, h.Source(), now(t, r, h).less(before), traffic{transmit: frames(2, 50)})
	if h.Source() != "netlink" {
		t.Errorf("source: got %s, want netlink", h.Source())
	}
}

func TestReader_Refresh_afterADumpLeftHalfway(t *testing.T) {
	c := container(t)
	c.veth(1, "tv1", "eth0")
	r := reader(t)
	h := attach(t, r, c)
	before := now(t, r, h)
	if err := r.Unfinished(); err != nil {
		t.Fatal(err)
	}
	c.send("10.1.0.9:9", 1, 50)
	want(t, "uplink", now(t, r, h).less(before), traffic{transmit: frames(1, 50)})
}

func TestReader_Close(t *testing.T) {
	c := container(t)
	c.veth(1, "tv1", "eth0")
	r := reader(t)
	h := attach(t, r, c)
	last := now(t, r, h)
	r.Close()
	r.Close()
	var s cimeter.Sample
	if err := h.ReadNow(&s); !errors.Is(err, cimeter.ErrGone) {
		t.Errorf("got %v, want gone", err)
	}
	want(t, "last values", of(t, &s), last)
	if err := r.Refresh(); err != nil {
		t.Error(err)
	}
	h.Close()
}

// Nothing stays open but the socket and one descriptor a handle.
func TestReader_descriptors(t *testing.T) {
	c, far := container(t), container(t)
	c.veth(1, "tv1", "eth0")
	far.ip("link", "add", "eth0", "type", "bridge")
	count := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	before := count()
	r := reader(t)
	h, p := attach(t, r, c), attach(t, r, far)
	r.Attach(1)
	r.Attach(c.pid())
	if n := count() - before; n != 3 {
		t.Errorf("open: got %d descriptors, want the socket and two of net/dev", n)
	}
	h.Close()
	p.Close()
	if n := count() - before; n != 1 {
		t.Errorf("handles closed: got %d descriptors, want the socket", n)
	}
	r.Close()
	if n := count() - before; n != 0 {
		t.Errorf("reader closed: got %d descriptors, want 0", n)
	}
}

func TestReader_Allocs(t *testing.T) {
	c, far := container(t), container(t)
	c.veth(1, "tv1", "eth0")
	far.ip("link", "add", "eth0", "type", "bridge")
	r := reader(t)
	h, p := attach(t, r, c), attach(t, r, far)
	if h.Source() != "netlink" || p.Source() != "proc" {
		t.Fatalf("sources: got %s and %s, want netlink and proc", h.Source(), p.Source())
	}
	var s cimeter.Sample
	if n := testing.AllocsPerRun(100, func() {
		if r.Refresh() != nil || h.Read(&s) != nil || h.ReadNow(&s) != nil || p.Read(&s) != nil {
			t.Error("reading failed")
		}
	}); n != 0 {
		t.Errorf("a round allocates %v times, want 0", n)
	}
}

// An end that does not count what the uplink counts is another's.
func TestReader_Refresh_anotherEnd(t *testing.T) {
	c, other := container(t), container(t)
	c.veth(1, "tv1", "eth0")
	other.veth(2, "tv2", "eth0")
	r := reader(t)
	h2 := attach(t, r, other)
	if err := r.Refresh(); err != nil || h2.Source() != "netlink" {
		t.Fatalf("%v, source %s", err, h2.Source())
	}
	c.send("10.1.0.9:9", 3, 300)
	h, err := r.Attach(c.pid()) // not looked for yet
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := r.Adopt(h, h2); err != nil || h.Source() != "proc" {
		t.Errorf("%v, source %s: want it to stay with its own file", err, h.Source())
	}
}
