package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// throttle is the kernel's file for how many bytes a second are written to a device
// (cgroup v1, of all processes).
const throttle = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device"

// TestAgentDiskSlow gives the records a disk of 1 MB/s, which a neighbour writes to
// without end: each record waits for seconds. Sampling goes on and scrapes are
// answered; all is on disk in the end (F14).
func TestAgentDiskSlow(t *testing.T) {
	const slow = 6 * time.Second
	require(t, "mkfs.ext4", "findmnt", "dd")
	if _, err := os.Stat(throttle); err != nil {
		unable(t, "no throttle for all processes: %v", err)
	}
	b := newBare(t)
	disk := ext4(t, 64<<20)
	device, err := exec.Command("findmnt", "--noheadings", "--output", "MAJ:MIN", disk).Output()
	if err != nil {
		t.Fatal(err)
	}
	limit := func(bytes int) {
		if err := os.WriteFile(throttle, fmt.Appendf(nil, "%s %d", strings.TrimSpace(string(device)), bytes), 0o600); err != nil {
			unable(t, "throttle: %v", err)
		}
	}
	a := newAgent(t, b, bareConfig())
	a.data = filepath.Join(disk, "data")
	a.start()
	a.watchCounters()
	c := b.churn(4, 1000, steady(rand.New(rand.NewPCG(seed(t), 6))))
	limit(1e6)
	defer limit(0)
	neighbour := exec.Command("dd", "if=/dev/zero", "of="+filepath.Join(disk, "neighbour"), "bs=1M", "count=16", "conv=fsync", "status=none")
	if err := neighbour.Start(); err != nil {
		t.Fatal(err)
	}
	waited := a.goesOn(slow)
	limit(0)
	if err := neighbour.Wait(); err != nil {
		t.Errorf("dd: %v", err)
	}
	if waited == 0 {
		t.Error("no record waited for the disk: it was not slow")
	}
	// A machine whose CPUs are all busy may cost an end; settle holds that it is
	// marked then.
	account := c.end(t)
	account.settle(t, a)
}
