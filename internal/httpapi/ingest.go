package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/wire"
)

// ErrBusy says that there is more to do than there is room for. The client is
// asked to come back after a while, chosen at random so that many spread.
var ErrBusy = errors.New("busy")

const (
	busySeconds = 10 // the longest that a busy server asks to be left alone
	maxBodies   = 16 // batches that are unpacked at once: 8 MiB each and what becomes of it
	maxBeats    = 64 // heartbeats that are read at once: at most 1 MiB each

	beatPatience = 2 * time.Second // less than an agent waits for the answer
)

// Ingest takes what agents send. Its methods are called by many goroutines.
type Ingest interface {
	// Put stores records and returns of each what became of it. When it returns
	// no error, all that are not refused are durable. The error wraps ErrBusy, or
	// cimeter.ErrUnavailable when the store takes nothing now.
	Put(ctx context.Context, agent string, records []*cimeter.Record) ([]wire.Result, error)
	// Refused counts lines that are no records.
	Refused(n int)
	// Heartbeat takes what an agent says of itself.
	Heartbeat(h wire.Heartbeat)
}

func (a *API) ingestRoutes() []route {
	if a.o.Ingest == nil {
		return nil
	}
	// Each has room of its own: batches that wait for the disk keep no heartbeat
	// out, nor the heartbeats of a large fleet a batch.
	return []route{
		{path: wire.RecordsPath, handle: atMost(maxBodies, 0, a.putRecords), post: true, role: Push},
		{path: wire.HeartbeatPath, handle: atMost(maxBeats, beatPatience, a.heartbeat), post: true, role: Push},
	}
}

// atMost bounds how many requests are handled at once. One too many waits that
// long, and is then asked to come again.
func atMost(n int, patience time.Duration, handle func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	slots := make(chan struct{}, n)
	return func(w http.ResponseWriter, r *http.Request) error {
		select {
		case slots <- struct{}{}:
		default:
			late := time.NewTimer(patience)
			defer late.Stop()
			select {
			case slots <- struct{}{}:
			case <-r.Context().Done():
				return r.Context().Err()
			case <-late.C:
				return ErrBusy
			}
		}
		defer func() { <-slots }()
		return handle(w, r)
	}
}

// putRecords is POST /api/v1/records: see package wire. The answer comes when
// every record that is not refused is durable.
func (a *API) putRecords(w http.ResponseWriter, r *http.Request) error {
	if err := wire.CheckContentType(r.Header.Get("Content-Type")); err != nil {
		return &problem{Status: http.StatusUnsupportedMediaType, Detail: err.Error()}
	}
	items, err := wire.DecodeBatch(http.MaxBytesReader(w, r.Body, wire.MaxBodyBytes), r.Header.Get("Content-Encoding"))
	if err != nil {
		return bodyError(err)
	}
	answer := wire.Answer{Results: make([]wire.Result, 0, len(items))}
	records := make([]*cimeter.Record, 0, len(items))
	for _, it := range items {
		if it.Err == nil {
			records = append(records, it.Record)
		}
	}
	a.o.Ingest.Refused(len(items) - len(records))
	var stored []wire.Result
	if len(records) > 0 {
		if stored, err = a.o.Ingest.Put(r.Context(), r.Header.Get(wire.AgentHeader), records); err != nil {
			return err
		}
	}
	for _, it := range items {
		if it.Err != nil {
			answer.Results = append(answer.Results, wire.Result{Key: it.Key, Status: wire.Refused, Reason: it.Err.Error()})
			continue
		}
		answer.Results = append(answer.Results, stored[0])
		stored = stored[1:]
	}
	return writeJSON(w, "application/json", http.StatusOK, answer)
}

// heartbeat is POST /api/v1/heartbeat.
func (a *API) heartbeat(w http.ResponseWriter, r *http.Request) error {
	h, err := wire.DecodeHeartbeat(http.MaxBytesReader(w, r.Body, wire.MaxHeartbeatBytes), r.Header.Get("Content-Encoding"))
	if err != nil {
		return bodyError(err)
	}
	h.Scrape = h.Scrape.From(remoteHost(r))
	a.o.Ingest.Heartbeat(h)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// bodyError gives an error of reading a body its status. A client that breaks
// off is no error of ours.
func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge), errors.Is(err, wire.ErrTooLarge):
		return &problem{Status: http.StatusRequestEntityTooLarge, Detail: err.Error()}
	case errors.Is(err, cimeter.ErrUnsupported):
		return &problem{Status: http.StatusUnsupportedMediaType, Detail: err.Error()}
	case errors.Is(err, cimeter.ErrInvalid):
		return err
	}
	return &problem{Status: http.StatusRequestTimeout, Detail: "body was cut off: want all of it within 30 s"}
}

// Route is one route as a test that walks them all needs it.
type Route struct {
	Path string // with a last slash: everything below it
	Post bool   // answers POST; else GET and HEAD
	Role Role   // that may use it

	Parameters []string // of the query
}

// Table lists the routes with who may use them.
func (a *API) Table() []Route {
	table := make([]Route, 0, len(a.routes))
	for _, rt := range a.routes {
		table = append(table, Route{rt.path, rt.post, rt.role, rt.parameters})
	}
	return slices.Clip(table)
}
