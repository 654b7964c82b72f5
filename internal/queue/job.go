package queue

import (
	"math"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
)

// rank orders what can become of a build: it only rises, but for builds that a
// server gives to another worker, which a poll tells.
type rank int8

const (
	rankUnknown rank = iota
	rankBlocked
	rankSkipped // below waiting: a skipped build runs when an earlier one is tried again (GitLab)
	rankWaiting
	rankRunning
	rankEnded
)

func rankOf(s cimeter.JobStatus) rank {
	switch s {
	case cimeter.JobBlocked:
		return rankBlocked
	case cimeter.JobSkipped:
		return rankSkipped
	case cimeter.JobWaiting:
		return rankWaiting
	case cimeter.JobRunning:
		return rankRunning
	case cimeter.JobSuccess, cimeter.JobFailed, cimeter.JobCanceled:
		return rankEnded
	}
	return rankUnknown
}

// entry is what is known of one build.
type entry struct {
	told   []told[cimeter.Job]
	polled time.Time                // when a whole list of builds had it last
	firsts [rankEnded + 1]time.Time // when it was first told to be of each rank; zero: it was not

	// What the looks at the board found; see look.go.
	counted  bool // its end is told of
	started  bool // its wait is among the samples
	spent    Wait // what it was seen to wait for, while it waited
	seen     time.Time
	began    time.Time   // when its first container started, as an agent told
	booted   time.Time   // when its machine did
	pulled   time.Time   // when the last image that it needed was there; zero: none was pulled
	prepared time.Time   // when it was last seen to be prepared
	ready    time.Time   // when an agent was first seen to run its own commands
	last     cimeter.Job // as it was told of last to those who store it
}

// at is when it was told of last.
func (e *entry) at() time.Time { return lastAt(e.told) }

// rank is where the build stands: what was told highest, but for what was told
// before a whole list had it otherwise. The end stays.
func (e *entry) rank() rank {
	var best rank
	for i := range e.told {
		t := &e.told[i]
		if t.rank > best && (t.rank == rankEnded || !t.at.Before(e.polled)) {
			best = t.rank
		}
	}
	return best
}

// job is the build as everything told makes it, by our clock; ahead is how far the
// server's is ahead of it. waited is what the server counts as its wait so far at
// that instant, where it says so.
func (e *entry) job(ahead time.Duration) (j cimeter.Job, waited cimeter.Opt[float64], at time.Time) {
	is := e.rank()
	take := func(t *told[cimeter.Job], all bool) {
		v := t.value
		if t.raw {
			shift(&v, ahead)
		}
		if !all {
			v = cimeter.Job{Build: v.Build, Tags: v.Tags, CreatedAt: v.CreatedAt}
			if is < rankRunning { // another worker may get it
				v.Machine, v.Runner = "", cimeter.Runner{}
			}
		}
		if !waited.Known && v.QueueSeconds.Known {
			waited, at = v.QueueSeconds, t.at
		}
		fillJob(&j, &v)
	}
	for r := is; r >= rankUnknown; r-- {
		for i := len(e.told) - 1; i >= 0; i-- {
			if t := &e.told[i]; t.rank == r {
				if j.Status == "" {
					j.Status = t.value.Status
				}
				take(t, true)
			}
		}
	}
	for i := len(e.told) - 1; i >= 0; i-- {
		if t := &e.told[i]; t.rank > is {
			take(t, false)
		}
	}
	if is < rankRunning {
		j.StartedAt, j.Worker, j.QueueSeconds = time.Time{}, "", cimeter.Opt[float64]{}
	}
	if is < rankEnded {
		j.EndedAt, j.FailureReason = time.Time{}, ""
	}
	settle(&j)
	return j, waited, at
}

// settle makes the times of a build such that no duration is negative: what began
// before what it follows began then.
func settle(j *cimeter.Job) {
	if j.QueuedAt.IsZero() && j.QueueSeconds.Known && !j.StartedAt.IsZero() {
		j.QueuedAt = j.StartedAt.Add(-seconds(j.QueueSeconds.Value))
	}
	if !j.QueuedAt.IsZero() && j.QueuedAt.Before(j.CreatedAt) {
		j.QueuedAt = j.CreatedAt
	}
	for _, t := range [...]time.Time{j.CreatedAt, j.QueuedAt} {
		if !j.StartedAt.IsZero() && j.StartedAt.Before(t) {
			j.StartedAt = t
		}
	}
	for _, t := range [...]time.Time{j.CreatedAt, j.QueuedAt, j.StartedAt} {
		if !j.EndedAt.IsZero() && j.EndedAt.Before(t) {
			j.EndedAt = t
		}
	}
}

// fillJob takes from src what dst does not tell, but for the status, and reports
// whether there was any.
func fillJob(dst, src *cimeter.Job) (took bool) {
	if b := dst.Build.Merge(src.Build); b != dst.Build {
		dst.Build, took = b, true
	}
	if dst.Tags == nil && src.Tags != nil {
		dst.Tags, took = src.Tags, true
	}
	for _, f := range [...]struct{ dst, src *time.Time }{
		{&dst.CreatedAt, &src.CreatedAt}, {&dst.QueuedAt, &src.QueuedAt}, {&dst.StartedAt, &src.StartedAt}, {&dst.EndedAt, &src.EndedAt},
	} {
		if f.dst.IsZero() && !f.src.IsZero() {
			*f.dst, took = *f.src, true
		}
	}
	if !dst.QueueSeconds.Known && src.QueueSeconds.Known {
		dst.QueueSeconds, took = src.QueueSeconds, true
	}
	if dst.FailureReason == "" && src.FailureReason != "" {
		dst.FailureReason, took = src.FailureReason, true
	}
	if dst.Worker == "" && src.Worker != "" {
		dst.Worker, took = src.Worker, true
	}
	return took
}

// shift turns a server's times into ours.
func shift(j *cimeter.Job, ahead time.Duration) {
	if ahead == 0 {
		return
	}
	for _, t := range [...]*time.Time{&j.CreatedAt, &j.QueuedAt, &j.StartedAt, &j.EndedAt} {
		if !t.IsZero() {
			*t = t.Add(-ahead)
		}
	}
}

// sameClock is how far two clocks may be apart and count as one: a header Date has
// whole seconds and took a while to come.
const sameClock = 2 * time.Second

// The bounds of what is taken from a CI server; what is longer is cut.
const (
	maxKey   = 1024
	maxText  = 512
	maxTags  = 64
	maxAhead = 100 * 365 * 24 * time.Hour
)

// tidy bounds a build as it came: texts that are too long are cut, times in UTC,
// numbers that are none are absent. It reports false for what has no usable key.
func tidy(j *cimeter.Job) bool {
	if j.Key == "" || len(j.Key) > maxKey {
		return false
	}
	for _, s := range [...]*string{
		&j.CI, &j.Server, &j.Project, &j.Number, &j.Name, &j.Pipeline, &j.PipelineStage, &j.Ref, &j.SHA, &j.Event, &j.URL,
		&j.Machine, &j.Runner.ID, &j.Runner.ShortToken, &j.Runner.Name, &j.FailureReason, &j.Worker,
	} {
		*s = cut(*s)
	}
	j.Tags = tidyTags(j.Tags)
	for _, t := range [...]*time.Time{&j.CreatedAt, &j.QueuedAt, &j.StartedAt, &j.EndedAt} {
		*t = tidyTime(*t)
	}
	if q := j.QueueSeconds; q.Known && (math.IsNaN(q.Value) || q.Value < 0 || q.Value > maxAhead.Seconds()) {
		j.QueueSeconds = cimeter.Opt[float64]{}
	}
	j.Attempt = max(0, j.Attempt)
	return true
}

func tidyTime(t time.Time) time.Time {
	if t.Unix() <= 0 || t.Year() > 9000 { // year 1 and 1970 are how some servers write "not yet"
		return time.Time{}
	}
	return t.Round(0).UTC()
}

func tidyTags(tags []string) []string {
	if tags == nil {
		return nil
	}
	out := make([]string, 0, min(len(tags), maxTags))
	for _, t := range tags[:min(len(tags), maxTags)] {
		out = append(out, cut(t))
	}
	return out
}

func cut(s string) string {
	if len(s) > maxText {
		s = strings.Clone(s[:maxText])
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), maxAhead.Seconds()) * float64(time.Second))
}
