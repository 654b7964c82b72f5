package cgroup

import (
	"bytes"
	"strconv"
	"strings"
)

// idLength is the number of hex digits of a container id.
const idLength = 64

// idPrefixes is what runtimes put before an id when they name a cgroup: Docker
// (also cri-dockerd), containerd's CRI, CRI-O, podman, nerdctl. A name with
// another prefix is not a container: conmon's scopes end with its container's
// id, too.
var idPrefixes = [...]string{"docker-", "cri-containerd-", "crio-", "libpod-", "libpod-payload-", "nerdctl-"}

// ContainerID returns the container id that one element of a cgroup path
// names: 64 hex digits alone, or as runtimes wrap them (docker-ID.scope,
// cri-containerd-ID.scope, crio-ID, libpod-ID.scope, SLICE:cri-containerd:ID).
// Other units, conmon's scopes and BuildKit's 25-character ids are none.
func ContainerID(name string) (id string, ok bool) {
	name = strings.TrimSuffix(name, ".scope")
	if len(name) < idLength {
		return "", false
	}
	prefix, id := name[:len(name)-idLength], name[len(name)-idLength:]
	for i := range len(id) {
		if c := id[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", false
		}
	}
	if i := strings.LastIndexByte(strings.TrimSuffix(prefix, ":"), ':'); i >= 0 && strings.HasSuffix(prefix, ":") {
		prefix = strings.TrimSuffix(prefix[i+1:], ":") + "-" // SLICE:cri-containerd:
	}
	if prefix == "" {
		return id, true
	}
	for _, p := range idPrefixes {
		if prefix == p {
			return id, true
		}
	}
	return "", false
}

// Container returns the id of the outermost container in a cgroup path and the
// path up to it. Containers within it (Docker in Docker) are part of it; a pod of
// podman is none.
func Container(path string) (id, prefix string, ok bool) {
	before := ""
	for start := 0; start < len(path); {
		name, rest, _ := strings.Cut(path[start:], "/")
		end := start + len(name)
		next, _, _ := strings.Cut(rest, "/")
		if id, ok = ContainerID(name); ok && !isPod(before, name, next) {
			return id, path[:end], true
		}
		before = name
		start = end + 1
	}
	return "", "", false
}

// Membership is one line of /proc/PID/cgroup: a process's cgroup in one
// hierarchy.
type Membership struct {
	Hierarchy   int    // 0 is cgroup v2
	Controllers string // comma-separated; "" is cgroup v2; name=systemd is a named hierarchy
	Path        string // relative to the reader's cgroup namespace; may start with /../
	Deleted     bool   // the cgroup was removed; the process is a zombie
}

// Has reports whether the hierarchy has controller c.
func (m Membership) Has(c string) bool {
	for rest := m.Controllers; rest != ""; {
		var name string
		if name, rest, _ = strings.Cut(rest, ","); name == c {
			return true
		}
	}
	return false
}

// ParseProcCgroup parses /proc/PID/cgroup. A path may hold colons: a line is
// split at the first two only.
//
//	6:cpu,cpuacct:/docker/0123
//	1:name=systemd:/kubepods-pod1.slice:cri-containerd:0123
//	0::/libpod_parent/libpod-0123
func ParseProcCgroup(b []byte) ([]Membership, error) {
	var ms []Membership
	for len(b) > 0 {
		var l []byte
		if l, b = line(b); len(l) == 0 {
			continue
		}
		i := bytes.IndexByte(l, ':')
		if i < 0 {
			return nil, malformed("cgroup line", l, "hierarchy:controllers:path")
		}
		j := bytes.IndexByte(l[i+1:], ':')
		if j < 0 {
			return nil, malformed("cgroup line", l, "hierarchy:controllers:path")
		}
		id, err := strconv.Atoi(string(l[:i]))
		if err != nil || id < 0 {
			return nil, malformed("cgroup hierarchy", l[:i], "a number")
		}
		m := Membership{Hierarchy: id, Controllers: string(l[i+1 : i+1+j]), Path: string(l[i+j+2:])}
		if !strings.HasPrefix(m.Path, "/") {
			return nil, malformed("cgroup path", l[i+j+2:], "a path that starts with /")
		}
		m.Path, m.Deleted = strings.CutSuffix(m.Path, " (deleted)")
		ms = append(ms, m)
	}
	return ms, nil
}
