package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/cimeter/cimeter"
)

// Kept is what a back end holds of a build.
type Kept struct {
	Record, Trace []byte // stored forms
	ReceivedAt    int64
	Agent         string
	Flags         int64
}

// row takes what is kept apart again.
func (k *Kept) row(key string) (*Row, error) {
	r, err := Decode(key, k.Record, k.Trace)
	if err != nil {
		return nil, err
	}
	row, err := NewRow(Put{Record: r, ReceivedAt: Time(k.ReceivedAt), Agent: k.Agent})
	if err != nil {
		return nil, err
	}
	row.Part = partOfFlags(k.Flags)
	return row, nil
}

// Meter returns the row of a record whose build is kept already, as a CI server
// told of it, and the row that it replaces. What the record does not know is
// taken from there.
func Meter(row *Row, kept *Kept) (merged, old *Row, err error) {
	if old, err = kept.row(row.Key); err != nil {
		return nil, nil, err
	}
	r := *row.put.Record
	told := old.put.Record
	r.Build = numbered(r.Build.Merge(told.Build), &told.Build)
	if r.QueuedAt.IsZero() && !told.QueuedAt.IsZero() {
		r.QueuedAt = r.StartedAt.Add(-max(0, told.StartedAt.Sub(told.QueuedAt)))
	}
	if r.Result == "" {
		r.Result = told.Result
	}
	if r.FailedFor == "" && r.Result == string(cimeter.JobFailed) {
		r.FailedFor = told.FailedFor
	}
	if len(r.Tags) == 0 {
		r.Tags = told.Tags
	}
	p := row.put
	p.Record = &r
	if merged, err = NewRow(p); err != nil {
		return nil, nil, err
	}
	merged.Part = old.Part
	return merged, old, nil
}

// Told returns the row of a build after jobs of its key, in their order, and the
// row that it replaces. kept is nil when there is none. The row is nil when
// nothing is to be written: a build that nobody metered is kept from its end on.
// What a job does not tell takes nothing away, and what an agent's record knows
// no job changes.
func Told(jobs []cimeter.Job, kept *Kept, now time.Time) (merged, old *Row, err error) {
	p := Put{}
	var r *cimeter.Record
	if kept != nil {
		if old, err = kept.row(jobs[0].Key); err != nil {
			return nil, nil, err
		}
		p, r = old.put, old.put.Record
	}
	changed := false
	for i := range jobs {
		next := told(r, &jobs[i])
		changed = changed || next != r
		r = next
	}
	if !changed || r == nil {
		return nil, nil, nil
	}
	if p.Record = r; kept == nil {
		p.ReceivedAt = now
		if now.Before(r.EndedAt) {
			p.ReceivedAt = r.EndedAt // a build is where its CI server's clock puts it
		}
	}
	if merged, err = NewRow(p); err != nil {
		return nil, nil, fmt.Errorf("job: %w", err)
	}
	if old != nil {
		merged.Part = old.Part
	}
	return merged, old, nil
}

// told returns r, or a copy of it that knows what j tells; nil: still none.
func told(r *cimeter.Record, j *cimeter.Job) *cimeter.Record {
	started := j.StartedAt
	if started.IsZero() {
		started = j.EndedAt // never did
	}
	queue := cimeter.Opt[time.Duration]{}
	switch {
	case j.QueueSeconds.Known && j.QueueSeconds.Value >= 0 && j.QueueSeconds.Value < 1e9:
		queue = cimeter.Some(time.Duration(j.QueueSeconds.Value * float64(time.Second)))
	case !j.QueuedAt.IsZero() && !started.IsZero():
		queue = cimeter.Some(max(0, started.Sub(j.QueuedAt)))
	}
	result := ""
	if j.Status.Ended() {
		result = string(j.Status)
	}
	if r == nil {
		if result == "" || j.EndedAt.IsZero() {
			return nil
		}
		r = &cimeter.Record{Schema: cimeter.RecordSchema, Build: cimeter.Build{Key: j.Key}, Metered: cimeter.Some(false), Gaps: []cimeter.Gap{}, Stages: []cimeter.Stage{}}
	}
	next := *r
	next.Build = numbered(r.Build.Merge(j.Build), &j.Build)
	next.Build.Key = r.Key
	unmetered := r.Metered == cimeter.Some(false)
	if unmetered {
		if !j.EndedAt.IsZero() && result != "" {
			next.EndedAt = j.EndedAt
			next.StartedAt = started
			if started.After(j.EndedAt) {
				next.StartedAt = j.EndedAt
			}
		}
		// The queue time that is known stands by the start.
		if !r.QueuedAt.IsZero() && !queue.Known {
			queue = cimeter.Some(max(0, r.StartedAt.Sub(r.QueuedAt)))
		}
	}
	if queue.Known && (unmetered || r.QueuedAt.IsZero()) {
		next.QueuedAt = next.StartedAt.Add(-queue.Value)
	}
	if result != "" && (unmetered || r.Result == "") {
		next.Result = result
	}
	if j.FailureReason != "" && next.Result == string(cimeter.JobFailed) && (unmetered || r.FailedFor == "") {
		next.FailedFor = j.FailureReason
	}
	if len(j.Tags) > 0 && (unmetered || len(r.Tags) == 0) {
		next.Tags = j.Tags
	}
	if next.Build == r.Build && next.QueuedAt.Equal(r.QueuedAt) && next.StartedAt.Equal(r.StartedAt) && next.EndedAt.Equal(r.EndedAt) &&
		next.Result == r.Result && next.FailedFor == r.FailedFor && slices.Equal(next.Tags, r.Tags) {
		return r
	}
	return &next
}

// JobsByKey returns the jobs of each key in their order, and the keys sorted.
// The error wraps [cimeter.ErrInvalid] for a key that no build can have.
func JobsByKey(jobs []cimeter.Job) (byKey map[string][]cimeter.Job, keys []string, err error) {
	byKey = map[string][]cimeter.Job{}
	for _, j := range jobs {
		if !ValidKey(j.Key) {
			return nil, nil, fmt.Errorf("job: key %.80q: want 1 to %d bytes of UTF-8 without NUL: %w", j.Key, MaxKeyBytes, cimeter.ErrInvalid)
		}
		if byKey[j.Key] == nil {
			keys = append(keys, j.Key)
		}
		byKey[j.Key] = append(byKey[j.Key], j)
	}
	slices.Sort(keys)
	return byKey, keys, nil
}
