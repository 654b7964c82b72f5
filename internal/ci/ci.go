// Package ci is what the packages below it, one for each CI system, have in
// common: the form of an identifier, how several are tried, and the small
// checks by which they tell a runner's own container from one that only carries
// its labels.
//
// It is pure and holds no state: everything may be called from any goroutine.
// It knows no CI system; the wiring composes them with [First].
package ci

import (
	"net/url"
	"strings"

	"github.com/cimeter/cimeter"
)

// Identifier tells from a container's metadata which build it belongs to. ok
// is false when the container is not of this CI system. Identifiers are pure.
type Identifier func(*cimeter.Container) (id cimeter.Identity, ok bool)

// First returns an Identifier that asks ids in order and takes the first
// answer. Systems with strong markers (labels of their own) go before those that
// are known by a name alone, and rules that the operator wrote before both.
//
// It bounds what foreign metadata may hold: a container whose key would be longer
// than any honest one is nobody's, and longer values are cut.
func First(ids ...Identifier) Identifier {
	return func(c *cimeter.Container) (cimeter.Identity, bool) {
		for _, identify := range ids {
			if id, ok := identify(c); ok && len(id.Build.Key) <= maxKey {
				bound(&id)
				return id, true
			}
		}
		return cimeter.Identity{}, false
	}
}

// Variables joins allow-lists of environment variables, each name once, in the
// order of their first appearance.
func Variables(lists ...[]string) []string {
	var all []string
	seen := make(map[string]bool)
	for _, list := range lists {
		for _, name := range list {
			if !seen[name] {
				seen[name] = true
				all = append(all, name)
			}
		}
	}
	return all
}

// Local stands in a build's key for a server that the container does not name.
const Local = "local"

// ServerOf returns the host and port of an absolute http or https URL, in lower
// case, and "" for anything else. User name and password are left out.
func ServerOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	return strings.ToLower(u.Host)
}

// PageOf returns rawURL without user name, password, query and fragment when it
// is an absolute http or https URL, and "" otherwise.
func PageOf(rawURL string) string {
	if ServerOf(rawURL) == "" {
		return ""
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment, u.RawFragment = nil, "", "", ""
	return u.String()
}

// IsDecimal reports whether s is a number of 1 to 19 decimal digits.
func IsDecimal(s string) bool {
	if s == "" || len(s) > 19 {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// IsHex reports whether s is n lower-case hexadecimal digits.
func IsHex(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := range n {
		if (s[i] < '0' || s[i] > '9') && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return true
}

// ImageName returns the last part of an image's path without registry, tag and
// digest: postgres of docker.io/library/postgres:15.
func ImageName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	image = image[strings.LastIndexByte(image, '/')+1:]
	image, _, _ = strings.Cut(image, ":")
	return image
}

// Network returns the first network of the container, or the one it was asked to
// run in, whose name match accepts, and "" when there is none.
func Network(c *cimeter.Container, match func(name string) bool) string {
	for _, name := range c.Networks {
		if match(name) {
			return name
		}
	}
	if match(c.NetworkMode) {
		return c.NetworkMode
	}
	return ""
}

// Disagree returns a sentence for Identity.Doubt when what one source of a
// container's metadata says of subject is known to both and differs, and "" otherwise.
func Disagree(subject, where1, said1, where2, said2 string) string {
	if said1 == "" || said2 == "" || said1 == said2 {
		return ""
	}
	return subject + ": " + where1 + " says " + Quote(said1) + ", " + where2 + " says " + Quote(said2)
}

// FirstDoubt returns the first of doubts that is not "".
func FirstDoubt(doubts ...string) string {
	for _, d := range doubts {
		if d != "" {
			return d
		}
	}
	return ""
}
