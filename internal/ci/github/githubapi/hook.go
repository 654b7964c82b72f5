package githubapi

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/ci/github"
	"github.com/cimeter/cimeter/internal/queue"
)

// Hook reads GitHub's webhooks workflow_job.
type Hook struct {
	URL    string                 // as Options.URL
	Secret func() (string, error) // asked for before each is verified
}

// Verify checks X-Hub-Signature-256, the HMAC-SHA256 of the body as it came. GitHub
// signs no time. The error wraps [cimeter.ErrUnauthorized].
func (h Hook) Verify(header http.Header, body []byte, _ time.Time) error {
	secret, err := ask.Secret(github.CI, h.Secret)
	if err != nil {
		return err
	}
	sum, ok := strings.CutPrefix(header.Get("X-Hub-Signature-256"), "sha256=")
	if !ok {
		return ask.Refuse(github.CI, "no signature: want X-Hub-Signature-256")
	}
	if !ask.Signed(secret, sum, body) {
		return ask.Refuse(github.CI, "signature is another's")
	}
	return nil
}

// Parse reads a webhook that was verified, as JSON or as a form. id is that of the
// delivery.
func (h Hook) Parse(header http.Header, body []byte) (report queue.Report, id string, err error) {
	if event := header.Get("X-GitHub-Event"); event != "workflow_job" {
		return report, "", fmt.Errorf("webhook of github: event %.40q tells of no job: %w", event, cimeter.ErrUnsupported)
	}
	if kind, _, err := mime.ParseMediaType(header.Get("Content-Type")); err == nil && kind == "application/x-www-form-urlencoded" {
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return report, "", fmt.Errorf("webhook of github: the form cannot be read: %w", cimeter.ErrInvalid)
		}
		body = []byte(form.Get("payload"))
	}
	var p struct {
		Job  *job `json:"workflow_job"`
		Repo *struct {
			FullName string `json:"full_name"`
		} `json:"repository"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return report, "", fmt.Errorf("webhook of github: body of %d bytes is not the JSON that was wanted: %w", len(body), cimeter.ErrInvalid)
	}
	if p.Job == nil || p.Job.ID <= 0 || p.Job.RunID <= 0 || p.Repo == nil || p.Repo.FullName == "" {
		return report, "", fmt.Errorf("webhook of github: job without id, run or repository: %w", cimeter.ErrInvalid)
	}
	report.Jobs = []cimeter.Job{p.Job.job(ci.ServerOf(h.URL), p.Repo.FullName, "")}
	return report, header.Get("X-GitHub-Delivery"), nil
}
