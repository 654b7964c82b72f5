package cgroup_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
)

func TestContainerID(t *testing.T) {
	for _, name := range []string{
		id, "docker-" + id + ".scope", "cri-containerd-" + id + ".scope", "crio-" + id, "crio-" + id + ".scope",
		"libpod-" + id + ".scope", "libpod-" + id, "libpod-payload-" + id, "nerdctl-" + id + ".scope",
		"kubepods-burstable-pod019c1fe8_0d92_4aa0_b61c_4df58bdde71c.slice:cri-containerd:" + id,
	} {
		if got, ok := cgroup.ContainerID(name); got != id || !ok {
			t.Errorf("ContainerID(%q) = %q, %v", name, got, ok)
		}
	}
	for _, name := range []string{
		"", "docker", "session-c1.scope", "crio-conmon-" + id + ".scope", "libpod-conmon-" + id + ".scope", "libpod_pod_" + id + ".slice",
		"var-lib-docker-containers-" + id + "-mounts-shm.mount", "var-lib-docker-containers-" + id + ".mount", id + ".service", "x" + id,
		strings.ToUpper(id), id[1:], id + "0", "rk2m1n5zq8v0w3x7y9b4c6d1f", "kubepods-pod019c1fe8_0d92_4aa0_b61c_4df58bdde71c.slice",
		"a:b:" + id, ":" + id,
	} {
		if got, ok := cgroup.ContainerID(name); got != "" || ok {
			t.Errorf("ContainerID(%q) = %q, %v, want none", name, got, ok)
		}
	}
}

func TestContainer(t *testing.T) {
	inner := strings.Repeat("0", 64)
	for path, want := range map[string]string{
		"/docker/" + id:                                    "/docker/" + id,
		"/system.slice/docker-" + id + ".scope":            "/system.slice/docker-" + id + ".scope",
		"/machine.slice/libpod-" + id + ".scope/container": "/machine.slice/libpod-" + id + ".scope",
		"/docker/" + id + "/docker/" + inner:               "/docker/" + id, // Docker in Docker
		"/gitlab-runner/slot-3/" + id:                      "/gitlab-runner/slot-3/" + id,
		"/libpod_parent/libpod-" + id:                      "/libpod_parent/libpod-" + id,
		"/libpod_parent/" + inner + "/libpod-" + id:        "/libpod_parent/" + inner + "/libpod-" + id, // in a pod
		"/ci/job9/" + inner + "/libpod-" + id:              "/ci/job9/" + inner + "/libpod-" + id,
		"/docker/" + id + "/libpod_parent/libpod-" + inner: "/docker/" + id, // podman in Docker
		"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id + ".scope/container":   "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id + ".scope",
		"/machine.slice/machine-libpod_pod_" + inner + ".slice/libpod-" + id + ".scope":                "/machine.slice/machine-libpod_pod_" + inner + ".slice/libpod-" + id + ".scope",
		"/kubepods.slice/kubepods-pod019c1fe8_0d92_4aa0_b61c_4df58bdde71c.slice/crio-" + id + ".scope": "/kubepods.slice/kubepods-pod019c1fe8_0d92_4aa0_b61c_4df58bdde71c.slice/crio-" + id + ".scope",
	} {
		if got, prefix, ok := cgroup.Container(path); got != id || prefix != want || !ok {
			t.Errorf("Container(%q) = %q, %q, %v, want prefix %q", path, got, prefix, ok, want)
		}
	}
	for _, path := range []string{"", "/", "/docker", "/docker/buildkit/rk2m1n5zq8v0w3x7y9b4c6d1f", "/machine.slice/libpod-conmon-" + id + ".scope", "/libpod_parent/" + id, "/libpod_parent/conmon"} {
		if got, _, ok := cgroup.Container(path); ok {
			t.Errorf("Container(%q) = %q, want none", path, got)
		}
	}
}

// The paths of users' podman and Docker on cgroup v2, as people showed them: from crun
// and runc, in and out of pods, in units, and with a slice of the administrator's.
func TestContainer_ofUsers(t *testing.T) {
	const session = "/user.slice/user-1001.slice/user@1001.service"
	for path, want := range map[string]string{
		session + "/user.slice/libpod-207a59e45e9b14c3397d9904b41ba601dc959d85962e6ede45a1b54463ae731b.scope/container":                                                                                                   "207a59e45e9b14c3397d9904b41ba601dc959d85962e6ede45a1b54463ae731b",
		session + "/user.slice/libpod-b3e8048a9b91e43c214b4d850ac7132155a684d6502e12e22ceb6f73848d117a.scope":                                                                                                             "b3e8048a9b91e43c214b4d850ac7132155a684d6502e12e22ceb6f73848d117a",
		session + "/user.slice/user-libpod_pod_a0d591b6895832291281a31da0eee965617163f98b7546ac475727035735c03d.slice/libpod-c3b3ccc85706d4153543b9112f21bcbbb995ee598549ba0c5577ee1412a6abe0.scope/container":            "c3b3ccc85706d4153543b9112f21bcbbb995ee598549ba0c5577ee1412a6abe0",
		session + "/user.slice/user-libpod_pod_1ab829b4a5d971eacc6f8e12d969df94e997526665930c68a3ed7408a5373fbe.slice/libpod-6a7a48458c580a4b7b01a0a0967107974706a148f405d8f4f8f4e6eaa2446aec.scope/container/init.scope": "6a7a48458c580a4b7b01a0a0967107974706a148f405d8f4f8f4e6eaa2446aec",
		session + "/app.slice/runner.service/libpod-payload-" + id:               id,
		session + "/user.slice/docker-" + id + ".scope":                          id,
		"/workloads.slice/user@10008.service/user.slice/libpod-" + id + ".scope": id,
	} {
		got, prefix, ok := cgroup.Container(path)
		if end := strings.Index(path, want) + len(want); got != want || !ok || prefix != strings.TrimSuffix(path[:min(len(path), end+len(".scope"))], "/") {
			t.Errorf("Container(%q) = %q, %q, %v, want %s", path, got, prefix, ok, want)
		}
	}
	for _, path := range []string{
		session + "/user.slice/libpod-conmon-" + id + ".scope", session + "/user.slice/podman-6696.scope", session + "/user.slice/podman-pause-19d9ee2c.scope",
		session + "/user.slice/user-libpod_pod_" + id + ".slice", session + "/app.slice/podman.service", session + "/init.scope", "/user.slice/user-1000.slice/session-3.scope",
	} {
		if got, _, ok := cgroup.Container(path); ok || cgroup.Metered(path) {
			t.Errorf("Container(%q) = %q, want none", path, got)
		}
	}
}

const step = "rk2m1n5zq8v0w3x7y9b4c6d1f"

func TestBuildStep(t *testing.T) {
	for _, path := range []string{"/docker/buildkit/" + step, "/buildkit/" + step, "/system.slice/docker-" + step + ".scope", "/docker/" + id + "/docker/buildkit/" + step} {
		if got, ok := cgroup.BuildStep(path); got != step || !ok || !cgroup.Metered(path) {
			t.Errorf("BuildStep(%q) = %q, %v", path, got, ok)
		}
	}
	for _, path := range []string{
		"/docker/" + step, "/docker/buildkit", "/docker/buildkit/" + step + "0", "/docker/buildkit/" + step[1:] + "-", "/docker/buildkit/" + strings.ToUpper(step),
		"/system.slice/" + step + ".scope", "/system.slice/docker-" + step, "/docker/buildkit/" + step + "/x", "",
	} {
		if got, ok := cgroup.BuildStep(path); got != "" || ok || cgroup.Metered(path) {
			t.Errorf("BuildStep(%q) = %q, %v, want none", path, got, ok)
		}
	}
}

func TestMetered(t *testing.T) {
	for path, want := range map[string]bool{
		"/docker/" + id: true, "/libpod_parent/" + id: false, "/libpod_parent/" + id + "/libpod-" + id: true,
		"/libpod_parent/libpod-" + id: true, "/libpod_parent/conmon": false, "/machine.slice/libpod-conmon-" + id + ".scope": false,
		"/machine.slice/libpod-" + id + ".scope": true, "/": false, "/docker": false,
	} {
		if got := cgroup.Metered(path); got != want {
			t.Errorf("Metered(%q) = %v, want %v", path, got, want)
		}
	}
}

func TestParseProcCgroup(t *testing.T) {
	ms, err := cgroup.ParseProcCgroup([]byte("6:cpu,cpuacct:/docker/a\n1:name=systemd:/kubepods-pod1.slice:cri-containerd:db622e\n0::/libpod_parent/libpod-bbf5 (deleted)\n"))
	want := []cgroup.Membership{
		{Hierarchy: 6, Controllers: "cpu,cpuacct", Path: "/docker/a"},
		{Hierarchy: 1, Controllers: "name=systemd", Path: "/kubepods-pod1.slice:cri-containerd:db622e"},
		{Hierarchy: 0, Path: "/libpod_parent/libpod-bbf5", Deleted: true},
	}
	if !slices.Equal(ms, want) || err != nil {
		t.Errorf("%+v, %v, want %+v", ms, err, want)
	}
	if !ms[0].Has("cpuacct") || ms[0].Has("acct") || ms[2].Has("") {
		t.Error("Has takes a part of a name for it")
	}
	for _, in := range []string{"x", "1:cpu", "a:cpu:/x", "-1:cpu:/x", "1:cpu:x"} {
		if ms, err := cgroup.ParseProcCgroup([]byte(in)); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %+v, %v, want an error", in, ms, err)
		}
	}
}

func TestHost_PathOf(t *testing.T) {
	f := func(name, content, want string) {
		t.Helper()
		ms, err := cgroup.ParseProcCgroup([]byte(content))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := unpack(t, name).open().PathOf(ms); ok != (want != "") || ok && got != want {
			t.Errorf("PathOf %q on %s = %q, %v, want %q", content, name, got, ok, want)
		}
	}
	f("v2-cgroupfs-docker", "0::/docker/a\n", "/docker/a")
	f("v2-cgroupfs-docker", "0::/docker/a (deleted)\n", "")
	f("v2-cgroupfs-docker", "0::/../../other\n", "")
	f("hybrid-docker", "5:pids:/x\n4:cpuacct:/docker/a\n0::/\n", "/docker/a")
	f("v1-cgroupfs-docker", "4:cpu,cpuacct:/docker/a\n1:name=systemd:/b\n", "/docker/a")
	f("v1-cgroupfs-docker", "1:name=systemd:/b\n", "")
}
