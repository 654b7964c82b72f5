package web

import (
	"fmt"
	"net/http"
	"time"
)

const (
	// maxStreams bounds the live streams: each holds a connection and a timer.
	maxStreams = 200
	// defaultTick is how often a live page reads itself again.
	defaultTick = 2 * time.Second
)

// Close ends the live streams, so that a server can shut down. The pages still
// answer after it, but for new streams.
func (p *Pages) Close() { p.closing.Do(func() { close(p.closed) }) }

// stream is GET /live: server-sent events, one at each tick. The page then
// reads itself again; the stream carries no data of its own.
func (p *Pages) stream(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	select {
	case p.live <- struct{}{}:
		defer func() { <-p.live }()
	default:
		h.Set("Retry-After", "30")
		p.problem(w, r, http.StatusServiceUnavailable, fmt.Sprintf("%d pages are live already; reload to see the newest state", maxStreams))
		return nil
	}
	h.Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	// The stream outlives the server's write deadline; each event has its own.
	write := func(event string) bool {
		if err := control.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return false
		}
		if _, err := w.Write([]byte(event)); err != nil {
			return false
		}
		return control.Flush() == nil
	}
	if r.Method == http.MethodHead || !write("retry: 3000\n\n") {
		return nil // a client that went away is not an error of ours
	}
	tick := time.NewTicker(p.o.Tick)
	defer tick.Stop()
	for {
		select {
		case <-r.Context().Done():
			return nil
		case <-p.closed:
			return nil
		case <-tick.C:
			if !write("data: 1\n\n") {
				return nil
			}
		}
	}
}
