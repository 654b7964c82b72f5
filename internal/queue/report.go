package queue

import (
	"time"

	"github.com/cimeter/cimeter"
)

// Report is what one question to a CI server, or one of its webhooks, told.
type Report struct {
	// At is when the server was asked, or when the webhook came, by our clock.
	// What is told is at least as new. Whoever asks or receives sets it.
	At      time.Time
	Jobs    []cimeter.Job    // in no order; one key at most once; builds that ended too
	Workers []cimeter.Worker // in no order
	// Moved are builds that have another key than before; where one of them is in
	// Jobs, it is there under the new one.
	Moved []Moved
	// WholeJobs says that every build that waits, is blocked or runs is in Jobs:
	// one of that server that is not has left. WholeWorkers says so of Workers.
	WholeJobs, WholeWorkers bool
	// EveryWorker says that a worker that is not in Workers can take no build of the
	// server: it is one that lists them all, to a token that may see them all. With
	// none of them there is nobody to take a build.
	EveryWorker bool
	// Clock is the server's clock less ours at At (its Date header): times in
	// Jobs are by it. Absent when the server did not tell.
	Clock cimeter.Opt[time.Duration]
	// Wait is how long the server wants no further question, where it says so with
	// a good answer: a limit that is nearly reached, Buildkite's
	// Buildkite-Agent-Metrics-Poll-Duration. 0: it does not say.
	Wait time.Duration
	// Requests is how many requests were made to learn this; 0 is one.
	Requests int
}
