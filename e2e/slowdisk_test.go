package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
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
	image := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	disk := mounted(t, "-o", "loop", image)
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
	client := &http.Client{Transport: a.client.Transport, Timeout: 2 * time.Second}
	rounds := a.metric("cimeter_agent_rounds_total")
	var slowest time.Duration
	waited := 0.0
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	begun := time.Now()
	for time.Since(begun) < slow {
		at := time.Now()
		resp, err := client.Get("http://" + a.address + "/metrics")
		if err != nil {
			t.Fatalf("a scrape while the disk is slow: %v", err)
		}
		resp.Body.Close()
		slowest = max(slowest, time.Since(at))
		waited = max(waited, a.metric("cimeter_agent_records_pending"))
		<-tick.C
	}
	took := time.Since(begun)
	rounds = a.metric("cimeter_agent_rounds_total") - rounds
	limit(0)
	if err := neighbour.Wait(); err != nil {
		t.Errorf("dd: %v", err)
	}
	t.Logf("slow for %v: %v rounds, the slowest scrape took %v, up to %v records waited", took, rounds, slowest, waited)
	if least := took.Seconds() / 0.2 / 2; rounds < least {
		t.Errorf("%v rounds of sampling in %v, want one each 200 ms and not less than %v on a busy machine", rounds, took, least)
	}
	if waited == 0 {
		t.Error("no record waited for the disk: it was not slow")
	}
	// A machine whose CPUs are all busy may cost an end; settle holds that it is
	// marked then.
	account := c.end(t)
	account.settle(t, a)
}
