package gitlab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
)

// JobKey is the key of the build of a job of the server, the same that [Identify]
// gives its containers. server is its host, and port where its URL has one.
func JobKey(server string, job int64) string {
	return cimeter.BuildKey(CI, strings.ToLower(server), fmt.Sprint(job))
}

// JobStatus maps GitLab's status of a job, in the letters of REST and webhooks
// (pending) or of GraphQL (PENDING). Of those that are not over only a pending job
// waits for a runner; a job that is being canceled still has one.
func JobStatus(s string) cimeter.JobStatus {
	switch strings.ToLower(s) {
	case "created", "waiting_for_resource", "preparing", "waiting_for_callback", "manual", "scheduled":
		return cimeter.JobBlocked
	case "pending":
		return cimeter.JobWaiting
	case "running", "canceling":
		return cimeter.JobRunning
	case "success":
		return cimeter.JobSuccess
	case "failed":
		return cimeter.JobFailed
	case "canceled":
		return cimeter.JobCanceled
	case "skipped":
		return cimeter.JobSkipped
	}
	return cimeter.JobUnknown
}

// Time reads the forms in which GitLab writes a time, as in
//
//	2021-02-23 02:41:37 UTC      webhooks of older versions
//	2021-02-23T02:41:37.886Z     webhooks of newer ones, REST, GraphQL
//	2021-02-23 02:41:37 +0100    seen with a time zone in the settings
//
// and null, or "", as the zero time.
type Time struct{ time.Time }

// ParseTime reads one of the forms of [Time]. The result is in UTC.
func ParseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range [...]string{time.RFC3339Nano, "2006-01-02 15:04:05 UTC", "2006-01-02 15:04:05 -0700"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("time: want 2006-01-02T15:04:05Z or 2006-01-02 15:04:05 UTC: %w", cimeter.ErrInvalid)
}

// UnmarshalJSON reads one of the forms, or null. A time that cannot be read is not
// known: it costs no other part of an answer.
func (t *Time) UnmarshalJSON(b []byte) error {
	t.Time = time.Time{}
	var s string
	if bytes.Equal(b, []byte("null")) || json.Unmarshal(b, &s) != nil {
		return nil
	}
	t.Time, _ = ParseTime(s)
	return nil
}
