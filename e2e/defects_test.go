//go:build defects

package e2e_test

import "testing"

// Open defects, each with what reproduces it: go test -tags defects ./e2e.

// The record of a build whose daemon is killed lacks some 70 ms of CPU time.
func TestDockerDaemonKilled(t *testing.T) { dockerDaemonKilled(t) }
