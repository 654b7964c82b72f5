package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/wire"
)

const (
	maxWaiting = 64 // requests that wait for a commit; each holds at most a batch in memory
)

// ingest is one request that waits.
type ingest struct {
	ctx     context.Context // the request's: who is gone needs no commit
	batch   []store.Put
	results []wire.Result
	err     error
	done    chan struct{}
}

// Put implements [httpapi.Ingest].
func (s *Server) Put(ctx context.Context, agent string, records []*cimeter.Record) ([]wire.Result, error) {
	if len(agent) > 128 {
		agent = ""
	}
	in := &ingest{ctx: ctx, batch: make([]store.Put, len(records)), done: make(chan struct{})}
	now := s.o.Now()
	for i, r := range records {
		in.batch[i] = store.Put{Record: r, ReceivedAt: now, Agent: agent}
	}
	// The bound is not the channel's own: what is being committed counts too.
	if n := s.waiting.Add(1); n > maxWaiting {
		s.waiting.Add(-1)
		s.busy.Add(1)
		return nil, fmt.Errorf("%d requests wait for a commit: %w", n-1, httpapi.ErrBusy)
	}
	s.queued.Add(float64(len(records)))
	defer func() {
		s.waiting.Add(-1)
		s.queued.Add(-float64(len(records)))
	}()
	select {
	case s.ingests <- in:
	case <-s.stopped:
		return nil, fmt.Errorf("server stops: %w", cimeter.ErrUnavailable)
	}
	select {
	case <-in.done:
		return in.results, in.err
	case <-s.stopped:
		select { // both may be so
		case <-in.done:
			return in.results, in.err
		default:
			return nil, fmt.Errorf("server stops: %w", cimeter.ErrUnavailable)
		}
	}
}

// Refused implements [httpapi.Ingest].
func (s *Server) Refused(n int) { s.refused.Add(float64(n)) }

// commit takes requests until ctx ends, as many in one commit as wait and fit.
func (s *Server) commit(ctx context.Context) {
	var first *ingest
	for {
		if first == nil {
			select {
			case <-ctx.Done():
				return
			case first = <-s.ingests:
			}
		}
		group := []*ingest{first}
		size := len(first.batch)
		first = nil
		for more := true; more; {
			select {
			case in := <-s.ingests:
				if size+len(in.batch) > store.MaxBatch {
					first, more = in, false
					continue
				}
				group = append(group, in)
				size += len(in.batch)
			default:
				more = false
			}
		}
		s.commitGroup(ctx, group)
	}
}

// commitGroup commits what the requests hold, together; when the store refuses
// something in it, each request by itself, and then each record.
func (s *Server) commitGroup(ctx context.Context, group []*ingest) {
	var all []store.Put
	var asked []*ingest
	for _, in := range group {
		if in.err = in.ctx.Err(); in.err != nil { // its client is gone and will send it again
			close(in.done)
			continue
		}
		all = append(all, in.batch...)
		asked = append(asked, in)
	}
	results, err := s.put(ctx, all)
	for _, in := range asked {
		switch {
		case err == nil:
			in.results, results = results[:len(in.batch)], results[len(in.batch):]
		case errors.Is(err, cimeter.ErrInvalid):
			in.results, in.err = s.putEach(ctx, in.batch)
		default:
			in.err = err
		}
		close(in.done)
	}
}

// putEach commits each record by itself and refuses those that the store does.
func (s *Server) putEach(ctx context.Context, batch []store.Put) ([]wire.Result, error) {
	results := make([]wire.Result, 0, len(batch))
	for i := range batch {
		one, err := s.put(ctx, batch[i:i+1])
		switch {
		case errors.Is(err, cimeter.ErrInvalid):
			s.refused.Add(1)
			results = append(results, wire.Result{Key: batch[i].Record.Key, Status: wire.Refused, Reason: err.Error()})
		case err != nil:
			return nil, err
		default:
			results = append(results, one...)
		}
	}
	return results, nil
}

// put is one commit.
func (s *Server) put(ctx context.Context, batch []store.Put) ([]wire.Result, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	s.fault(StepCommit)
	// A commit that has begun is not broken off by the server's end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTime)
	defer cancel()
	began := s.o.Now()
	answered := s.store.ask(time.Now())
	result, err := s.o.Store.Put(ctx, batch)
	answered()
	s.commitSeconds.Add(s.o.Now().Sub(began).Seconds())
	s.state(err)
	if err != nil {
		if errors.Is(err, cimeter.ErrInvalid) {
			return nil, err
		}
		s.storeFailures.Add(1)
		s.log.Error("records cannot be stored", "records", len(batch), "err", err)
		return nil, fmt.Errorf("store records: %v: %w", err, cimeter.ErrUnavailable)
	}
	s.fault(StepAnswer)
	s.commits.Add(1)
	s.stored.Add(float64(result.Stored))
	s.committed.Add(int64(result.Stored))
	if _, known := s.storeBuilds.Get(); known {
		s.storeBuilds.Add(float64(result.Stored - result.Parts))
	}
	s.duplicates.Add(float64(result.Duplicates))
	s.expired.Add(float64(result.Expired))
	results := make([]wire.Result, len(batch))
	for i, p := range batch {
		results[i] = wire.Result{Key: p.Record.Key, Status: wire.Duplicate}
		if result.Fresh[i] {
			results[i].Status = wire.Stored
			s.count(p.Record, result.IsPart(i))
		}
	}
	return results, nil
}

// commitTime bounds one commit: longer than any disk that still works takes.
const commitTime = 20 * time.Second
