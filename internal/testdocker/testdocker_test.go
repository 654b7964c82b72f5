package testdocker_test

import (
	"io"
	"net/http"
	"os"
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

func TestNothingIsLeft(t *testing.T) {
	var d *testdocker.Daemon
	ok := t.Run("daemon", func(t *testing.T) {
		d = testdocker.Start(t, testdocker.Options{})
		id, err := d.Create(t.Context(), testdocker.Spec{Cmd: []string{"sleep", "600"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Begin(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	})
	if !ok || d == nil {
		return
	}
	if _, err := os.Stat(d.Folder()); !os.IsNotExist(err) {
		t.Errorf("the folder %s is still there (%v)", d.Folder(), err)
	}
	if _, err := os.Stat(d.Netns()); !os.IsNotExist(err) {
		t.Errorf("the network namespace %s is still there (%v)", d.Netns(), err)
	}
	left, err := filepath.Glob("/sys/fs/cgroup/*" + d.CgroupParent())
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("cgroups are still there: %v", left)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), d.Folder()) {
		t.Errorf("mounts below %s are still there", d.Folder())
	}
}
