// Package e2e holds the end-to-end tests of the agent: real containers on a
// real Docker Engine, started and named as CI runners do it, with known burns
// whose truth is compared with the agent's records.
//
// It has tests only. Each test starts what it needs (package testdocker) and
// takes it away again. Tests named TestDocker... are the bodies that also run
// on a cgroup v2 kernel, inside the emulated guest of scripts/guest.sh, which
// TestInGuest boots: no test here may depend on the machine's speed or its
// cgroup version. They do not run side by side, for the truth of short
// containers is the CPU time of their parent cgroup.
package e2e
