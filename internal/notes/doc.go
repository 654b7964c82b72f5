// Package notes is the role that tells a merge request what its builds cost: one
// note, kept up to date in place, and a line at the commit.
//
// It looks at the store for builds that were added, so nothing is lost over a restart
// but what was half an hour ago; webhooks tell of pipelines, as far as they come: the
// merge request of a branch's pipeline, the target branch, the end. A merge request is
// written to at most once a minute, and only what changed; failures are tried again,
// later each time. Of several servers on one store one writes.
//
// Start with [New], then [Notes.Run]. [Notes.Tell] may be called by many goroutines
// at once.
package notes
