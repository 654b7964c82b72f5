package records_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter/internal/records"
)

// seeded returns a source of random moments; the seed is printed and
// RECORDS_SEED plays it again.
func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("RECORDS_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("RECORDS_SEED=%s: want a number", s)
		}
	}
	t.Logf("RECORDS_SEED=%d plays this again", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// childProcess is a running child. reached is closed when it has told of the
// first thing done, so that a slow machine does not cut all of them short.
type childProcess struct {
	*exec.Cmd
	out     bytes.Buffer
	reached chan struct{}
}

func (c *childProcess) Write(b []byte) (int, error) {
	if c.out.Len() == 0 {
		close(c.reached)
	}
	return c.out.Write(b)
}

func newChild(t *testing.T, dir string, env ...string) *childProcess {
	c := &childProcess{Cmd: exec.CommandContext(t.Context(), os.Args[0]), reached: make(chan struct{})}
	c.Env = append(os.Environ(), append(env, "RECORDS_CHILD_DIR="+dir)...)
	c.Stdout, c.Stderr = c, os.Stderr
	return c
}

// runUntil starts a child, lets it run until a random moment within the given
// time after it has begun to write, calls end, and returns what the child told.
func runUntil(t *testing.T, random *rand.Rand, within time.Duration, end func(*childProcess), dir string, first int) truth {
	t.Helper()
	c := newChild(t, dir, fmt.Sprintf("RECORDS_CHILD_FIRST=%d", first))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	<-c.reached
	<-time.After(time.Duration(random.Int64N(int64(within))))
	end(c)
	if err := c.Wait(); err == nil {
		t.Fatal("the child ended by itself")
	}
	return readTruth(c.out.String())
}

// verify opens the directory and holds it against the truth: what was
// acknowledged is there once, whole; a build of which only the checkpoint was
// acknowledged has that, or its record.
func verify(t *testing.T, dir string, want truth) {
	t.Helper()
	d, err := records.Open(records.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rows := map[string]int{}
	for _, k := range all(t, d, 500, nil) {
		rows[k]++
	}
	states := map[string]string{}
	if err := d.Checkpoints(func(k string, b []byte) error { states[k] = string(b); return nil }); err != nil {
		t.Fatal(err)
	}
	lost, duplicates := 0, 0
	for n := range want.put {
		if rows[key(n)] == 0 {
			lost++
		}
	}
	for _, n := range rows {
		if n > 1 {
			duplicates++
		}
	}
	for n := range want.checkpoint {
		if rows[key(n)] == 0 && states[key(n)] != key(n) {
			t.Errorf("build %d: neither its record nor its checkpoint is there", n)
		}
	}
	for k, s := range states {
		if s != k {
			t.Errorf("checkpoint of %s holds %q", k, s)
		}
	}
	if s := d.Stats(); lost > 0 || duplicates > 0 || s.Corrupt > 0 || s.CheckpointsCorrupt > 0 {
		t.Fatalf("of %d records acknowledged %d are lost, %d there twice, %d damaged; %d checkpoints damaged",
			len(want.put), lost, duplicates, s.Corrupt, s.CheckpointsCorrupt)
	}
	if n := len(recordFiles(t, dir, ".unfinished-*")); n > 0 {
		t.Errorf("%d leftovers after Open", n)
	}
}

func merge(into *truth, from truth) {
	for n := range from.put {
		into.put[n] = true
	}
	for n := range from.checkpoint {
		into.checkpoint[n] = true
	}
	into.last = max(into.last, from.last)
}

// Killed at any moment, 200 times over, the directory loses nothing that was
// acknowledged.
func TestDir_Kill(t *testing.T) {
	iterations := 200
	if testing.Short() {
		iterations = 20
	}
	random := seeded(t)
	dir := t.TempDir()
	want := readTruth("")
	for range iterations {
		// The number that was being written was not acknowledged, yet may be
		// there: the next child writes it again.
		got := runUntil(t, random, 30*time.Millisecond, func(c *childProcess) { c.Process.Kill() }, dir, want.last+1)
		merge(&want, got)
		verify(t, dir, got)
	}
	verify(t, dir, want)
	t.Logf("%d kills, %d records acknowledged, lost 0, twice 0", iterations, len(want.put))
}

// Killed just before each step of a write.
func TestDir_KillAtStep(t *testing.T) {
	for _, step := range []string{records.StepCreate, records.StepWrite, records.StepSync, records.StepRename, records.StepSyncDir, records.StepEvict} {
		for at := 1; at <= 6; at++ {
			t.Run(fmt.Sprintf("%s %d", step, at), func(t *testing.T) {
				dir := t.TempDir()
				env := []string{"RECORDS_CHILD_KILL_STEP=" + step, fmt.Sprintf("RECORDS_CHILD_KILL_AT=%d", at), "RECORDS_CHILD_COUNT=10"}
				if step == records.StepEvict {
					env = append(env, "RECORDS_CHILD_MAX=3")
				}
				c := newChild(t, dir, env...)
				if err := c.Run(); err == nil {
					t.Fatal("the child was not killed")
				}
				want := readTruth(c.out.String())
				if step == records.StepEvict {
					for n := range want.put { // those that the bound of 3 let go
						if n <= want.last-3 {
							delete(want.put, n)
							delete(want.checkpoint, n)
						}
					}
				}
				verify(t, dir, want)
				// The next life goes on where this one ended.
				c = newChild(t, dir, "RECORDS_CHILD_COUNT=10")
				if err := c.Run(); err != nil {
					t.Fatalf("%v: %s", err, c.out.String())
				}
				verify(t, dir, readTruth(c.out.String()))
			})
		}
	}
}

// need says why a test cannot run; with CI=true that is a failure.
func need(t *testing.T, err error, what string) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("needs %s: %v", what, err)
	}
	t.Skipf("needs %s: %v", what, err)
}

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// mount mounts what args say and unmounts it after the test.
func mount(t *testing.T, target string, args ...string) {
	t.Helper()
	if err := os.MkdirAll(target, 0o700); err != nil {
		t.Fatal(err)
	}
	need(t, run("mount", append(args, target)...), "root and mount(8)")
	t.Cleanup(func() { unix.Unmount(target, unix.MNT_DETACH) })
}

// The power fails at random moments: the file system stops without writing its
// log, and what was acknowledged is there when it is mounted again.
func TestDir_PowerCut(t *testing.T) {
	iterations := 20
	if testing.Short() {
		iterations = 3
	}
	random := seeded(t)
	base := t.TempDir()
	image, target := filepath.Join(base, "disk.img"), filepath.Join(base, "mnt")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 32<<20); err != nil {
		t.Fatal(err)
	}
	need(t, run("mkfs.ext4", "-q", "-F", image), "mkfs.ext4")
	want := readTruth("")
	mount(t, target, "-o", "loop", image)
	dir := filepath.Join(target, "records")
	for i := range iterations {
		merge(&want, runUntil(t, random, 100*time.Millisecond, func(*childProcess) { shutdown(t, target) }, dir, want.last+1)) // its next write fails
		if err := run("umount", target); err != nil {
			t.Fatal(err)
		}
		// What the disk holds now goes on as a disk of its own: the dead file
		// system may live on in a mount namespace that was made meanwhile.
		next := filepath.Join(base, fmt.Sprintf("disk-%d.img", i))
		if err := run("cp", "--sparse=always", image, next); err != nil {
			t.Fatal(err)
		}
		os.Remove(image)
		image = next
		if err := run("mount", "-o", "loop", image, target); err != nil {
			t.Fatal(err)
		}
		verify(t, dir, want)
	}
	t.Logf("%d power cuts, %d records acknowledged, lost 0", iterations, len(want.put))
}

// shutdown stops an ext4 as a power cut does: EXT4_IOC_SHUTDOWN with
// EXT4_GOING_FLAGS_NOLOGFLUSH (fs/ext4/ext4.h).
func shutdown(t *testing.T, target string) {
	t.Helper()
	f, err := os.Open(target)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	need(t, unix.IoctlSetPointerInt(int(f.Fd()), 0x8004587d, 2), "an ext4 that can be shut down")
}
