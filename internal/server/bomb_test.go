package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cimeter/cimeter/internal/wire"
)

// zstdBomb is a zstd frame of n blocks that each say 128 KiB of one byte in four
// bytes (RFC 8878).
func zstdBomb(n int) []byte {
	const block = 128 << 10
	b := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x50} // no size, a window of 1 MiB
	for i := range n {
		head := block<<3 | 1<<1 // of repeated bytes
		if i == n-1 {
			head |= 1
		}
		b = append(b, byte(head), byte(head>>8), byte(head>>16), '\n')
	}
	return b
}

// peak is the most memory that a process ever had resident, in bytes.
func peak(t *testing.T, pid int) (n int64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &n); err == nil {
			return n << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// 320 KB that would unpack to 10 GB are refused, one after the other and many
// at once, and cost the server little memory (T19).
func TestServer_bomb(t *testing.T) {
	p := startProcess(t, t.TempDir(), "")
	defer p.end(syscall.SIGTERM)
	bomb := zstdBomb(80_000)
	send := func() int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.addr+wire.RecordsPath, bytes.NewReader(bomb))
		if err != nil {
			t.Error(err)
			return 0
		}
		r.Header.Set("Content-Type", wire.ContentType())
		r.Header.Set("Content-Encoding", "zstd")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	before := peak(t, p.cmd.Process.Pid)
	for range 5 {
		if got := send(); got != http.StatusRequestEntityTooLarge {
			t.Fatalf("%d: want 413", got)
		}
	}
	alone := peak(t, p.cmd.Process.Pid) - before
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if got := send(); got != http.StatusRequestEntityTooLarge && got != http.StatusTooManyRequests {
				t.Errorf("%d: want 413 or 429", got)
			}
		})
	}
	all.Wait()
	together := peak(t, p.cmd.Process.Pid) - before
	t.Logf("%d KB that say 10 GB: %d MiB more for five in turn, %d MiB for 20 at once", len(bomb)>>10, alone>>20, together>>20)
	if alone > 16<<20 || together > 16*24<<20 {
		t.Errorf("%d MiB more, %d MiB at once: want at most 16, and 24 for each of the 16 that are unpacked at once", alone>>20, together>>20)
	}
}
