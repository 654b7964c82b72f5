// Package cgroup reads what the kernel counts for control groups: cgroup v2,
// v1, and hybrid hosts, chosen for each controller from what is mounted.
//
// It owns finding the hierarchies under given roots, the descriptors of the
// groups that are metered, the parsers of the kernel's files, and what a
// cgroup's path tells of a container. It never watches, never schedules, never
// retries by itself and never logs: a call makes one try and returns.
//
// Start with [Open], then [Host.Group] for each cgroup to meter, and call
// [Group.Read] on it once a round with [Fast], every so many rounds and at the
// end with [Full]. Descriptors stay open between reads and are read by pread
// into one buffer, so that a round allocates nothing.
//
// A Host and its Groups may be used by several goroutines: one lock of the
// Host guards them all. What is passed in (a Sample, a slice) is the caller's.
//
// Absent is not zero: a file that the kernel does not have, or that counts
// nothing on this host, leaves its readings absent.
package cgroup
