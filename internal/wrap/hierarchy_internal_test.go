package wrap

import (
	"reflect"
	"strings"
	"testing"
)

const hybridMounts = `22 1 0:20 / / rw - ext4 /dev/sda rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/ab /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
38 31 0:35 / /sys/fs/cgroup/cpu\040only rw,relatime - cgroup cgroup rw,cpuset
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
42 31 0:38 / /other/unified rw,relatime - cgroup2 cgroup2 rw
`

func TestMatchHierarchies(t *testing.T) {
	for name, c := range map[string]struct {
		own, mounts string
		want        []hierarchy
	}{
		"hybrid, a container's mount of memory": {
			own:    "9:name=systemd:/x\n4:memory:/docker/ab/job\n2:cpu,cpuacct:/ci\n0::/ci:1\n",
			mounts: hybridMounts,
			want: []hierarchy{
				{controllers: []string{"cpu", "cpuacct"}, mount: "/sys/fs/cgroup/cpu,cpuacct", path: "/ci"},
				{controllers: []string{"memory"}, mount: "/sys/fs/cgroup/memory", path: "/job"},
				{unified: true, mount: "/sys/fs/cgroup/unified", path: "/ci:1"},
			},
		},
		"v2": {
			own: "0::/user.slice/a.scope\n", mounts: "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n",
			want: []hierarchy{{unified: true, mount: "/sys/fs/cgroup", path: "/user.slice/a.scope"}},
		},
		"own cgroup outside of what is mounted": {
			own: "4:memory:/docker/abc\n2:cpu,cpuacct:/../up\n", mounts: hybridMounts,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := matchHierarchies([]byte(c.own), []byte(c.mounts)); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func FuzzMatchHierarchies(f *testing.F) {
	f.Add([]byte("4:memory:/docker/ab/job\n0::/x\n"), []byte(hybridMounts))
	f.Add([]byte("0::/a/../b\n"), []byte("1 1 0:1 /a /m rw - cgroup2 c rw\n"))
	f.Fuzz(func(t *testing.T, own, mounts []byte) {
		for _, h := range matchHierarchies(own, mounts) {
			if !strings.HasPrefix(h.path, "/") || strings.Contains(h.path, "/../") {
				t.Errorf("path %q", h.path)
			}
		}
	})
}

func TestParseStat(t *testing.T) {
	p, ok := parseStat([]byte("4242 (a) b) (c) S 4241 4242 4242 0 -1 4194560 101 0 0 0 7 3 2 1 20 0 1 0 123456 1 2\n"))
	want := process{pid: 4242, parent: 4241, state: 'S', user: 9, system: 4, start: 123456}
	if !ok || p != want {
		t.Errorf("got %+v %v, want %+v", p, ok, want)
	}
	for _, bad := range []string{"", "1", "1 (x", "x (y) S 1", "1 (y) S 1 2 3", "1 (y) S -1 1 1 0 -1 0 0 0 0 0 1 1 1 1 20 0 1 0 5"} {
		if p, ok := parseStat([]byte(bad)); ok || p != (process{}) {
			t.Errorf("%q: got %+v %v, want none", bad, p, ok)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("4242 (a) b) (c) S 4241 4242 4242 0 -1 4194560 101 0 0 0 7 3 2 1 20 0 1 0 123456 1 2\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := parseStat(b); ok != (p != process{}) {
			t.Errorf("%v with %+v", ok, p)
		}
	})
}
