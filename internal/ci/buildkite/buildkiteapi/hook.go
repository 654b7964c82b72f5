package buildkiteapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/ci/buildkite"
	"github.com/cimeter/cimeter/internal/queue"
)

// maxAge is how far a webhook's time may be from now, as Buildkite advises.
const maxAge = 5 * time.Minute

// Hook reads Buildkite's webhooks of jobs and agents.
type Hook struct {
	URL    string                 // as Options.URL
	Secret func() (string, error) // asked for before each is verified
}

// Verify checks X-Buildkite-Signature, the HMAC-SHA256 of time and body with a time
// at most five minutes from now; where there is none, that X-Buildkite-Token is the
// secret. The error wraps [cimeter.ErrUnauthorized].
func (h Hook) Verify(header http.Header, body []byte, now time.Time) error {
	secret, err := ask.Secret(buildkite.CI, h.Secret)
	if err != nil {
		return err
	}
	signature := header.Get("X-Buildkite-Signature")
	if signature == "" {
		if !ask.Same(header.Get("X-Buildkite-Token"), secret) {
			return ask.Refuse(buildkite.CI, "no signature, and the token is another")
		}
		return nil
	}
	at, sum, ok := strings.Cut(strings.TrimPrefix(signature, "timestamp="), ",signature=")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil || !ask.Signed(secret, sum, []byte(at+"."), body) {
		return ask.Refuse(buildkite.CI, "signature is another's")
	}
	if off := now.Sub(time.Unix(seconds, 0)).Abs(); off > maxAge {
		return ask.Refuse(buildkite.CI, "time is %v from now: want at most %v", off.Round(time.Second), maxAge)
	}
	return nil
}

// Parse reads a webhook that was verified. id is its signature: Buildkite numbers no
// deliveries. The state that is told can be later than the event, never earlier.
func (h Hook) Parse(header http.Header, body []byte) (report queue.Report, id string, err error) {
	var p struct {
		Event string `json:"event"`
		Build *build `json:"build"`
		Job   *job   `json:"job"`
		Agent *agent `json:"agent"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return report, "", fmt.Errorf("webhook of buildkite: body of %d bytes is not the JSON that was wanted: %w", len(body), cimeter.ErrInvalid)
	}
	server := ci.ServerOf(h.URL)
	_, id, _ = strings.Cut(header.Get("X-Buildkite-Signature"), "signature=")
	switch {
	case strings.HasPrefix(p.Event, "job."):
		if p.Job == nil || p.Build == nil || p.Job.ID == "" || p.Build.Number <= 0 || place(p.Build.URL) == "" {
			return report, "", fmt.Errorf("webhook of buildkite: job without id or build: %w", cimeter.ErrInvalid)
		}
		if p.Job.Agent == nil {
			p.Job.Agent = p.Agent
		}
		if j, ok := p.Job.job(server, p.Build); ok {
			report.Jobs = []cimeter.Job{j}
		}
		return report, id, nil
	case strings.HasPrefix(p.Event, "agent."):
		if p.Agent == nil || p.Agent.ID == "" {
			return report, "", fmt.Errorf("webhook of buildkite: agent without id: %w", cimeter.ErrInvalid)
		}
		report.Workers = []cimeter.Worker{p.Agent.worker(server, nil)}
		return report, id, nil
	}
	return report, "", fmt.Errorf("webhook of buildkite: event %.40q tells of no job and no agent: %w", p.Event, cimeter.ErrUnsupported)
}
