package main

import (
	"fmt"
	"testing"

	"github.com/cimeter/cimeter/internal/config"
)

// Two legs of a matrix that one runner has one after the other have one key by
// their variables: the second one gets a key of its own, and keeps it.
func TestLegs(t *testing.T) {
	identify := newProcesses(config.Agent{Processes: "scan"}).Identify
	env := func(tracking string) map[string]string {
		return map[string]string{
			"GITHUB_ACTIONS": "true", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "acme/shop", "GITHUB_RUN_ID": "99",
			"GITHUB_RUN_ATTEMPT": "1", "GITHUB_JOB": "test", "RUNNER_NAME": "ci-1", "RUNNER_TRACKING_ID": tracking,
		}
	}
	const key = "github/github.com/acme/shop/99/1/ci-1/test"
	for _, tt := range []struct{ tracking, want string }{
		{"github_0190c0de-1111-4222-8333-444455556666", key},
		{"github_0190c0de-1111-4222-8333-444455556666", key},
		{"github_ffffc0de-1111-4222-8333-444455556666", key + "/ffffc0de"},
		{"github_ffffc0de-1111-4222-8333-444455556666", key + "/ffffc0de"},
		{"github_0190c0de-1111-4222-8333-444455556666", key},
		{"github_../../x", key},
		{"", key},
	} {
		if id, ok := identify(env(tt.tracking)); !ok || id.Build.Key != tt.want {
			t.Errorf("%s: %v, key %s, want %s", tt.tracking, ok, id.Build.Key, tt.want)
		}
	}
	l := newLegs(identify)
	for i := range 3 * maxLegs {
		e := env("github_0190c0de-1111")
		e["GITHUB_RUN_ID"] = fmt.Sprint(i)
		l.Identify(e)
	}
	if len(l.first) > maxLegs {
		t.Errorf("%d keys, want at most %d", len(l.first), maxLegs)
	}
}
