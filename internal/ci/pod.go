package ci

import (
	"strings"

	"github.com/cimeter/cimeter"
)

// PodKey returns the key of a build of which only the pod is known.
func PodKey(kind string, p *cimeter.Pod) string {
	return cimeter.BuildKey(kind, Local, "pod", p.UID)
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

// Sanitized reports whether label is what a runner makes of value where it has to
// make a label's value of it: of other characters than letters, digits, -, _ and
// dot some other one, and of a long value its first 63 bytes. A label that was cut
// agrees with every value that begins like it.
func Sanitized(label, value string) bool {
	return alphanumeric(label) == cutTo(alphanumeric(value), len(alphanumeric(label)), len(label) >= maxLabel-1)
}

// maxLabel is the longest value of a label in bytes.
const maxLabel = 63

func cutTo(s string, n int, cut bool) string {
	if cut && n < len(s) {
		return s[:n]
	}
	return s
}

func alphanumeric(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return -1
	}, s)
}
