package process_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/process"
)

// machine is a proc file system in a folder, with processes that behave as the
// kernel's do: ending, waiting, adoption by pid 1.
type machine struct {
	t       *testing.T
	root    string
	all     map[int]*proc
	changed map[int]bool // not in the folder yet
	next    int
}

// proc is a process; its account is in ticks of CPU time, which also stand for
// bytes read.
type proc struct {
	pid, parent int
	start       uint64
	own, waited uint64
	zombie      bool
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, root: t.TempDir(), all: make(map[int]*proc), changed: make(map[int]bool), next: 100}
	m.put(&proc{pid: 1, start: 1})
	return m
}

func (m *machine) put(p *proc) {
	m.all[p.pid] = p
	m.changed[p.pid] = true
}

// write brings the folder up to date.
func (m *machine) write() {
	m.t.Helper()
	for pid := range m.changed {
		m.remove(pid)
		if p, ok := m.all[pid]; ok {
			m.create(p)
		}
	}
	clear(m.changed)
}

func (m *machine) remove(pid int) {
	m.t.Helper()
	if err := os.RemoveAll(filepath.Join(m.root, strconv.Itoa(pid))); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) create(p *proc) {
	m.t.Helper()
	dir := filepath.Join(m.root, strconv.Itoa(p.pid))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.t.Fatal(err)
	}
	state := 'S'
	if p.zombie {
		state = 'Z'
	}
	stat := fmt.Sprintf("%d (a b) c) %c %d 1 1 0 -1 4194624 87 0 0 0 %d 0 %d 0 20 0 2 0 %d 1 3 1 1\n",
		p.pid, state, p.parent, p.own, p.waited, p.start)
	io := fmt.Sprintf("syscr: 0\nsyscw: 0\nread_bytes: %d\nwrite_bytes: 0\n", p.own+p.waited)
	for name, text := range map[string]string{"stat": stat, "io": io} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *machine) fork(parent int) int {
	pid := m.next
	m.next++
	m.put(&proc{pid: pid, parent: parent, start: uint64(1000 + pid)})
	return pid
}

func (m *machine) work(pid int, ticks uint64) {
	m.all[pid].own += ticks
	m.put(m.all[pid])
}

// exit makes pid a zombie and gives its children to pid 1.
func (m *machine) exit(pid int) {
	m.all[pid].zombie = true
	m.put(m.all[pid])
	for _, p := range m.all {
		if p.parent == pid {
			p.parent = 1
			m.put(p)
		}
	}
}

// wait removes a zombie; its parent gets the account.
func (m *machine) wait(pid int) {
	p := m.all[pid]
	parent := m.all[p.parent]
	parent.waited += p.own + p.waited
	m.put(parent)
	m.drop(pid)
}

// drop removes a process whose parent ignores SIGCHLD.
func (m *machine) drop(pid int) {
	delete(m.all, pid)
	m.changed[pid] = true
}

func (m *machine) tree(root, reaper int) *process.Tree {
	m.t.Helper()
	m.write()
	tree, err := process.Open(m.root).NewTree(root, reaper)
	if err != nil {
		m.t.Fatal(err)
	}
	return tree
}

// ticks scans and returns the total.
func ticks(t *testing.T, m *machine, tree *process.Tree) uint64 {
	t.Helper()
	m.write()
	got, err := tree.Scan()
	if err != nil {
		t.Fatal(err)
	}
	n := uint64((got.UserTime + got.SystemTime) / (10 * time.Millisecond))
	if io, ok := got.IO.Get(); !ok || io.ReadBytes != n {
		t.Errorf("bytes read: got %+v (%v), want %d", io, ok, n)
	}
	return n
}

func wantTicks(t *testing.T, what string, m *machine, tree *process.Tree, want uint64) {
	t.Helper()
	if got := ticks(t, m, tree); got != want {
		t.Errorf("%s: got %d ticks, want %d", what, got, want)
	}
}

func TestTree_Scan(t *testing.T) {
	t.Run("descendants count and others do not", func(t *testing.T) {
		m := newMachine(t)
		root := m.fork(1)
		kid := m.fork(root)
		grandkid := m.fork(kid)
		stranger := m.fork(1)
		m.work(root, 1)
		m.work(kid, 10)
		m.work(grandkid, 100)
		m.work(stranger, 1000)
		tree := m.tree(root, 0)
		wantTicks(t, "total", m, tree, 111)
		got, err := tree.Scan()
		if err != nil || got.Processes != 3 || got.Threads != 6 || got.ResidentBytes != 9*uint64(os.Getpagesize()) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("a child that was waited for counts once", func(t *testing.T) {
		m := newMachine(t)
		root := m.fork(1)
		kid := m.fork(root)
		tree := m.tree(root, 0)
		m.work(kid, 10)
		wantTicks(t, "alive", m, tree, 10)
		m.work(kid, 5)
		m.exit(kid)
		wantTicks(t, "ended", m, tree, 15)
		m.wait(kid)
		wantTicks(t, "waited for", m, tree, 15)
		wantTicks(t, "again", m, tree, 15)
	})
	t.Run("a child between two scans counts by its parent", func(t *testing.T) {
		m := newMachine(t)
		root := m.fork(1)
		tree := m.tree(root, 0)
		wantTicks(t, "before", m, tree, 0)
		kid := m.fork(root)
		m.work(kid, 7)
		m.exit(kid)
		m.wait(kid)
		wantTicks(t, "after", m, tree, 7)
	})
	t.Run("a child that nobody waits for is kept as last seen", func(t *testing.T) {
		m := newMachine(t)
		root := m.fork(1)
		seen, unseen := m.fork(root), m.fork(root)
		tree := m.tree(root, 0)
		m.work(seen, 10)
		wantTicks(t, "alive", m, tree, 10)
		m.work(unseen, 3)
		m.exit(unseen)
		m.wait(unseen)
		m.drop(seen)
		// The parent's account grew by 3, which may have been the one seen.
		wantTicks(t, "dropped", m, tree, 10)
	})
	t.Run("an orphan stays, and is kept when it ends", func(t *testing.T) {
		m := newMachine(t)
		root := m.fork(1)
		kid := m.fork(root)
		orphan := m.fork(kid)
		m.work(orphan, 4)
		tree := m.tree(root, 0)
		wantTicks(t, "before", m, tree, 4)
		m.exit(kid)
		m.wait(kid)
		m.work(orphan, 4)
		wantTicks(t, "orphaned", m, tree, 8)
		m.exit(orphan)
		m.wait(orphan) // by pid 1
		wantTicks(t, "ended", m, tree, 8)
	})
	t.Run("an orphan never seen is found at the reaper", func(t *testing.T) {
		m := newMachine(t)
		reaper := m.fork(1)
		root := m.fork(reaper)
		tree := m.tree(root, reaper)
		wantTicks(t, "before", m, tree, 0)
		orphan := m.fork(reaper)
		m.work(orphan, 6)
		m.work(reaper, 50)
		wantTicks(t, "adopted", m, tree, 6)
	})
	t.Run("the root's end keeps all", func(t *testing.T) {
		m := newMachine(t)
		root := m.fork(1)
		kid := m.fork(root)
		m.work(root, 1)
		m.work(kid, 2)
		tree := m.tree(root, 0)
		wantTicks(t, "before", m, tree, 3)
		m.exit(kid)
		m.wait(kid)
		m.exit(root)
		m.wait(root)
		wantTicks(t, "after", m, tree, 3)
		if got, err := tree.Scan(); err != nil || got.Processes != 0 || got.ResidentBytes != 0 {
			t.Errorf("got %+v, %v, want nobody", got, err)
		}
	})
	t.Run("a pid used again is another process", func(t *testing.T) {
		m := newMachine(t)
		root := m.fork(1)
		kid := m.fork(root)
		m.work(kid, 9)
		tree := m.tree(root, 0)
		wantTicks(t, "before", m, tree, 9)
		m.exit(kid)
		m.wait(kid)
		m.put(&proc{pid: kid, parent: 1, start: 999_999, own: 5000})
		wantTicks(t, "taken by a stranger", m, tree, 9)
		m.put(&proc{pid: kid, parent: root, start: 1_999_999, own: 30})
		wantTicks(t, "taken by a child", m, tree, 39)
		m.exit(root)
		m.wait(root)
		m.put(&proc{pid: root, parent: 1, start: 2_999_999, own: 5000})
		wantTicks(t, "root taken by a stranger", m, tree, 39)
	})
	t.Run("IO that may not be read is not known", func(t *testing.T) {
		m := newMachine(t)
		root := m.fork(1)
		tree := m.tree(root, 0)
		if err := os.Remove(filepath.Join(m.root, strconv.Itoa(root), "io")); err != nil {
			t.Fatal(err)
		}
		got, err := tree.Scan()
		if err != nil || got.IO.Known || got.Hidden != 1 {
			t.Errorf("got %+v, %v, want no IO and one hidden", got, err)
		}
	})
}

func TestFS_NewTree_gone(t *testing.T) {
	m := newMachine(t)
	m.write()
	if _, err := process.Open(m.root).NewTree(77, 0); !errors.Is(err, cimeter.ErrGone) {
		t.Errorf("got %v, want gone", err)
	}
}

// Whatever the processes do, the total never falls and never exceeds the truth,
// and it is the truth as long as every one that ends is waited for in the tree.
func TestTree_Scan_property(t *testing.T) {
	for seed := range uint64(16) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			orderly := seed%2 == 0
			rng := rand.New(rand.NewPCG(seed, 1))
			m := newMachine(t)
			root := m.fork(1)
			tree := m.tree(root, 0)
			mine := []int{root} // of the tree, living
			var zombies []int
			var truth, last uint64
			for range 150 {
				switch i := rng.IntN(len(mine)); rng.IntN(7) {
				case 0, 1:
					if len(mine) < 20 {
						mine = append(mine, m.fork(mine[i]))
					}
				case 2, 3:
					d := rng.Uint64N(50)
					m.work(mine[i], d)
					truth += d
				case 4: // end one
					pid := mine[i]
					leaf := true
					for _, p := range m.all {
						leaf = leaf && p.parent != pid
					}
					if pid == root || orderly && !leaf {
						break
					}
					m.exit(pid)
					mine = append(mine[:i], mine[i+1:]...)
					zombies = append(zombies, pid)
				case 5: // have one waited for
					if len(zombies) == 0 {
						break
					}
					j := rng.IntN(len(zombies))
					if p := m.all[zombies[j]]; !orderly && rng.IntN(3) == 0 {
						m.drop(p.pid)
					} else {
						m.wait(p.pid)
					}
					zombies = append(zombies[:j], zombies[j+1:]...)
				case 6:
					got := ticks(t, m, tree)
					if got < last {
						t.Fatalf("total fell from %d to %d", last, got)
					}
					if got > truth {
						t.Fatalf("total %d exceeds the truth %d", got, truth)
					}
					if orderly && got != truth {
						t.Fatalf("total %d, want %d", got, truth)
					}
					last = got
				}
			}
		})
	}
}

func TestTree_Scan_ofRealProcesses(t *testing.T) {
	c := run(t)
	do(t, c, "burn 50", "start")
	tree, err := process.Open("").NewTree(c.pid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tree.Scan(); err != nil || got.Processes != 2 {
		t.Fatalf("got %d processes, %v, want 2", got.Processes, err)
	}
	do(t, c, "tell burn 100", "wait", "start", "tell burn 70", "wait", "start", "tell burn 40")
	got, err := tree.Scan()
	if err != nil {
		t.Fatal(err)
	}
	if cpu := got.UserTime + got.SystemTime; cpu < 220*time.Millisecond { // 260 and starting, less the steps of 10 ms
		t.Errorf("CPU time: got %v, want that of the child and its three children", cpu)
	}
	zombie(t, c)
	if got, err = tree.Scan(); err != nil {
		t.Fatal(err)
	}
	c.end()
	after, err := tree.Scan()
	if err != nil {
		t.Fatal(err)
	}
	if after.UserTime < got.UserTime || after.SystemTime < got.SystemTime {
		t.Errorf("total fell from %v to %v", got, after)
	}
}

// Processes that come and go while they are being looked at are counted once.
func TestTree_Scan_underChurn(t *testing.T) {
	cmd := exec.Command("sh", "-c", `i=0; while [ $i -lt 300 ]; do (: | cat >/dev/null); i=$((i+1)); done`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := process.OpenPidfd(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	tree, err := process.Open("").NewTree(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	scans := 0
	for ; !ended(t, fd, 0); scans++ {
		if _, err := tree.Scan(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := tree.Scan() // it ended and is not waited for: its account is final
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	total, truth := got.UserTime+got.SystemTime, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	if total > truth || total < truth-40*time.Millisecond { // four numbers in steps of 10 ms
		t.Errorf("after %d scans: got %v, want %v less at most 40ms", scans, total, truth)
	}
}

func TestTotals_Set(t *testing.T) {
	o := process.Totals{UserTime: 2 * time.Second, SystemTime: time.Second, Threads: 7}
	var s cimeter.Sample
	o.Set(&s)
	if v, ok := s.Counter(cimeter.CPUTotal); !ok || v != 3e9 {
		t.Errorf("CPU: got %d (%v), want 3e9 ns", v, ok)
	}
	if _, ok := s.Counter(cimeter.IOReadBytes); ok {
		t.Error("IO that is not known is in the sample")
	}
	if _, ok := s.Gauge(cimeter.MemoryCurrent); ok {
		t.Error("resident pages went for memory")
	}
	if v, ok := s.Gauge(cimeter.Processes); !ok || v != 7 {
		t.Errorf("tasks: got %d (%v), want 7", v, ok)
	}
	o.IO = cimeter.Some(process.IO{ReadBytes: 5, WriteBytes: 6})
	o.Set(&s)
	if v, ok := s.Counter(cimeter.IOWriteBytes); !ok || v != 6 {
		t.Errorf("IO: got %d (%v), want 6", v, ok)
	}
}
