package cgroup

import (
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// podmanParent is the cgroup in which podman makes those of its containers, and
// of its pods, with the driver cgroupfs.
const podmanParent = "libpod_parent"

// stepLength is the number of digits of the ids that BuildKit gives to what it
// runs: 17 random bytes to the base of 36 (identity/randomid.go).
const stepLength = 25

// BuildStep returns the id in the path of a cgroup that BuildKit made for one RUN
// of a Dockerfile: …/buildkit/ID, or …/docker-ID.scope by systemd. It is no
// container: no engine lists it.
func BuildStep(p string) (id string, ok bool) {
	dir, name := path.Split(p)
	id, scope := strings.CutSuffix(name, ".scope")
	if scope {
		id, ok = strings.CutPrefix(id, "docker-")
	} else {
		ok = path.Base(dir) == "buildkit"
	}
	if !ok || len(id) != stepLength {
		return "", false
	}
	for i := range len(id) {
		if c := id[i]; (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return "", false
		}
	}
	return id, true
}

// Metered reports whether the last element of a cgroup path is that of a
// container or of a BuildKit step: what is metered as one, and not looked into.
func Metered(p string) bool {
	name := path.Base(p)
	if _, ok := ContainerID(name); ok {
		return !isPod(path.Base(path.Dir(p)), name, "")
	}
	_, ok := BuildStep(p)
	return ok
}

// isPod reports whether the folder name, in one named parent, is that of a pod of
// podman, which is named by its id alone, as Docker's containers are: podman's
// containers are libpod-ID. next is the folder in it, "" when that is not known.
func isPod(parent, name, next string) bool {
	if len(name) != idLength {
		return false
	}
	if parent == podmanParent {
		return true
	}
	_, ok := ContainerID(next)
	return ok && strings.HasPrefix(next, "libpod-")
}

// ProcsBelow appends up to most ids of processes that are in g or in a cgroup
// nested in it to dst. What ends meanwhile is left out.
func (g *Group) ProcsBelow(dst []int, most int) []int {
	h := g.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if g.gone {
		return dst
	}
	left := maxLooked
	return h.procsBelow(g.folder(h.procs), dst, len(dst)+most, &left)
}

// maxLooked bounds the cgroups that ProcsBelow looks into.
const maxLooked = 256

func (h *Host) procsBelow(dir string, dst []int, most int, left *int) []int {
	if *left--; *left < 0 {
		return dst
	}
	dst, _ = h.openProcs(unix.AT_FDCWD, dir+"/cgroup.procs", dst)
	if len(dst) >= most {
		return dst[:most]
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return dst
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if dst = h.procsBelow(filepath.Join(dir, e.Name()), dst, most, left); len(dst) >= most {
			break
		}
	}
	return dst
}
