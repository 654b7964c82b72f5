package testtools_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter/internal/testtools"
)

// A tool is built once, starts on ports of its own, answers, and is gone with
// Kill.
func TestStart(t *testing.T) {
	if a, b := testtools.Path(t, testtools.StatsdExporter), testtools.Path(t, testtools.StatsdExporter); a != b {
		t.Errorf("%s and %s: want one binary", a, b)
	}
	p := testtools.Start(t, testtools.StatsdExporter,
		"--web.listen-address=127.0.0.1:0", "--statsd.listen-udp=127.0.0.1:0", "--statsd.listen-tcp=")
	if n := len(p.Ports(t, "udp", 1)); n != 1 {
		t.Errorf("%d UDP ports, want 1", n)
	}
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", p.Ports(t, "tcp", 1)[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(b), "statsd_exporter_build_info") {
		t.Errorf("%v, %.200s: want a page of statsd_exporter", err, b)
	}
	p.Kill()
	<-p.Done()
}

// A tied program lives on when the thread that asked for it has ended.
func TestStartTied(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	started, thread := make(chan error, 1), make(chan int, 1)
	var start func()
	start = func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if tid := unix.Gettid(); tid != os.Getpid() {
			thread <- tid
			started <- testtools.StartTied(cmd)
			return
		}
		var other sync.WaitGroup
		other.Go(start) // the first thread never ends, and is not to be had while this waits
		other.Wait()
		runtime.UnlockOSThread()
	}
	go start()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	for tid := <-thread; unix.Tgkill(os.Getpid(), tid, 0) == nil; {
		runtime.Gosched()
	}
	if _, err := io.WriteString(in, "lives\n"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 6)
	if _, err := io.ReadFull(out, b); err != nil || string(b) != "lives\n" {
		t.Errorf("%v, %q: want it to live", err, b)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := testtools.StartTied(exec.Command("/no/such/program")); err == nil {
		t.Error("a program was started that is not there")
	}
}
