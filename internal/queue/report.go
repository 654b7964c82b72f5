package queue

import (
	"time"

	"github.com/cimeter/cimeter"
)

// Report is what one question to a CI server, or one of its webhooks, told.
type Report struct {
	At      time.Time        // when it was told, by our clock
	Jobs    []cimeter.Job    // in no order; one key at most once
	Workers []cimeter.Worker // in no order
	// WholeJobs says that every build that waits, is blocked or runs is in Jobs:
	// one of that server that is not has left. WholeWorkers says so of Workers.
	WholeJobs, WholeWorkers bool
	// Clock is the server's clock less ours at At (its Date header): times in
	// Jobs are by it. Absent when the server did not tell.
	Clock cimeter.Opt[time.Duration]
}
