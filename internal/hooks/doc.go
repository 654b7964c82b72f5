// Package hooks is the role that takes what CI servers send of themselves: webhooks.
//
// A webhook is verified over its raw bytes before anything looks into it, by the
// secrets of all servers of its kind; then it is parsed, and dropped when its delivery
// is known. What is new waits in a bounded queue for the board: its sender is answered
// at once. Start with [New], then [Receiver.Run]; [Receiver.Receive] may be called by
// many goroutines at once.
package hooks

import (
	"net/http"
	"time"

	"github.com/cimeter/cimeter/internal/queue"
)

// Hook verifies and reads the webhooks of one CI server. Its methods are called by
// many goroutines at once.
type Hook interface {
	// Verify returns nil when the webhook is of who knows the secret; the error wraps
	// cimeter.ErrUnauthorized. It takes the same time for every wrong secret.
	Verify(header http.Header, body []byte, now time.Time) error
	// Parse reads a webhook that Verify let through: what it tells, and the id of the
	// delivery, "" where there is none. The error wraps cimeter.ErrUnsupported for
	// events that tell nothing of builds and workers, and cimeter.ErrInvalid for what
	// cannot be read.
	Parse(header http.Header, body []byte) (r queue.Report, id string, err error)
}
