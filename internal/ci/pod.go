package ci

import (
	"bytes"

	"github.com/cimeter/cimeter"
)

// PodKey returns the key of a build of which only the pod is known.
func PodKey(kind string, p *cimeter.Pod) string {
	return cimeter.BuildKey(kind, Local, "pod", p.UID)
}

// StagePod is the stage of the container that holds a pod's namespaces: what the pod
// itself takes, and its network, which all its containers share.
const StagePod = "pod"

// InPod returns identify for containers of pods: one that holds a pod's namespaces
// is of the pod's build, whatever identify makes of it, and alongside.
func InPod(identify Identifier) Identifier {
	return func(c *cimeter.Container) (cimeter.Identity, bool) {
		id, ok := identify(c)
		if ok && c.Sandbox {
			id.Role, id.Stage, id.Alongside, id.Inside, id.Next = cimeter.RoleWait, StagePod, true, false, ""
		}
		return id, ok
	}
}

// PodStage returns the stage of a pod's service: by its image where that has a
// name, else by the container's.
func PodStage(c *cimeter.Container) string {
	name := ImageName(c.Image)
	if name == "" || IsHex(name, 64) || name == "sha256" { // asked for by its digest alone
		name = c.PodContainer()
	}
	return "service:" + name
}

// IsUUID reports whether s is a UUID in lower-case digits.
func IsUUID(s string) bool {
	return len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' &&
		IsHex(s[:8], 8) && IsHex(s[9:13], 4) && IsHex(s[14:18], 4) && IsHex(s[19:23], 4) && IsHex(s[24:], 12)
}

// IsRuntime reports whether a command line is that of a container's runtime, which
// is the first process of each container until it becomes the container's own.
func IsRuntime(cmdline []byte) bool {
	program, rest, _ := bytes.Cut(cmdline, []byte{0})
	argument, _, _ := bytes.Cut(rest, []byte{0})
	switch string(program[bytes.LastIndexByte(program, '/')+1:]) {
	case "runc", "exe", "youki": // the second is /proc/self/exe
		return string(argument) == "init"
	case "crun":
		return true
	}
	return len(program) == 0
}
