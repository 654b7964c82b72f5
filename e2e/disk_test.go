package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// mounted mounts something for the time of a test and returns where.
func mounted(t *testing.T, args ...string) string {
	t.Helper()
	require(t, "mount", "umount")
	at := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", append(args, at)...).CombinedOutput(); err != nil {
		unable(t, "mount %q: %v: %s", args, err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", at).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v: %s", at, err, out)
		}
	})
	return at
}

// fill takes all that is left of a disk, space and inodes.
func fill(t *testing.T, disk string) (free func()) {
	t.Helper()
	dir := filepath.Join(disk, "fill")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var full error
	for size := 256 << 10; size > 0; size /= 4 {
		full = nil
		for n := 0; full == nil; n++ {
			full = os.WriteFile(fmt.Sprintf("%s/%d-%d", dir, size, n), bytes.Repeat([]byte("x"), size), 0o600)
		}
	}
	if !errors.Is(full, syscall.ENOSPC) {
		t.Fatal(full)
	}
	return func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// diskFault is one that lasts until it is taken back.
type diskFault struct {
	name  string
	mount []string
	begin func(t *testing.T, a *agent, disk string) (end func())
}

var diskFaults = []diskFault{
	{"Full", []string{"-t", "tmpfs", "-o", "size=16m", "tmpfs"}, func(t *testing.T, _ *agent, disk string) func() { return fill(t, disk) }},
	{"NoInodes", []string{"-t", "tmpfs", "-o", "size=64m,nr_inodes=1000", "tmpfs"}, func(t *testing.T, _ *agent, disk string) func() { return fill(t, disk) }},
	{"ReadOnly", []string{"-t", "tmpfs", "-o", "size=16m", "tmpfs"}, func(t *testing.T, _ *agent, disk string) func() {
		remount(t, disk, "ro")
		return func() { remount(t, disk, "rw") }
	}},
	{"SyncFails", []string{"-t", "tmpfs", "-o", "size=16m", "tmpfs"}, func(_ *testing.T, a *agent, _ string) func() {
		return a.inject("fsync", "error=EIO")
	}},
}

func remount(t *testing.T, disk, mode string) {
	t.Helper()
	if out, err := exec.Command("mount", "-o", "remount,"+mode, disk).CombinedOutput(); err != nil {
		t.Fatalf("mounting %s %s: %v: %s", disk, mode, err, out)
	}
}

// TestAgentDisk takes the disk of the records away while builds come and go:
// metering goes on, /metrics answers and says so, the agent is not ready and
// says why; once the disk is there again, without a restart, every build has
// its record.
func TestAgentDisk(t *testing.T) {
	for _, f := range diskFaults {
		t.Run(f.name, func(t *testing.T) {
			b := newPatientBare(t)
			disk := mounted(t, f.mount...)
			a := newAgent(t, b, patientConfig())
			a.data = filepath.Join(disk, "data")
			a.start()
			a.watchCounters()
			c := account{want: map[string]time.Duration{}}
			run := func(numbers ...int) {
				var wg sync.WaitGroup
				var list []*bareBuild
				for _, number := range numbers {
					s := b.build(number)
					list = append(list, s)
					wg.Go(func() {
						if err := s.run("one", "two"); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				for _, s := range list {
					c.want[s.Key()] = s.spent
				}
			}
			run(1)
			a.await(b.build(1).Key())
			cpu := a.metric("cimeter_stage_cpu_seconds_total", `project="acme/bare"`)
			end := f.begin(t, a, disk)
			spent := -c.want[b.build(1).Key()]
			run(10, 11, 12, 13, 14)
			for _, s := range c.want {
				spent += s
			}
			a.eventually("the records wait", func() error {
				// More where somebody else on this machine has builds; settle counts these.
				if n := a.metric("cimeter_agent_records_pending"); n < 5 {
					return fmt.Errorf("%v records wait, want 5", n)
				}
				return nil
			})
			if n := a.metric("cimeter_agent_record_write_failures_total"); n < 1 {
				t.Errorf("%v failures counted, want some", n)
			}
			// Not all of it where the agent is late for ends: see below.
			if more := a.metric("cimeter_stage_cpu_seconds_total", `project="acme/bare"`); more < cpu+spent.Seconds()/4 {
				t.Errorf("CPU time counted went from %v to %v s, want a quarter of %v more at least: metering goes on", cpu, more, spent)
			}
			if page, err := a.get("/readyz"); err == nil || !strings.Contains(string(page), a.data) && !strings.Contains(string(page), "record") {
				t.Errorf("/readyz says %q (%v), want not ready for the records", page, err)
			}
			if _, err := a.get("/healthz"); err != nil {
				t.Error(err)
			}
			end()
			c.settle(t, a)
			for key := range c.want {
				// A traced agent stops at each of its system calls, and may be late
				// for an end; its account says so, and is held by settle.
				if r := a.await(key); f.name != "SyncFails" {
					checkComplete(t, &r)
				}
			}
			a.eventually("the agent is ready again", func() error {
				_, err := a.get("/readyz")
				return err
			})
		})
	}
}

// TestAgentDiskFullForLong ends more builds than are kept in memory while the
// disk is full: the oldest are dropped, and the counter says exactly how many.
func TestAgentDiskFullForLong(t *testing.T) {
	const bound, more = 512, 12 // agent.maxPending
	b := newBare(t)
	disk := mounted(t, "-t", "tmpfs", "-o", "size=64m", "tmpfs")
	a := newAgent(t, b, bareConfig("  trace: false"))
	a.data = filepath.Join(disk, "data")
	a.start()
	free := fill(t, disk)
	want := map[string]time.Duration{}
	for n := range bound + more {
		s := b.build(1 + n)
		if err := s.step("only", "cpu=0.001"); err != nil {
			t.Fatal(err)
		}
		s.remove()
		want[s.Key()] = s.spent
	}
	a.eventually("all builds are over", func() error {
		pending, dropped := a.metric("cimeter_agent_records_pending"), a.metric("cimeter_agent_dropped_total", `reason="disk"`)
		if pending != bound || dropped != more {
			return fmt.Errorf("%v wait and %v were dropped, want %d and %d", pending, dropped, bound, more)
		}
		return nil
	})
	free()
	a.eventually("the records are on disk", func() error {
		if n := a.metric("cimeter_agent_records_pending"); n > 0 {
			return fmt.Errorf("%v wait", n)
		}
		return nil
	})
	keys, err := a.keys()
	if err != nil {
		t.Fatal(err)
	}
	dropped := int(a.metric("cimeter_agent_dropped_total", `reason="disk"`))
	if len(keys) != len(want)-dropped || dropped != more {
		t.Errorf("%d builds ended: %d records, %d dropped, want %d and %d", len(want), len(keys), dropped, bound, more)
	}
	slices.Sort(keys)
	if n := len(slices.Compact(keys)); n != len(keys) {
		t.Errorf("%d of %d records are there twice", len(keys)-n, len(keys))
	}
	if slices.Contains(keys, b.build(1).Key()) {
		t.Error("the oldest build has a record, want it dropped")
	}
}

// TestAgentDiskReadOnlyAtStart: the agent does not start and says what is wrong
// with which folder.
func TestAgentDiskReadOnlyAtStart(t *testing.T) {
	b := newBare(t)
	disk := mounted(t, "-t", "tmpfs", "-o", "size=1m", "tmpfs")
	remount(t, disk, "ro")
	a := newAgent(t, b, bareConfig())
	a.data = filepath.Join(disk, "data")
	out, err := a.command().CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), a.data) || !strings.Contains(string(out), "read-only") {
		t.Errorf("the agent ended with %v: %s, want 1 and the folder named", err, out)
	}
}

// TestAgentDiskHangs freezes the disk of the records under a running agent:
// what writes there hangs and cannot even be killed. Sampling goes on and
// scrapes are answered; all is on disk once it thaws.
func TestAgentDiskHangs(t *testing.T) {
	const frozen = 8 * time.Second
	require(t, "fsfreeze", "mkfs.ext4")
	b := newPatientBare(t)
	disk := ext4(t, 32<<20)
	a := newAgent(t, b, patientConfig())
	a.data = filepath.Join(disk, "data")
	a.start()
	a.watchCounters()
	c := b.churn(4, 1000, steady(rand.New(rand.NewPCG(seed(t), 5))))

	// Whatever becomes of this process, the disk thaws.
	watchdog := exec.Command("sh", "-c", `sleep "$1"; fsfreeze -u "$2"`, "watchdog", fmt.Sprint(3*frozen.Seconds()), disk)
	watchdog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if out, err := exec.Command("fsfreeze", "-f", disk).CombinedOutput(); err != nil {
		unable(t, "fsfreeze: %v: %s", err, out)
	}
	if err := watchdog.Start(); err != nil {
		_ = exec.Command("fsfreeze", "-u", disk).Run()
		t.Fatal(err)
	}
	thaw := func() {
		_ = exec.Command("fsfreeze", "-u", disk).Run() // the watchdog may have been first
		_ = syscall.Kill(-watchdog.Process.Pid, syscall.SIGKILL)
		_ = watchdog.Wait() // it was killed
	}
	defer thaw()

	waited := a.goesOn(frozen)
	thaw()
	if waited == 0 {
		t.Error("no record waits for the disk: it did not hang")
	}
	account := c.end(t)
	account.settle(t, a)
	for key := range account.want {
		r := a.await(key)
		checkComplete(t, &r)
	}
}

// ext4 is the folder of a file system of its own, of so many bytes.
func ext4(t *testing.T, bytes int64) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, bytes); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	return mounted(t, "-o", "loop", image)
}

// goesOn holds that the agent samples and answers scrapes for so long, though its disk
// does not, and returns how many records waited for that at most.
func (a *agent) goesOn(long time.Duration) (waited float64) {
	a.t.Helper()
	client := &http.Client{Transport: a.client.Transport, Timeout: 5 * time.Second} // a scrape that waits for the disk takes long
	rounds := a.metric("cimeter_agent_rounds_total")
	var slowest time.Duration
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	begun := time.Now()
	for time.Since(begun) < long {
		at := time.Now()
		resp, err := client.Get("http://" + a.address + "/metrics")
		if err != nil {
			a.t.Fatalf("a scrape while the disk does not answer: %v", err)
		}
		resp.Body.Close()
		slowest = max(slowest, time.Since(at))
		waited = max(waited, a.metric("cimeter_agent_records_pending"))
		<-tick.C
	}
	took := time.Since(begun)
	rounds = a.metric("cimeter_agent_rounds_total") - rounds
	a.t.Logf("for %v: %v rounds, the slowest scrape took %v, up to %v records waited", took, rounds, slowest, waited)
	if least := took.Seconds() / 0.2 / 2; rounds < least {
		a.t.Errorf("%v rounds of sampling in %v, want one each 200 ms and not less than %v on a busy machine", rounds, took, least)
	}
	return waited
}
