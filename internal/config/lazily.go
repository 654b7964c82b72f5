package config

import (
	"regexp"
	"sync"
)

// lazily compiles an expression when it is needed first: every start of a command pays for
// what is compiled at once, a millisecond for all of them.
func lazily(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
