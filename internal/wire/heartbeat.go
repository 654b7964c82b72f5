package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/cimeter/cimeter"
)

// Bounds of a heartbeat.
const (
	MaxHeartbeatBytes = 2 << 20 // MaxRunning builds with long names
	MaxRunning        = 2000    // builds that one agent tells of: four times what it meters at once
)

// Heartbeat is what an agent says of itself every few seconds.
type Heartbeat struct {
	Agent           string    `json:"agent"`   // tells one agent from all others, the same after a restart
	Machine         string    `json:"machine"` // where it meters
	Version         string    `json:"version,omitempty"`
	IntervalSeconds float64   `json:"interval_seconds"` // to the next heartbeat
	Spool           *Spool    `json:"spool,omitempty"`
	Host            *Host     `json:"host,omitempty"`   // agents before 0.2 tell none
	Scrape          *Scrape   `json:"scrape,omitempty"` // agents before 0.2 tell none
	Running         []Running `json:"running"`
	Pulling         []Pulling `json:"pulling,omitempty"`
}

// Pulling is one job that waits for an image, as its runner says.
type Pulling struct {
	Key   string    `json:"key"`
	Since time.Time `json:"since"` // when it was first seen to
}

// Spool is what an agent has not been able to send yet.
type Spool struct {
	Records int    `json:"records"`
	Bytes   int64  `json:"bytes"`
	Dropped uint64 `json:"dropped"` // since the agent started: over the bound, or damaged
	Refused uint64 `json:"refused"` // set aside since the agent started
}

// Running is one build that runs.
type Running struct {
	Key         string               `json:"key"`
	CI          string               `json:"ci,omitempty"`
	Server      string               `json:"server,omitempty"`
	Project     string               `json:"project,omitempty"`
	Number      string               `json:"number,omitempty"`
	Name        string               `json:"name,omitempty"`
	Attempt     int                  `json:"attempt,omitempty"`
	Pipeline    string               `json:"pipeline,omitempty"`
	Runner      cimeter.Runner       `json:"runner,omitzero"`
	URL         string               `json:"url,omitempty"`
	Stage       string               `json:"stage,omitempty"` // that runs now
	StartedAt   time.Time            `json:"started_at"`
	PulledAt    time.Time            `json:"image_pulled_at,omitzero"` // as a record has it
	CPUSeconds  cimeter.Opt[float64] `json:"cpu_seconds,omitzero"`     // so far
	MemoryBytes cimeter.Opt[uint64]  `json:"memory_bytes,omitzero"`    // now

	IOBytes      *cimeter.ReadWrite[uint64]       `json:"io_bytes,omitempty"`      // so far
	NetworkBytes *cimeter.ReceiveTransmit[uint64] `json:"network_bytes,omitempty"` // so far
	Limits       *cimeter.Limits                  `json:"limits,omitempty"`
}

// DecodeHeartbeat reads a heartbeat of that Content-Encoding. Errors are those
// of [DecodeBatch].
func DecodeHeartbeat(body io.Reader, encoding string) (Heartbeat, error) {
	in := &counted{r: body, bound: MaxHeartbeatBytes}
	unpacked, done, err := unpack(in, encoding)
	if err != nil {
		return Heartbeat{}, batchError(in, err)
	}
	defer done()
	b, err := io.ReadAll(io.LimitReader(&bounded{r: unpacked, in: in}, MaxHeartbeatBytes+1))
	if err != nil {
		return Heartbeat{}, batchError(in, err)
	}
	if len(b) > MaxHeartbeatBytes {
		return Heartbeat{}, fmt.Errorf("heartbeat: want at most %d bytes: %w", MaxHeartbeatBytes, ErrTooLarge)
	}
	nul, err := scan(b)
	if err != nil {
		return Heartbeat{}, fmt.Errorf("heartbeat: %w", err)
	}
	if nul {
		b = withoutNUL(b)
	}
	var h Heartbeat
	if err := json.Unmarshal(b, &h); err != nil {
		return Heartbeat{}, fmt.Errorf("heartbeat: %.200s: %w", err.Error(), cimeter.ErrInvalid)
	}
	if h.Agent == "" || len(h.Agent) > 128 || h.Machine == "" || len(h.Machine) > maxNameBytes || len(h.Version) > maxNameBytes {
		return Heartbeat{}, fmt.Errorf("heartbeat: want an agent of at most 128 bytes, a machine and a version of at most %d: %w", maxNameBytes, cimeter.ErrInvalid)
	}
	if !(h.IntervalSeconds >= 1 && h.IntervalSeconds <= 3600) {
		return Heartbeat{}, fmt.Errorf("heartbeat: interval_seconds %g: want 1 to 3600: %w", h.IntervalSeconds, cimeter.ErrInvalid)
	}
	if len(h.Running) > MaxRunning {
		return Heartbeat{}, fmt.Errorf("heartbeat: %d running builds: want at most %d: %w", len(h.Running), MaxRunning, ErrTooLarge)
	}
	if len(h.Pulling) > MaxRunning {
		return Heartbeat{}, fmt.Errorf("heartbeat: %d jobs wait for an image: want at most %d: %w", len(h.Pulling), MaxRunning, ErrTooLarge)
	}
	for i, p := range h.Pulling {
		if !validKey(p.Key) || p.Since.IsZero() {
			return Heartbeat{}, fmt.Errorf("heartbeat: pulling[%d]: want a build key and a time: %w", i, cimeter.ErrInvalid)
		}
	}
	if err := h.Host.check(); err != nil {
		return Heartbeat{}, fmt.Errorf("heartbeat: %w", err)
	}
	if err := h.Scrape.check(); err != nil {
		return Heartbeat{}, fmt.Errorf("heartbeat: %w", err)
	}
	for i, r := range h.Running {
		if !validKey(r.Key) || len(r.Project)+len(r.Name)+len(r.Number)+len(r.Stage)+len(r.CI)+len(r.Server)+len(r.Pipeline) > 7*maxNameBytes || len(r.URL) > maxURLBytes ||
			len(r.Runner.ID)+len(r.Runner.ShortToken)+len(r.Runner.Name) > 3*maxNameBytes || r.Limits != nil && len(r.Limits.MemorySetBy) > maxURLBytes {
			return Heartbeat{}, fmt.Errorf("heartbeat: running[%d]: want a build key and names of at most %d bytes: %w", i, maxNameBytes, cimeter.ErrInvalid)
		}
	}
	return h, nil
}
