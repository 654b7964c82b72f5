package cri_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cri"
	"github.com/cimeter/cimeter/internal/testdocker"
	"github.com/cimeter/cimeter/internal/testtools"
)

func open(t *testing.T, socket string) *cri.Client {
	t.Helper()
	c, err := cri.Open(cri.Options{Socket: socket, Variables: []string{"CI_JOB_ID"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// serve starts a runtime made of k8s.io/cri-api, which says what stands in its
// source.
func serve(t *testing.T) *cri.Client { return open(t, standIn(t)) }

// standIn is serve for a client with options of its own.
func standIn(t *testing.T, as ...string) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	testtools.Start(t, testtools.CRIServer, append([]string{path}, as...)...)
	socket = "unix://" + path
	c := open(t, socket)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 3000 {
		if _, err := c.Version(t.Context()); err == nil {
			return socket
		}
		<-tick.C
	}
	t.Fatal("the runtime does not answer")
	return ""
}

func at(seconds int64) time.Time { return time.Unix(seconds, 0) }

func podOf(uid, name string) *cimeter.Pod {
	p := &cimeter.Pod{UID: uid, Name: name, Namespace: "ci"}
	if uid == "u1" {
		p.Labels, p.Annotations = map[string]string{"l": "1"}, map[string]string{"a": "2"}
	}
	return p
}

func labels(name string) map[string]string {
	return map[string]string{cimeter.LabelPodContainer: name}
}

func TestClient_List(t *testing.T) {
	c := serve(t)
	if v, err := c.Version(t.Context()); err != nil || v != "stand-in 2.3.4" {
		t.Errorf("version %q: %v", v, err)
	}
	got, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	one, old := podOf("u1", "job-x"), podOf("u2", "old")
	want := []cimeter.Container{
		{ID: "p1", Name: "job-x", Pod: one, Sandbox: true, CreatedAt: at(100), StartedAt: at(100), Running: true},
		{ID: "p2", Name: "old", Pod: old, Sandbox: true, CreatedAt: at(50), StartedAt: at(50)},
		{ID: "c1", Name: "build", Image: "example.com/build:1", Labels: labels("build"), NetworkMode: "container:p1", Pod: one, CreatedAt: at(101), Running: true},
		{ID: "c2", Name: "helper", Image: "example.com/helper:1", Labels: labels("helper"), NetworkMode: "container:p1", Pod: one, CreatedAt: at(101)},
		{ID: "c3", Name: "step", Image: "example.com/step:1", Labels: labels("step"), NetworkMode: "container:p2", Pod: old, CreatedAt: at(101)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestClient_Inspect(t *testing.T) {
	c := serve(t)
	got, err := c.Inspect(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	want := cimeter.Container{
		ID: "c1", Name: "build", Image: "example.com/build:1", Labels: labels("build"), Env: map[string]string{"CI_JOB_ID": "9"}, NetworkMode: "host",
		CgroupParent: "kubepods-pod1.slice", Pid: 4711, Pod: podOf("u1", "job-x"), CreatedAt: at(101), StartedAt: at(102), Running: true,
		Requested: cimeter.Requests{CPUCores: cimeter.Some(1.5), MemoryBytes: cimeter.Some[uint64](1 << 30)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	// A runtime that tells of resources and of the cgroup in its own words alone.
	old := cimeter.Requests{CPUCores: cimeter.Some(0.5), MemoryBytes: cimeter.Some[uint64](4096)}
	if got, err := c.Inspect(t.Context(), "c2"); err != nil || got.Requested != old || got.CgroupParent != "/kubepods/podu1" {
		t.Errorf("%+v below %q, %v: want %+v below /kubepods/podu1", got.Requested, got.CgroupParent, err, old)
	}
	if got, err := c.Inspect(t.Context(), "p1"); err != nil || !got.Sandbox || got.NetworkMode != "host" {
		t.Errorf("sandbox %+v: %v, want one with the host's network", got, err)
	}
	if _, err := c.Inspect(t.Context(), "c3"); err != nil {
		t.Errorf("a container whose pod has no status any more: %v", err)
	}
	if _, err := c.Inspect(t.Context(), "nobody"); !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("error %v, want one that wraps ErrNotFound", err)
	}
}

// TestClient_Follow_stream has the runtime tell the life of a pod and a container.
func TestClient_Follow_stream(t *testing.T) {
	c := serve(t)
	if _, err := c.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []string
	err := c.Follow(ctx, time.Time{}, func() { got = append(got, "connected") }, func(e cimeter.ContainerEvent) {
		kind := [...]string{"", "created", "started", "died", "killed", "destroyed"}[e.Kind]
		got = append(got, e.Container.ID+" "+kind+" "+e.At.UTC().Format("4:05")+" "+e.Container.PodContainer())
		if e.Asked {
			t.Errorf("%s %s was asked for: want it told", e.Container.ID, kind)
		}
		if e.Kind == cimeter.ContainerDied && e.Container.ID == "c9" && e.Exit != cimeter.Some(3) {
			t.Errorf("exit %v, want 3", e.Exit)
		}
		if e.Container.Pod == nil || e.Container.Pod.UID != "u1" {
			t.Errorf("%s of pod %+v", e.Container.ID, e.Container.Pod)
		}
		if len(got) == 9 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Follow: %v, want that it was ended", err)
	}
	want := []string{
		"connected", "p3 created 1:40 ", "p3 started 1:40 ", "c9 created 3:21 short", "c9 started 3:22 short", "c9 died 3:23 short", "c9 destroyed 3:24 ",
		"p3 died 3:25 ", "p3 destroyed 3:26 ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestClient_Follow_silent follows a runtime that ends the stream at once, and well:
// by lists, and it is asked again.
func TestClient_Follow_silent(t *testing.T) {
	c, err := cri.Open(cri.Options{Socket: standIn(t, "silent"), Every: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	connected := 0
	err = c.Follow(ctx, time.Time{}, func() { connected++ }, func(e cimeter.ContainerEvent) {
		if !e.Asked {
			t.Errorf("%s was told: want it asked for", e.Container.ID)
		}
		if e.Container.ID == "c4" { // made when the stream had ended twice
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || connected != 1 {
		t.Errorf("Follow: %v, connected %d times: want that it was ended, and once", err, connected)
	}
}

// TestClient_containerd follows runtimes. A container that lives for a moment is told
// of by the stream, or where there is none because its cgroup was noticed.
func TestClient_containerd(t *testing.T) {
	for _, test := range []struct {
		version string
		asked   bool
		options testdocker.Options
	}{
		{"containerd 1.", true, testdocker.Options{}}, // Debian's
		{"containerd 2.", false, testdocker.Options{Programs: []string{testtools.Path(t, testtools.Containerd), testtools.Path(t, testtools.ContainerdShim)}}},
	} {
		t.Run(test.version, func(t *testing.T) {
			runtime := testdocker.StartCRI(t, testtools.Path(t, testtools.Crictl), test.options)
			c := open(t, runtime.Host())
			if v, err := c.Version(t.Context()); err != nil || !strings.HasPrefix(v, test.version) {
				t.Errorf("version %q: %v, want %s", v, err, test.version)
			}
			followContainerd(t, runtime, c, test.asked)
		})
	}
}

func followContainerd(t *testing.T, runtime *testdocker.CRI, c *cri.Client, asked bool) {
	if _, err := c.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	events, ended := make(chan cimeter.ContainerEvent, 100), make(chan error, 1)
	connected := make(chan struct{})
	go func() {
		ended <- c.Follow(ctx, time.Time{}, func() { close(connected) }, func(e cimeter.ContainerEvent) { events <- e })
	}()
	<-connected
	p, err := runtime.RunPod(testdocker.PodSpec{Name: "a", Namespace: "ci", UID: "3f8c5c4e-9a0e-4a52-8c1d-0d6f6a7f1b2c", Annotations: map[string]string{"x": "y"}})
	if err != nil {
		t.Fatal(err)
	}
	c.Noticed(p.ID, true)
	id, err := p.Create(testdocker.ContainerSpec{Name: "short", Cmd: []string{"/bin/sh", "-c", "exit 5"}, Env: map[string]string{"CI_JOB_ID": "7", "PASSWORD": "s3cret"}, CPUShares: 512})
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.Start(id); err != nil {
		t.Fatal(err)
	}
	if asked { // a stream tells of it by itself
		c.Noticed(id, true)
		c.Noticed(id, false)
	}
	var got []cimeter.ContainerEventKind
	for e := range events {
		if e.Container.ID != id {
			continue
		}
		if e.Asked != asked || e.Container.PodContainer() != "short" {
			t.Errorf("%+v: want asked %v, of the container short", e, asked)
		}
		if got = append(got, e.Kind); e.Kind == cimeter.ContainerDied {
			if e.Exit != cimeter.Some(5) || e.Container.Pod.Annotations["x"] != "y" {
				t.Errorf("%+v: want exit code 5 and the pod's annotation", e)
			}
			break
		}
	}
	if !slices.Equal(got, []cimeter.ContainerEventKind{cimeter.ContainerCreated, cimeter.ContainerStarted, cimeter.ContainerDied}) {
		t.Errorf("events %v, want created, started, died", got)
	}
	k, err := c.Inspect(t.Context(), id)
	if err != nil || !reflect.DeepEqual(k.Env, map[string]string{"CI_JOB_ID": "7"}) || k.Requested.CPUCores != cimeter.Some(0.5) || k.CgroupParent != p.Cgroup {
		t.Errorf("inspected: %+v: %v", k, err)
	}
	runtime.KillRuntime()
	if err := <-ended; err == nil || !errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("Follow of a runtime that was killed: %v, want one that wraps ErrUnavailable", err)
	}
	cancel()
	runtime.StartAgain()
	if err := p.Remove(); err != nil {
		t.Error(err)
	}
}

func TestOpen_errors(t *testing.T) {
	for _, socket := range []string{"", "/run/x", "tcp://127.0.0.1:1", "unix://relative"} {
		if _, err := cri.Open(cri.Options{Socket: socket}); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("Open(%q): %v, want one that wraps ErrInvalid", socket, err)
		}
	}
	if _, err := open(t, "unix:///nonexistent/s").List(t.Context()); !errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("no socket: %v, want one that wraps ErrUnavailable", err)
	}
}
