package store

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/cimeter/cimeter"
)

// What an agent and a CI server tell of a build that has no key which both know is
// joined by its [cimeter.Build.Place] and its time. Back ends look for the other side
// of what they write among what they hold, with [Around] and [Join].
const (
	// outside is how far a record may begin before its job or end after it: clocks
	// of machines are that good, and a server tells whole seconds.
	outside = 30 * time.Second
	// lingers is how long after its job the last container of a record may end.
	lingers = time.Hour
	// MaxAround bounds the builds that are looked at for one: a runner that had more
	// in that time is none.
	MaxAround = 100
)

// Sought says which builds may be the other side of one, or its rivals: those of a
// pipeline and a runner (its key) whose At is within bounds.
type Sought struct {
	Place            string
	Pipeline, Runner string
	From, To         int64 // microseconds, inclusive
}

// Number stands for the place where a database locks by number.
func (s *Sought) Number() int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.Place))
	return int64(h.Sum64())
}

// Around tells what to look for; ok is false where a build's key is what joins it.
func Around(r *Row) (s Sought, ok bool) {
	rec := r.put.Record
	place := rec.Place()
	if place == "" {
		return s, false
	}
	from, to := span(rec)
	return Sought{Place: place, Pipeline: r.Pipeline, Runner: r.Runner, From: Micros(from.Add(-outside)), To: Micros(to.Add(lingers))}, true
}

// Beside is a build that was found.
type Beside struct {
	Key string
	ID  int64 // the back end's own
	Kept
}

// Join tells which of the builds that were found around r is its other side: the only
// one that fits and has none yet, where r is the only one that fits it. It is -1 where
// there is none; ambiguous says that there were several, so that none may be taken.
func Join(r *Row, around []Beside) (at int, ambiguous bool) {
	if len(around) >= MaxAround {
		return -1, true
	}
	mine, records := r.put.Record, make([]*cimeter.Record, len(around))
	at = -1
	for i := range around {
		if _, part := BuildOf(around[i].Key); part {
			continue // of another machine: the build's own key stands for it
		}
		other, err := Decode(around[i].Key, around[i].Record, nil)
		if err != nil || other.Key == mine.Key {
			continue // damage is told of where it is read
		}
		records[i] = other
		switch {
		case r.Metered == 0 && other.Metered != cimeter.Some(false) && joined(other):
			if other.Place() == mine.Place() && other.Number == mine.Number {
				return i, false // told again
			}
		case !fits(mine, other):
		case at >= 0:
			ambiguous = true
		default:
			at = i
		}
	}
	if at < 0 || ambiguous {
		return -1, ambiguous
	}
	for i, rival := range records {
		if i != at && rival != nil && (r.Metered == 0 || !joined(rival)) && fits(rival, records[at]) {
			return -1, true
		}
	}
	return at, false
}

// joined reports whether a record of a build with a place knows what its CI server
// told: no agent knows since when it was queued.
func joined(r *cimeter.Record) bool { return !r.QueuedAt.IsZero() }

// fits reports whether a record and what a CI server told are of one build: more than
// half of the record's time is in the job's, so that no other job of the runner can have
// as much, and none is far outside.
func fits(a, b *cimeter.Record) bool {
	if a.Place() != b.Place() || !a.SameAttempt(&b.Build) {
		return false
	}
	agent, told := a, b
	if agent.Metered == cimeter.Some(false) {
		agent, told = told, agent
	}
	if agent.Metered == cimeter.Some(false) || told.Metered != cimeter.Some(false) {
		return false
	}
	from, to := span(agent)
	begun, ended := told.StartedAt, told.EndedAt.Add(time.Second) // whole seconds, cut
	if agent.Attempt == 0 && from.Before(begun) && begun.Before(to) {
		from = begun // the pod of a runner (ARC) is there before the one job that it has
	}
	length := max(to.Sub(from), time.Millisecond)
	to = from.Add(length)
	if from.Before(begun.Add(-outside)) || to.After(ended.Add(outside)) {
		return false
	}
	if from.Before(begun) {
		from = begun
	}
	if to.After(ended) {
		to = ended
	}
	return to.Sub(from) > length/2
}

// span is the time in which a record's build ran: without containers that wait for it
// or stand beside it.
func span(r *cimeter.Record) (from, to time.Time) {
	for i := range r.Stages {
		s := &r.Stages[i]
		if s.Alongside || s.StartedAt.IsZero() || s.EndedAt.IsZero() {
			continue
		}
		if from.IsZero() || s.StartedAt.Before(from) {
			from = s.StartedAt
		}
		if s.EndedAt.After(to) {
			to = s.EndedAt
		}
	}
	if from.IsZero() {
		return r.StartedAt, r.EndedAt
	}
	return from, to
}

// numbered gives a build of a place the number and the page that its CI server has for
// it: the agent knows those of the run.
func numbered(b cimeter.Build, told *cimeter.Build) cimeter.Build {
	if told.Place() == "" || b.Place() != told.Place() || told.Number == "" {
		return b
	}
	b.Number = told.Number
	if told.URL != "" {
		b.URL = told.URL
	}
	return b
}

// placed finds a build that was joined by its place, by the key that its CI server has
// for it; nil: there is none.
func (r Reader) placed(ctx context.Context, key string) (found *cimeter.Record, err error) {
	pipeline, number, ok := cimeter.ToldAs(key)
	if !ok || !ValidKey(key) {
		return nil, nil
	}
	s := statement{dialect: r.q.Dialect()}
	from := "builds JOIN bodies USING (id)"
	if s.dialect == Postgres {
		from = "builds"
	}
	s.add("SELECT key, record, trace FROM "+from+" WHERE number = ? AND pipeline = ? AND metered = 1 LIMIT ?", number, pipeline, MaxAround)
	err = s.run(ctx, r.q, func(scan func(dest ...any) error) error {
		var own string
		var record, trace []byte
		if err := scan(&own, &record, &trace); err != nil {
			return err
		}
		one, err := Decode(own, record, trace)
		if err != nil {
			return err
		}
		// The number of another is that of its run.
		if one.Place() != "" && joined(one) && cimeter.ToldKey(one.CI, one.Server, one.Project, one.Pipeline, one.Number) == key {
			found = one
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("build %.200q: %w", key, err)
	}
	return found, nil
}

// Rekeyed returns jobs under another key.
func Rekeyed(jobs []cimeter.Job, key string) []cimeter.Job {
	out := slices.Clone(jobs)
	for i := range out {
		out[i].Key = key
	}
	return out
}
