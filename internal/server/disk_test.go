package server_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cimeter/cimeter/internal/push"
)

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

// On a disk that is full nothing is acknowledged, what was is there, and when
// there is room again it goes on without a restart (F10).
func TestServer_diskFull(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	need(t, exec.Command("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk).Run(), "root and mount(8)")
	t.Cleanup(func() { syscall.Unmount(disk, syscall.MNT_DETACH) })
	p := startProcess(t, disk, "")
	defer p.end(syscall.SIGTERM)
	way, err := push.NewSender(push.SenderOptions{URL: "http://" + p.addr})
	if err != nil {
		t.Fatal(err)
	}
	defer way.Close()
	send := func(from int) error {
		var lines [][]byte
		for n := range 20 {
			b, err := json.Marshal(record(from + n))
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, b)
		}
		_, err := way.Records(t.Context(), lines)
		return err
	}
	taken := 0
	var full error
	for full == nil && taken < 20_000 {
		if full = send(taken); full == nil {
			taken += 20
		}
	}
	var refusal *push.Refusal
	if !errors.As(full, &refusal) || refusal.Status != http.StatusServiceUnavailable || refusal.After == 0 {
		t.Fatalf("after %d records: %v: want 503 with Retry-After", taken, full)
	}
	exactlyOnce(t, stored(t, p.addr), taken)
	if err := exec.Command("mount", "-o", "remount,size=32m", disk).Run(); err != nil {
		t.Fatal(err)
	}
	if err := send(taken); err != nil {
		t.Fatalf("with room again: %v", err)
	}
	exactlyOnce(t, stored(t, p.addr), taken+20)
	t.Logf("full after %d records, lost 0", taken)
}
