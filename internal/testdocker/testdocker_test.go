package testdocker_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/testdocker"
)

func TestContainerRunsAndIsBooked(t *testing.T) {
	d := testdocker.Start(t, testdocker.Options{})
	exit, err := d.Run(t.Context(), testdocker.Spec{Cmd: []string{"sh", "-c", "echo $GREETING; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exit 7"}, Env: []string{"GREETING=hello"}})
	if err != nil {
		t.Fatal(err)
	}
	if exit.Code != 7 || exit.Output != "hello" {
		t.Errorf("got exit %d, output %q, want 7 and hello", exit.Code, exit.Output)
	}
	cpu, err := d.CPU()
	if err != nil {
		t.Fatal(err)
	}
	if cpu < 10*time.Millisecond {
		t.Errorf("the parent cgroup kept %v of CPU time, want what the loop burnt", cpu)
	}
}

func TestScriptOnStandardInputTwice(t *testing.T) {
	d := testdocker.Start(t, testdocker.Options{})
	id, err := d.Create(t.Context(), testdocker.Spec{Cmd: []string{"sh"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"one", "two"} {
		exit, err := d.Play(t.Context(), id, "echo "+word+"\n")
		if err != nil {
			t.Fatal(err)
		}
		if exit.Code != 0 || exit.Output != word {
			t.Errorf("got exit %d, output %q, want 0 and %s", exit.Code, exit.Output, word)
		}
	}
}

func TestContainerOutlivesKilledDaemon(t *testing.T) {
	d := testdocker.Start(t, testdocker.Options{Args: []string{"--live-restore"}})
	id, err := d.Create(t.Context(), testdocker.Spec{Cmd: []string{"sleep", "600"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Begin(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	d.Kill()
	d.Restart()
	if err := d.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

func TestReachableOnlyInsideItsNamespace(t *testing.T) {
	d := testdocker.Start(t, testdocker.Options{})
	l, err := d.Listen("tcp4", d.Gateway()+":0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "inside") })}
	go srv.Serve(l)
	defer srv.Close()
	exit, err := d.Run(t.Context(), testdocker.Spec{Cmd: []string{"wget", "-q", "-O", "-", "http://" + l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	if exit.Output != "inside" {
		t.Errorf("a container got %q, want inside", exit.Output)
	}
	c := http.Client{Transport: &http.Transport{DialContext: d.Dial}}
	resp, err := c.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != "inside" {
		t.Errorf("the test got %q, want inside", b)
	}
}

// TestChild is the process that TestKilledRunIsSwept kills.
func TestChild(t *testing.T) {
	if os.Getenv("TESTDOCKER_CHILD") == "" {
		return
	}
	d := testdocker.Start(t, testdocker.Options{})
	begin(t, d)
	fmt.Printf("child: %s %s %s\n", d.Folder(), d.CgroupParent(), d.Netns())
	select {}
}

func TestKilledRunIsSwept(t *testing.T) {
	testdocker.Require(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(os.Environ(), "TESTDOCKER_CHILD=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var folder, parent, netns string
	for s := bufio.NewScanner(out); s.Scan(); {
		if n, _ := fmt.Sscanf(s.Text(), "child: %s %s %s", &folder, &parent, &netns); n == 3 {
			break
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if folder == "" {
		t.Fatal("the child started no daemon")
	}
	if _, err := os.Stat(folder); err != nil {
		t.Fatalf("the killed run left nothing to sweep: %v", err)
	}
	testdocker.Sweep(t)
	checkGone(t, folder, parent, netns)
}

// begin starts a container that goes on.
func begin(t *testing.T, d *testdocker.Daemon) {
	t.Helper()
	id, err := d.Create(t.Context(), testdocker.Spec{Cmd: []string{"sleep", "600"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Begin(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

func TestNothingIsLeft(t *testing.T) {
	var d *testdocker.Daemon
	ok := t.Run("daemon", func(t *testing.T) {
		d = testdocker.Start(t, testdocker.Options{})
		begin(t, d)
	})
	if !ok || d == nil {
		return
	}
	checkGone(t, d.Folder(), d.CgroupParent(), d.Netns())
}

// checkGone fails when something of a daemon is left.
func checkGone(t *testing.T, folder, parent, netns string) {
	t.Helper()
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the folder %s is still there (%v)", folder, err)
	}
	if _, err := os.Stat(netns); !os.IsNotExist(err) {
		t.Errorf("the network namespace %s is still there (%v)", netns, err)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*" + parent, "/sys/fs/cgroup" + parent} {
		left, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) > 0 {
			t.Errorf("cgroups are still there: %v", left)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), folder) {
		t.Errorf("mounts below %s are still there", folder)
	}
}
