package server_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cimeter/cimeter/internal/store/sqlite"
	"github.com/cimeter/cimeter/internal/storetest"
)

func command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// disk is an ext4 in a file that can lose its power.
type disk struct {
	t           *testing.T
	image, path string // path is where it is mounted
	cuts        int
}

func newDisk(t *testing.T, size int64) *disk {
	t.Helper()
	base, err := os.MkdirTemp("", "disk") // a short path, open to others: PostgreSQL's socket is in it
	if err != nil {
		t.Fatal(err)
	}
	d := &disk{t: t, image: filepath.Join(base, "0.img"), path: filepath.Join(base, "m")}
	t.Cleanup(func() { os.RemoveAll(base) })
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.image, size); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(d.path, 0o755); err != nil {
		t.Fatal(err)
	}
	need(t, command("mkfs.ext4", "-q", "-F", d.image), "mkfs.ext4")
	need(t, command("mount", "-o", "loop", d.image, d.path), "root and mount(8)")
	t.Cleanup(func() { syscall.Unmount(d.path, syscall.MNT_DETACH) })
	return d
}

// cut stops the file system as a power cut does: EXT4_IOC_SHUTDOWN with
// EXT4_GOING_FLAGS_NOLOGFLUSH (fs/ext4/ext4.h).
func (d *disk) cut() {
	d.t.Helper()
	f, err := os.Open(d.path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	flag := uint32(2)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), 0x8004587d, uintptr(unsafe.Pointer(&flag))); errno != 0 {
		need(d.t, errno, "an ext4 that can be shut down")
	}
}

// comeBack mounts what the disk holds, as a disk of its own: the dead file
// system may live on in a mount namespace that was made meanwhile.
func (d *disk) comeBack() {
	d.t.Helper()
	if err := syscall.Unmount(d.path, syscall.MNT_DETACH); err != nil {
		d.t.Fatal(err)
	}
	d.cuts++
	next := filepath.Join(filepath.Dir(d.image), fmt.Sprintf("%d.img", d.cuts))
	if err := command("cp", "--sparse=always", d.image, next); err != nil {
		d.t.Fatal(err)
	}
	os.Remove(d.image)
	d.image = next
	if err := command("mount", "-o", "loop", d.image, d.path); err != nil {
		d.t.Fatal(err)
	}
}

// whole opens the store of a server that has ended and checks its integrity.
func whole(t *testing.T, dir string) {
	t.Helper()
	kept, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(dir, "cimeter.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if err := kept.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := sqlite.Verify(t.Context(), filepath.Join(dir, "cimeter.db")); err != nil {
		t.Error(err)
	}
}

// The power fails at random moments: what the server answered for is there, and
// the file is whole (F6). The process goes with its disk: a sync that is under
// way while a file system is shut down was seen to succeed with nothing kept,
// and no power cut lets anybody answer after that.
func TestServer_powerCut(t *testing.T) {
	random := seeded(t)
	d := newDisk(t, 64<<20)
	dir := filepath.Join(d.path, "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	to := &moving{}
	loads := newLoads(t, to, 2)
	n := rounds(t, 20)
	for range n {
		p := startProcess(t, dir, "")
		to.set(p.addr)
		sendUntil(t, random, loads, func() {
			<-time.After(time.Duration(random.Int64N(int64(80 * time.Millisecond)))) // the random moment is the fault
			p.cmd.Process.Kill()
			d.cut()
			p.cmd.Wait()
		})
		d.comeBack()
		if _, err := os.Stat(filepath.Join(dir, "cimeter.db")); err == nil {
			whole(t, dir)
		} else if err := os.MkdirAll(dir, 0o700); err != nil { // cut before anything was durable
			t.Fatal(err)
		}
	}
	p := startProcess(t, dir, "")
	defer p.end(syscall.SIGTERM)
	to.set(p.addr)
	settle(t, p.addr, loads)
	t.Logf("%d power cuts", n)
}

// The power of PostgreSQL's disk fails: what the server answered for is there (F7).
func TestServer_powerCutOfPostgres(t *testing.T) {
	random := seeded(t)
	d := newDisk(t, 1<<30)
	t.Setenv("TMPDIR", d.path)
	p, err := storetest.StartPostgres()
	storetest.NeedPostgres(t, err)
	defer p.Stop()
	database := "SERVER_CHILD_DATABASE=" + p.Database(t)
	syscall.Sync() // initdb did not
	to := &moving{}
	loads := newLoads(t, to, 2)
	n := max(1, rounds(t, 20)/10) // a cluster takes its time to come back
	for range n {
		s := startProcess(t, "none", "", database)
		to.set(s.addr)
		sendUntil(t, random, loads, func() {
			<-time.After(time.Duration(random.Int64N(int64(300 * time.Millisecond)))) // the random moment is the fault
			s.cmd.Process.Kill()
			d.cut()
			s.cmd.Wait()
		})
		p.Kill()
		d.comeBack()
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
	}
	s := startProcess(t, "none", "", database)
	defer s.end(syscall.SIGTERM)
	to.set(s.addr)
	settle(t, s.addr, loads)
	t.Logf("%d power cuts", n)
}

// inject makes system calls of a process fail, as strace's inject= describes
// it, until the returned function is called.
func inject(t *testing.T, pid int, calls, fault string) (end func()) {
	t.Helper()
	path, err := exec.LookPath("strace")
	need(t, err, "strace")
	cmd := exec.Command(path, "-f", "-o", "/dev/null", "-e", "trace="+calls, "-e", "inject="+calls+":"+fault, "-p", strconv.Itoa(pid))
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said []byte
	b := make([]byte, 4096)
	for !strings.Contains(string(said), " attached") {
		n, err := out.Read(b)
		said = append(said, b[:n]...)
		if err != nil {
			cmd.Wait()
			need(t, fmt.Errorf("%s", said), "strace(1) that may trace")
		}
	}
	go io.Copy(io.Discard, out)
	return func() {
		cmd.Process.Signal(syscall.SIGTERM) // it lets go of the process
		cmd.Wait()
	}
}

// When the disk fails to sync nothing is answered for; when it works again the
// server goes on or has ended, and the file is whole (F12).
func TestServer_syncFails(t *testing.T) {
	random := seeded(t)
	dir := t.TempDir()
	to := &moving{}
	l := newLoads(t, to, 1)[0]
	ended, n := 0, max(1, rounds(t, 20)/4)
	for range n {
		p := startProcess(t, dir, "")
		to.set(p.addr)
		for range 5 {
			add(l, random)
			if !l.send(t) {
				t.Fatal("a batch was not taken by a server that is well")
			}
		}
		rows := len(stored(t, p.addr))
		stop := inject(t, p.cmd.Process.Pid, "fsync,fdatasync", "error=EIO")
		for range 3 {
			add(l, random)
			if l.send(t) {
				t.Error("a batch was answered for though no sync succeeded")
			}
		}
		stop()
		if l.send(t) {
			if got := stored(t, p.addr); len(got) <= rows {
				t.Errorf("%d rows: want more than %d", len(got), rows)
			}
		} else {
			ended++ // it must have said that it cannot go on
		}
		p.end(syscall.SIGKILL)
		whole(t, dir)
	}
	p := startProcess(t, dir, "")
	defer p.end(syscall.SIGTERM)
	to.set(p.addr)
	settle(t, p.addr, []*load{l})
	t.Logf("%d times, %d of them the server did not go on by itself", n, ended)
}

// add gives a client some records more to send.
func add(l *load, random *rand.Rand) {
	for range 1 + random.IntN(10) {
		l.left = append(l.left, l.next)
		l.next += l.step
	}
}

// A disk of which each sync takes 300 ms holds up what waits for it and nothing
// else: the lists answer meanwhile (F14).
func TestServer_slowDisk(t *testing.T) {
	random := seeded(t)
	p := startProcess(t, t.TempDir(), "")
	defer p.end(syscall.SIGTERM)
	to := &moving{}
	to.set(p.addr)
	l := newLoads(t, to, 1)[0]
	add(l, random)
	if !l.send(t) {
		t.Fatal("the first batch was not taken")
	}
	stop := inject(t, p.cmd.Process.Pid, "fsync,fdatasync", "delay_enter=300ms")
	defer stop()
	// A machine that does much beside may take as long for a list as the sync does, so
	// more batches are tried then. Were lists to wait for commits, none would be answered.
	const tries, want = 20, 3
	held := 0 // commits while which a list was answered
	for n := 0; n < tries && held < want; n++ {
		add(l, random)
		sent, answers := make(chan bool, 1), 0
		go func() { sent <- l.send(t) }()
		for waiting := true; waiting; {
			select {
			case ok := <-sent:
				if waiting = false; !ok {
					t.Error("a batch was not taken by a slow disk")
				}
			default:
				if rows := stored(t, p.addr); len(rows) == 0 {
					t.Error("the list is empty while a commit waits")
				}
				answers++
			}
		}
		if answers >= 2 { // the last of them may have waited
			held++
		}
	}
	if held < want {
		t.Errorf("lists were answered while %d of %d commits waited: want them not to wait for it", held, tries)
	}
}
