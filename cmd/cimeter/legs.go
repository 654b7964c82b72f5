package main

import (
	"sync"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// maxLegs bounds the jobs of GitHub's whose tracking id is remembered: more than a
// machine's runners have while their runs go on.
const maxLegs = 4096

// legDigits is how much of a tracking id tells two jobs of one key apart.
const legDigits = 8

// legs gives keys of their own to further jobs of one key: legs of a matrix that one
// runner has one after the other. What it calls each job, its tracking id, is in the
// variables of the job's processes.
type legs struct {
	identify func(env map[string]string) (cimeter.Identity, bool)

	mu    sync.Mutex
	first map[string]string // tracking id of the first job of a key
}

func newLegs(identify func(env map[string]string) (cimeter.Identity, bool)) *legs {
	return &legs{identify: identify, first: make(map[string]string)}
}

// Identify tells as identify does.
func (l *legs) Identify(env map[string]string) (cimeter.Identity, bool) {
	id, ok := l.identify(env)
	tracking := trackingID(env["RUNNER_TRACKING_ID"])
	if !ok || tracking == "" {
		return id, ok
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch first, known := l.first[id.Build.Key]; {
	case !known:
		if len(l.first) >= maxLegs {
			clear(l.first) // of jobs that are over, all but a few
		}
		l.first[id.Build.Key] = tracking
	case first != tracking:
		id.Build.Key += "/" + tracking
	}
	return id, true
}

// trackingID returns the digits of github_<UUID> that tell one from another.
func trackingID(s string) string {
	const prefix = "github_"
	if len(s) < len(prefix)+legDigits || s[:len(prefix)] != prefix || !ci.IsHex(s[len(prefix):len(prefix)+legDigits], legDigits) {
		return ""
	}
	return s[len(prefix) : len(prefix)+legDigits]
}
