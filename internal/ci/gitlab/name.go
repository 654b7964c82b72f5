package gitlab

import (
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// maxToken bounds the token in a container's name: the longest form of a
// short token is 17 characters.
const maxToken = 20

// containerName is the name of a container that a runner made:
//
//	runner-<token>-project-<id>-concurrent-<n>-<16 hex>-<suffix>
//	runner-<token>-project-<id>-concurrent-<n>-cache-<hash>-set-permission-<16 hex>
//
// executors/docker/docker.go makeContainerName, common/build.go ProjectUniqueName.
type containerName struct {
	token   string // short token, lower case and cleaned
	project string // project id, decimal
	slot    string // number among the project's builds on this runner, decimal
	group   string // the name up to and with the 16 digits of the job; "" when it has none
	suffix  string // build, predefined, build-3, lab__debian-0, cache-...-set-permission-...
}

func parseName(s string) (n containerName, ok bool) {
	rest, ok := strings.CutPrefix(s, "runner-")
	if !ok {
		return n, false
	}
	if n.token, rest, ok = strings.Cut(rest, "-project-"); !ok || n.token == "" || len(n.token) > maxToken {
		return containerName{}, false
	}
	if n.project, rest, ok = strings.Cut(rest, "-concurrent-"); !ok || !ci.IsDecimal(n.project) {
		return containerName{}, false
	}
	if n.slot, rest, ok = strings.Cut(rest, "-"); !ok || !ci.IsDecimal(n.slot) || rest == "" {
		return containerName{}, false
	}
	n.suffix = rest
	if random, suffix, ok := strings.Cut(rest, "-"); ok && ci.IsHex(random, 16) && suffix != "" {
		n.suffix = suffix
		n.group = s[:len(s)-len(suffix)-1]
	}
	return n, true
}

// suffixFits reports whether the end of the name is what the runner gives a
// container of this role. A service's ends in its image and a number, and the
// image may have any name.
func suffixFits(r cimeter.Role, n containerName) bool {
	switch r {
	case cimeter.RoleBuild:
		return stem(n.suffix) == "build"
	case cimeter.RoleHelper:
		return stem(n.suffix) == "predefined"
	case cimeter.RoleService:
		return stem(n.suffix) != n.suffix
	case cimeter.RoleWait:
		return strings.HasSuffix(n.suffix, "-wait-for-service")
	case cimeter.RoleCache:
		i := strings.LastIndex(n.suffix, "-set-permission-")
		return i > 0 && ci.IsHex(n.suffix[i+len("-set-permission-"):], 16)
	}
	return false
}

// stem returns a suffix without the number that runners which make a container
// for each stage put at its end.
func stem(suffix string) string {
	if i := strings.LastIndexByte(suffix, '-'); i > 0 && ci.IsDecimal(suffix[i+1:]) {
		return suffix[:i]
	}
	return suffix
}

// containerIndex returns the number at the end of a name such as ...-predefined-4:
// how many build and helper containers the runner had made for the job before.
func containerIndex(name string) (index int, ok bool) {
	n, ok := parseName(name)
	if !ok || stem(n.suffix) == n.suffix || n.group == "" {
		return 0, false
	}
	index, err := strconv.Atoi(n.suffix[len(stem(n.suffix))+1:])
	return index, err == nil && index <= maxSegments
}

// cleanName makes of a token what container names hold of it: lower case, and
// of other characters than a-z, 0-9 and - nothing.
func cleanName(token string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		}
		return -1
	}, strings.ToLower(token))
}
