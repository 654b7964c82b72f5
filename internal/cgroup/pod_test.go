package cgroup_test

import (
	"strings"
	"testing"

	"github.com/cimeter/cimeter/internal/cgroup"
)

// TestPod is the table of all that runtimes and kubelets make of a container's
// path, of which container and pod must be told.
func TestPod(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	const uid = "3f8c5c4e-9a0e-4a52-8c1d-0d6f6a7f1b2c"
	under := strings.ReplaceAll(uid, "-", "_")
	static := strings.Repeat("0a", 16)
	for _, tt := range []struct {
		name, path, uid, pod string // no uid: in no pod
		none                 bool   // no container
	}{
		{name: "cgroupfs, guaranteed", path: "/kubepods/pod" + uid + "/" + id, uid: uid, pod: "/kubepods/pod" + uid},
		{name: "cgroupfs, burstable", path: "/kubepods/burstable/pod" + uid + "/" + id, uid: uid, pod: "/kubepods/burstable/pod" + uid},
		{name: "cgroupfs, best effort", path: "/kubepods/besteffort/pod" + uid + "/" + id, uid: uid, pod: "/kubepods/besteffort/pod" + uid},
		{name: "cgroupfs, CRI-O", path: "/kubepods/burstable/pod" + uid + "/crio-" + id, uid: uid, pod: "/kubepods/burstable/pod" + uid},
		{name: "cgroupfs below a root of the kubelet's own", path: "/kubelet/kubepods/pod" + uid + "/" + id, uid: uid, pod: "/kubelet/kubepods/pod" + uid},
		{name: "static pod", path: "/kubepods/burstable/pod" + static + "/" + id, uid: static, pod: "/kubepods/burstable/pod" + static},
		{name: "systemd, guaranteed, containerd", path: "/kubepods.slice/kubepods-pod" + under + ".slice/cri-containerd-" + id + ".scope",
			uid: uid, pod: "/kubepods.slice/kubepods-pod" + under + ".slice"},
		{name: "systemd, burstable, containerd", path: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice/cri-containerd-" + id + ".scope",
			uid: uid, pod: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice"},
		{name: "systemd, best effort, CRI-O", path: "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + under + ".slice/crio-" + id + ".scope",
			uid: uid, pod: "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + under + ".slice"},
		{name: "systemd, cri-dockerd", path: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice/docker-" + id + ".scope",
			uid: uid, pod: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice"},
		{name: "systemd, kind", path: "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + under + ".slice/cri-containerd-" + id + ".scope",
			uid: uid, pod: "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + under + ".slice"},
		{name: "systemd's name in a cgroupfs tree", path: "/system.slice/containerd.service/kubepods-burstable-pod" + under + ".slice:cri-containerd:" + id},
		{name: "containerd without a kubelet", path: "/k8s.io/" + id},
		{name: "Docker", path: "/docker/" + id},
		{name: "a pod of podman", path: "/libpod_parent/" + id + "/libpod-" + id},
		{name: "a monitor of CRI-O", path: "/kubepods.slice/kubepods-pod" + under + ".slice/crio-conmon-" + id + ".scope",
			uid: uid, pod: "/kubepods.slice/kubepods-pod" + under + ".slice", none: true},
		{name: "podman in a slice that only begins like one", path: "/machine-pod" + id[:8] + ".slice/libpod-" + id + ".scope"},
		{name: "something else named pod", path: "/podcast/" + id},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name := tt.path[strings.LastIndexByte(tt.path, '/')+1:]
			if got, ok := cgroup.ContainerID(name); ok == tt.none || ok && got != id {
				t.Errorf("ContainerID(%q) = %q, %v", name, got, ok)
			}
			uid, pod, ok := cgroup.Pod(tt.path)
			if ok != (tt.uid != "") || ok && (uid != tt.uid || pod != tt.pod) {
				t.Errorf("Pod: %q, %q, %v; want %q, %q", uid, pod, ok, tt.uid, tt.pod)
			}
		})
	}
}

func FuzzPod(f *testing.F) {
	f.Add("/kubepods/pod3f8c5c4e-9a0e-4a52-8c1d-0d6f6a7f1b2c/0")
	f.Add("/kubepods.slice/kubepods-pod3f8c5c4e_9a0e_4a52_8c1d_0d6f6a7f1b2c.slice/x")
	f.Fuzz(func(t *testing.T, path string) {
		uid, pod, ok := cgroup.Pod(path)
		if ok && (len(uid) < 32 || !strings.HasPrefix(path, pod+"/")) {
			t.Errorf("Pod(%q) = %q, %q", path, uid, pod)
		}
	})
}
