package jenkinsapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/ci/jenkins"
	"github.com/cimeter/cimeter/internal/queue"
)

// Hook reads the webhooks of Jenkins' plugins: Notification (as JSON) and Generic
// Event.
type Hook struct {
	URL    string                 // as Options.URL
	Secret func() (string, error) // asked for before each is verified
}

// Verify checks that the secret is the password of basic authentication, which the
// Notification plugin sends for an address such as https://jenkins:SECRET@HOST/..., or a
// bearer token. Neither plugin signs what it sends. The error wraps
// [cimeter.ErrUnauthorized].
func (h Hook) Verify(header http.Header, _ []byte, _ time.Time) error {
	secret, err := ask.Secret(jenkins.CI, h.Secret)
	if err != nil {
		return err
	}
	scheme, told, _ := strings.Cut(header.Get("Authorization"), " ")
	switch strings.ToLower(scheme) {
	case "basic":
		// As it stands in the address: Java sends it without taking %2F for a slash.
		pair, _ := base64.StdEncoding.DecodeString(strings.TrimSpace(told))
		_, told, _ = strings.Cut(string(pair), ":")
		if plain, err := url.PathUnescape(told); err == nil && ask.Same(plain, secret) {
			return nil
		}
	case "bearer":
		told = strings.TrimSpace(told)
	default:
		return ask.Refuse(jenkins.CI, "no password and no token")
	}
	if !ask.Same(told, secret) {
		return ask.Refuse(jenkins.CI, "the secret is another")
	}
	return nil
}

// notification is what both plugins send, as far as it is read.
type notification struct {
	Build *struct { // Notification
		Number    int64           `json:"number"`
		QueueID   int64           `json:"queue_id"`
		Phase     string          `json:"phase"`
		Status    string          `json:"status"` // of a build that began: of an earlier one, or none
		URL       string          `json:"url"`    // job/a/18/
		FullURL   string          `json:"full_url"`
		Timestamp json.RawMessage `json:"timestamp"` // ms, of the phase; a text in some versions
		Duration  int64           `json:"duration"`  // ms; 0 before the end
		SCM       struct {
			Branch string `json:"branch"`
			Commit string `json:"commit"`
		} `json:"scm"`
	} `json:"build"`

	ID     string          `json:"id"` // Generic Event
	Type   string          `json:"type"`
	Source string          `json:"source"` // job/a/
	Data   json.RawMessage `json:"data"`   // the build, or an object that has it as run

	item int64 // of the queue, which the build was; 0: not told
}

// Parse reads a webhook that was verified. id is the event's, and of a notification
// what it tells: Jenkins numbers none.
func (h Hook) Parse(_ http.Header, body []byte) (report queue.Report, id string, err error) {
	var n notification
	if err := json.Unmarshal(body, &n); err != nil {
		return report, "", fmt.Errorf("webhook of jenkins: body of %d bytes is not the JSON that was wanted: %w", len(body), cimeter.ErrInvalid)
	}
	c := Client{server: ci.ServerOf(h.URL)}
	var j cimeter.Job
	ok := false
	switch {
	case n.Type != "":
		if j, ok, err = h.event(&c, &n); err != nil {
			return report, "", err
		}
		id = n.ID
	case n.Build != nil:
		if j, ok, err = h.notified(&c, &n); err != nil {
			return report, "", err
		}
		id = strings.Join([]string{j.Key, n.Build.Phase, n.Build.Status, string(n.Build.Timestamp)}, " ")
	}
	if !ok {
		return report, "", fmt.Errorf("webhook of jenkins: no build with a number and an address in it: %w", cimeter.ErrInvalid)
	}
	report.Jobs, report.Moved = []cimeter.Job{j}, c.moved(n.item, j.Key)
	return report, id, nil
}

// page is the address of a job or a build by its path below the server.
func (h Hook) page(path string) string {
	return strings.TrimRight(h.URL, "/") + "/" + strings.TrimLeft(path, "/")
}

// event maps run.started and the like of the plugin Generic Event.
func (h Hook) event(c *Client, n *notification) (j cimeter.Job, ok bool, err error) {
	switch n.Type {
	case "run.initialize", "run.started", "run.completed", "run.finalized":
	default:
		return j, false, fmt.Errorf("webhook of jenkins: event %.40q tells of no build: %w", n.Type, cimeter.ErrUnsupported)
	}
	var data struct {
		build
		Run *build `json:"run"`
	}
	if err := json.Unmarshal(n.Data, &data); err != nil {
		return j, false, fmt.Errorf("webhook of jenkins: the data of %.40q are not the JSON that was wanted: %w", n.Type, cimeter.ErrInvalid)
	}
	b := data.build
	if data.Run != nil {
		b = *data.Run
	}
	b.URL = h.page(strings.TrimRight(n.Source, "/") + "/" + strconv.FormatInt(b.Number, 10) + "/")
	running := n.Type == "run.initialize" || n.Type == "run.started" // building is told until all is put away
	b.Building = &running
	n.item = b.QueueID
	j, ok = c.ran(&b, b.BuiltOn)
	return j, ok, nil
}

// notified maps a notification: QUEUED comes when the build begins, with the time
// since when it waited; FINALIZED when all that follows it was done, some moments after
// its end.
func (h Hook) notified(c *Client, n *notification) (j cimeter.Job, ok bool, err error) {
	told := n.Build
	n.item = told.QueueID
	b := build{Number: told.Number, URL: told.FullURL, Result: told.Status, Duration: max(told.Duration, 0)}
	if jobPath(b.URL) == "" {
		b.URL = h.page(told.URL)
	}
	at := int64(0)
	if json.Unmarshal(told.Timestamp, &at) != nil {
		var text ask.Time
		if json.Unmarshal(told.Timestamp, &text) == nil && !text.IsZero() {
			at = text.UnixMilli()
		}
	}
	over := false
	switch told.Phase {
	case "QUEUED", "STARTED":
		if told.Phase == "STARTED" {
			b.Timestamp = at
		}
	case "COMPLETED", "FINALIZED":
		over = true
		if at > b.Duration && b.Duration > 0 {
			b.Timestamp = at - b.Duration
		}
	default:
		return j, false, fmt.Errorf("webhook of jenkins: phase %.40q is none of a build's life: %w", told.Phase, cimeter.ErrUnsupported)
	}
	running := !over
	b.Building = &running
	if j, ok = c.ran(&b, ""); !ok {
		return j, false, nil
	}
	switch {
	case told.Phase == "QUEUED":
		j.CreatedAt = ask.Milli(at)
	case over && j.EndedAt.IsZero(): // older versions do not tell how long it took
		j.EndedAt = ask.Milli(at)
	}
	j.Ref, j.SHA = strings.TrimPrefix(told.SCM.Branch, "origin/"), told.SCM.Commit
	return j, true, nil
}
