// Package refine is the role that reads the logs of finished builds, once each, for
// the names and times of their sections, so that a build can be divided by them after
// its CI server forgot the log or is gone.
//
// What is kept stands beside the record, which never changes: see [section.Split] for
// what is made of it. A log's text is read as it comes and never kept.
//
// It looks at the store for builds that ended, so a restart loses nothing of the last
// day. A log is read half a minute after its build's end at the soonest; what fails is
// tried again, later each time, and given up after five tries. Each server has its own
// bound of requests, apart from that of its polls, and its own pause when it asks for
// one. Of several servers on one store one reads.
//
// One goroutine does it all. Start with [New], then [Refiner.Run].
package refine
