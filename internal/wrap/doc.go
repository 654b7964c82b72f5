// Package wrap runs one command and meters it, with no daemon: what
// `cimeter run` does.
//
// It owns the making, joining and removing of a cgroup for the command, the
// start of the command with everything passed through (descriptors, terminal,
// signals, exit status), the sampling while it runs, the hand-over of stages
// from inner runs to the run around them, and the record of it all. It never
// makes the command fail: what cannot be metered is named in [Report.Missed]
// and the command runs all the same. It never logs and never stores or shows a
// command line or a variable that is not on its allow-list.
//
// When this process is killed (SIGKILL), the kernel kills the command too, as
// whoever kills it means the command; what the command started goes on. A later
// run removes the cgroups and folders that are left behind.
//
// The entry point is [Run]. One run at a time in a process: signals, the
// subreaper flag and the standard descriptors belong to the process.
package wrap
