package giteaapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/queue"
)

// Tasks tells which task a job has: a [Client].
type Tasks interface {
	// Task returns 0 when it is not known.
	Task(job int64, attempt int) int64
}

// Hook reads the webhooks workflow_job of Gitea, and of Forgejo where it has them.
type Hook struct {
	Kind   string                 // as Options.Kind
	URL    string                 // as Options.URL
	Secret func() (string, error) // asked for before each is verified
	// Tasks, where the server is polled too, gives a job that began the key that polls
	// and agents give it; one whose task is not known is then left to the next poll.
	Tasks Tasks
}

// Verify checks the HMAC-SHA256 of the body: X-Gitea-Signature, X-Forgejo-Signature
// or X-Hub-Signature-256. Nothing that is signed tells a time. The error wraps
// [cimeter.ErrUnauthorized].
func (h Hook) Verify(header http.Header, body []byte, _ time.Time) error {
	secret, err := ask.Secret(h.Kind, h.Secret)
	if err != nil {
		return err
	}
	for _, name := range [...]string{"X-Gitea-Signature", "X-Forgejo-Signature", "X-Hub-Signature-256"} {
		if sum := header.Get(name); sum != "" {
			if ask.Signed(secret, strings.TrimPrefix(sum, "sha256="), body) {
				return nil
			}
			return ask.Refuse(h.Kind, "%s is another's", name)
		}
	}
	return ask.Refuse(h.Kind, "no signature")
}

// Parse reads a webhook that was verified. id is that of the delivery.
func (h Hook) Parse(header http.Header, body []byte) (report queue.Report, id string, err error) {
	for _, name := range [...]string{"X-Gitea-Delivery", "X-Forgejo-Delivery", "X-Github-Delivery"} {
		if id = header.Get(name); id != "" {
			break
		}
	}
	event := header.Get("X-Gitea-Event")
	if event == "" {
		event = header.Get("X-Forgejo-Event")
	}
	if event != "workflow_job" {
		return report, "", fmt.Errorf("webhook of %s: event %.40q tells of no job: %w", h.Kind, event, cimeter.ErrUnsupported)
	}
	var p struct {
		Job  *job `json:"workflow_job"`
		Repo *struct {
			FullName string `json:"full_name"`
		} `json:"repository"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return report, "", fmt.Errorf("webhook of %s: body of %d bytes is not the JSON that was wanted: %w", h.Kind, len(body), cimeter.ErrInvalid)
	}
	if p.Job == nil || p.Job.ID <= 0 || p.Repo == nil || p.Repo.FullName == "" {
		return report, "", fmt.Errorf("webhook of %s: job without id or repository: %w", h.Kind, cimeter.ErrInvalid)
	}
	s := newServer(h.Kind, h.URL)
	task := int64(0)
	is := status(p.Job.Status, p.Job.Conclusion)
	if h.Tasks != nil && is != cimeter.JobWaiting && is != cimeter.JobBlocked {
		if task = h.Tasks.Task(p.Job.ID, p.Job.Attempt); task == 0 {
			return report, id, nil
		}
	}
	report.Jobs, report.Moved = []cimeter.Job{s.job(p.Repo.FullName, p.Job, task)}, s.moved(p.Job.ID, task)
	return report, id, nil
}
