package e2e_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter/internal/testdocker"
)

// machine is a build machine: a docker daemon, an image with burn, a folder
// for truths, a folder on a disk, and a sink for traffic.
type machine struct {
	*testdocker.Daemon
	truths string // on this machine; /truth in containers
	disk   string // on this machine; /disk in containers; on a real disk
	sink   string // address of the sink, from a container on the default bridge
}

// newMachine starts a machine. Its truths lie on a tmpfs where there is one,
// so that writing them is no block IO of a container.
func newMachine(t *testing.T, args ...string) *machine {
	t.Helper()
	if testing.Short() {
		t.Skip("a docker daemon is not for -short")
	}
	burn := burnProgram(t)
	d := testdocker.Start(t, testdocker.Options{
		Args: args,
		Files: map[string]string{
			"/usr/bin/burn": burn,
			"/usr/bin/git":  burn, "/usr/bin/gitlab-runner-helper": burn,
			"/usr/bin/gitlab-runner-build": "testdata/gitlab-runner-build", "/entrypoint": "testdata/entrypoint",
		},
	})
	m := &machine{Daemon: d, truths: t.TempDir(), disk: filepath.Join(d.Folder(), "disk")}
	var st unix.Statfs_t
	if unix.Statfs("/dev/shm", &st) == nil && st.Type == unix.TMPFS_MAGIC {
		dir, err := os.MkdirTemp("/dev/shm", "cimeter-truth-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		m.truths = dir
	}
	if err := os.Mkdir(m.disk, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cache", "out", "archive", "compile"} {
		if err := prefill(filepath.Join(m.disk, name), 8<<20); err != nil {
			t.Fatal(err)
		}
	}
	l, err := d.Listen("tcp4", d.Gateway()+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	m.sink = l.Addr().String()
	go serveSink(l)
	wakeBlockIO(t, m.disk)
	m.warm(t)
	return m
}

// warm has a container read every program of the image and every file of the
// disk, and run burn: whatever is cold is block IO of the first container that
// needs it, and burn does not know of it.
func (m *machine) warm(t *testing.T) {
	t.Helper()
	exit, err := m.Run(t.Context(), testdocker.Spec{
		Name: "warm", Binds: m.binds(), Env: m.env("warm"),
		Cmd: []string{"sh", "-c", `cat /usr/bin/* /entrypoint /bin/busybox >/dev/null && for f in /disk/*; do burn read=1048576:$f write=4096:$f || exit; done && burn fork=2:0.001 mem=4096`},
	})
	if err != nil || exit.Code != 0 {
		t.Fatalf("warming up: exit %d: %s: %v", exit.Code, exit.Output, err)
	}
}

// prefill writes a file to the disk. Written over, it needs no new block: the
// file system then reads nothing on the writer's account.
func prefill(path string, size int) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, size)); err != nil {
		return err
	}
	return f.Sync()
}

// binds are the folders that every container of the machine gets.
func (m *machine) binds() []string {
	return []string{m.truths + ":/truth", m.disk + ":/disk"}
}

// env makes burn write its truth under this name.
func (m *machine) env(name string) []string {
	return []string{"BURN_TRUTH=/truth", "BURN_NAME=" + name}
}

// truth is what burn says it used. See e2e/burn.
type truth struct {
	Name            string `json:"name"`
	CPU             int64  `json:"cpu_ns"`
	CgroupCPU       int64  `json:"cgroup_cpu_ns"`
	MemoryPeak      int64  `json:"memory_peak"`
	ReadBytes       int64  `json:"read_bytes"`
	WriteBytes      int64  `json:"write_bytes"`
	KernelRead      int64  `json:"kernel_read"`
	KernelWrite     int64  `json:"kernel_write"`
	NetworkReceive  int64  `json:"network_receive"`
	NetworkTransmit int64  `json:"network_transmit"`
	OOM             bool   `json:"oom"`
	Throttled       int64  `json:"throttled_periods"`
	ExitCode        int    `json:"exit_code"`
}

// truth reads the truth of this name.
func (m *machine) truth(t *testing.T, name string) truth {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(m.truths, name+".json"))
	if err != nil {
		t.Fatalf("burn left no truth: %v", err)
	}
	var v truth
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("truth %s: %v", name, err)
	}
	return v
}

// awaitTruth waits until burn has left the truth of this name.
func (m *machine) awaitTruth(ctx context.Context, name string) error {
	return m.awaitFile(ctx, name+".json")
}

// awaitFile waits until a container has made a file in the folder of truths.
func (m *machine) awaitFile(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(filepath.Join(m.truths, name)); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("no container made %s: %w", name, ctx.Err())
		}
	}
}

// mark makes a file that containers wait for.
func (m *machine) mark(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.truths, name), nil, 0o666); err != nil {
		t.Fatal(err)
	}
}

// serveSink takes and gives bytes: a connection begins with 'S' or 'R' and how
// many bytes follow, or are wanted.
func serveSink(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var head [9]byte
			if _, err := io.ReadFull(c, head[:]); err != nil {
				return
			}
			n := int64(binary.BigEndian.Uint64(head[1:]))
			if head[0] == 'S' {
				io.Copy(io.Discard, c)
				return
			}
			io.CopyN(c, zeros{}, n)
		}()
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// wakeBlockIO makes a v1 kernel count the block IO of the disk that path lies
// on: it counts nothing until some cgroup has once had a limit on that disk.
// The agent does the same on its own when it is asked to; here it is done
// beforehand so that the first container counts.
func wakeBlockIO(t *testing.T, path string) {
	t.Helper()
	const root = "/sys/fs/cgroup/blkio"
	if _, err := os.Stat(root + "/blkio.throttle.write_bps_device"); errors.Is(err, os.ErrNotExist) {
		return // v2 counts always
	}
	dev, err := diskOf(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := fmt.Sprintf("%s/cimeter-wake-%d", root, os.Getpid())
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	if err := os.WriteFile(dir+"/blkio.throttle.write_bps_device", []byte(dev+" 1000000000000"), 0); err != nil {
		t.Fatalf("waking block IO of %s: %v", dev, err)
	}
}

// diskOf is the major:minor of the whole disk that path lies on.
func diskOf(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	n := st.Sys().(*syscall.Stat_t).Dev
	dev := fmt.Sprintf("%d:%d", unix.Major(n), unix.Minor(n))
	if _, err := os.Stat("/sys/dev/block/" + dev + "/partition"); err != nil {
		return dev, nil
	}
	link, err := filepath.EvalSymlinks("/sys/dev/block/" + dev)
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(filepath.Join(filepath.Dir(link), "dev"))
	return strings.TrimSpace(string(b)), err
}
