package droneapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/drone"
	"github.com/cimeter/cimeter/internal/queue"
)

// maxAge is how far a webhook's date may be from now.
const maxAge = 5 * time.Minute

// Hook reads Drone's global webhooks (DRONE_WEBHOOK_ENDPOINT and _SECRET).
type Hook struct {
	URL    string                 // the server's address, as Options.URL
	Secret func() (string, error) // asked for before each is verified
}

// Verify checks the HTTP signature (draft-cavage, hmac-sha256 over the headers date
// and digest), that the digest is the body's, and that the date is at most five
// minutes from now. The error wraps [cimeter.ErrUnauthorized].
func (h Hook) Verify(header http.Header, body []byte, now time.Time) error {
	secret, err := h.Secret()
	if err != nil {
		return fmt.Errorf("webhook of drone: read the secret: %w", err)
	}
	if secret == "" {
		return refuse("there is no secret to verify by")
	}
	s, ok := signature(header)
	if !ok {
		return refuse("no signature")
	}
	if s["algorithm"] != "hmac-sha256" {
		return refuse("algorithm %.40q: want hmac-sha256", s["algorithm"])
	}
	signed := strings.Fields(strings.ToLower(s["headers"]))
	var lines []string
	covers := map[string]bool{}
	for _, name := range signed {
		values := header.Values(name)
		if len(values) == 0 || len(lines) > 10 {
			return refuse("signs a header that is not there, or too many")
		}
		covers[name] = true
		lines = append(lines, name+": "+strings.Join(values, ", "))
	}
	if !covers["date"] || !covers["digest"] || len(header.Values("Digest")) != 1 || len(header.Values("Date")) != 1 {
		return refuse("signs %.80q: want date and digest", signed)
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(strings.Join(lines, "\n")))
	got, err := base64.StdEncoding.DecodeString(s["signature"])
	if err != nil || !hmac.Equal(got, mac.Sum(nil)) {
		return refuse("signature is another's")
	}
	sum := sha256.Sum256(body)
	if header.Get("Digest") != "SHA-256="+base64.StdEncoding.EncodeToString(sum[:]) {
		return refuse("digest is that of another body")
	}
	date, err := time.Parse(http.TimeFormat, header.Get("Date"))
	if err != nil {
		return refuse("date is none")
	}
	if off := now.Sub(date).Abs(); off > maxAge {
		return refuse("date is %v from now: want at most %v", off.Round(time.Second), maxAge)
	}
	return nil
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("webhook of drone: %s: %w", fmt.Sprintf(format, args...), cimeter.ErrUnauthorized)
}

// signature reads the parameters of the header Signature, or of Authorization with
// that scheme: both are seen.
func signature(header http.Header) (map[string]string, bool) {
	s := header.Get("Signature")
	if s == "" {
		var ok bool
		if s, ok = strings.CutPrefix(header.Get("Authorization"), "Signature "); !ok {
			return nil, false
		}
	}
	p := make(map[string]string)
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimLeft(s, ", ") {
		name, rest, ok := strings.Cut(s, `="`)
		if !ok {
			return nil, false
		}
		value, after, ok := strings.Cut(rest, `"`)
		if _, twice := p[name]; !ok || twice {
			return nil, false
		}
		p[name], s = value, after
	}
	return p, p["signature"] != ""
}

// Parse reads a webhook that was verified. The error wraps
// [cimeter.ErrUnsupported] for one of users or repositories. id is its signature: Drone numbers no deliveries, and the same
// signature is the same words in the same second.
func (h Hook) Parse(header http.Header, body []byte) (report queue.Report, id string, err error) {
	if s, ok := signature(header); ok {
		id = s["signature"]
	}
	var p struct {
		Event string          `json:"event"`
		Repo  *repo           `json:"repo"`
		Build *drone.BuildRow `json:"build"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return report, "", fmt.Errorf("webhook of drone: body of %d bytes is not the JSON that was wanted: %w", len(body), cimeter.ErrInvalid)
	}
	if p.Event != "build" {
		return report, "", fmt.Errorf("webhook of drone: event %.40q tells of no build: %w", p.Event, cimeter.ErrUnsupported)
	}
	if p.Repo == nil || p.Build == nil || p.Repo.Slug == "" || p.Build.Number <= 0 {
		return report, "", fmt.Errorf("webhook of drone: build without number or repository: %w", cimeter.ErrInvalid)
	}
	report.Jobs = drone.NewServer(h.URL).Jobs(p.Repo.Slug, p.Build)
	return report, id, nil
}
