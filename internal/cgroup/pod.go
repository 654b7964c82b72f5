package cgroup

import "strings"

// Pod returns the UID of the Kubernetes pod that a container's cgroup belongs to,
// and the path of the pod's own cgroup: the one above, as the kubelet names it with
// either driver. ok is false where that is no pod's.
//
//	/kubepods/burstable/pod<uid>/<id>
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid with _>.slice/cri-containerd-<id>.scope
func Pod(container string) (uid, path string, ok bool) {
	i := strings.LastIndexByte(container, '/')
	if i <= 0 {
		return "", "", false
	}
	path = container[:i]
	name := path[strings.LastIndexByte(path, '/')+1:]
	if slice, is := strings.CutSuffix(name, ".slice"); is {
		if i := strings.LastIndex(slice, "-pod"); i > 0 {
			uid = strings.ReplaceAll(slice[i+len("-pod"):], "_", "-")
		}
	} else if after, is := strings.CutPrefix(name, "pod"); is {
		uid = after
	}
	return uid, path, isPodUID(uid)
}

// isPodUID reports whether s is a UUID, or 32 hexadecimal digits: the kubelet's own
// static pods have a hash.
func isPodUID(s string) bool {
	if len(s) != 36 && len(s) != 32 {
		return false
	}
	for i := range len(s) {
		dash := len(s) == 36 && (i == 8 || i == 13 || i == 18 || i == 23)
		if c := s[i]; dash != (c == '-') || !dash && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
