// Package gitlabapi asks one GitLab server what waits, what runs and who works,
// how builds ended, and what the sections of a job's log are; and it writes notes
// and commit statuses there.
//
// Start with [New]. [Client.Poll] is one look, in few requests: with the token of
// an administrator the whole server is asked by GraphQL, otherwise the projects that
// the token sees, those where something happens first. The client keeps validators
// and cursors in itself; it makes one try of each request, follows no redirect, calls
// no other host than its own, bounds what it reads, and never names a token in an
// error. It starts no goroutine and does not log. Poll and Begin have one caller at a time;
// the other methods may be called by many goroutines at once.
package gitlabapi
