package gitlabapi

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
	"github.com/cimeter/cimeter/internal/queue"
)

// Hook verifies and reads the webhooks of one GitLab server. Many goroutines may use
// it at once.
type Hook struct {
	Server string // host, and port where its URL has one
	// Secrets gives what one webhook is verified by, a line each: tokens and signing
	// tokens (whsec_...); any of them will do, so that one can be replaced.
	Secrets func() (string, error)
	// Pipeline is told of each pipeline that a webhook tells of; nil is nobody. It must
	// not wait.
	Pipeline func(gitlab.Pipeline)
}

// Verify is [gitlab.VerifyHook].
func (h *Hook) Verify(header http.Header, body []byte, now time.Time) error {
	text, err := h.Secrets()
	if err != nil {
		return fmt.Errorf("secret of webhooks: %w: %w", err, cimeter.ErrUnauthorized)
	}
	return gitlab.VerifyHook(strings.Fields(text), header.Get, body, now)
}

// Parse reads a webhook that Verify let through.
func (h *Hook) Parse(header http.Header, body []byte) (queue.Report, string, error) {
	r, p, err := gitlab.ParseHook(h.Server, body)
	if err != nil {
		return queue.Report{}, "", err
	}
	if p != nil && h.Pipeline != nil {
		h.Pipeline(*p)
	}
	return r, gitlab.HookID(header.Get), nil
}
