package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cimeter/cimeter"
)

// Running is a build that runs now, as far as it is told. An agent tells the
// whole account so far, a server what the heartbeats of its agents do.
type Running struct {
	cimeter.Build
	Stage        string               // that runs now; "" when not known
	StartedAt    time.Time            //
	ReadAt       time.Time            // when the figures were read, by the clock of who was asked
	CPUSeconds   cimeter.Opt[float64] // so far
	MemoryBytes  cimeter.Opt[uint64]  // now from a server, the largest so far from an agent
	DiskBytes    cimeter.Opt[uint64]  // read and written so far
	NetworkBytes cimeter.Opt[uint64]  // received and sent so far
	Cores        cimeter.Opt[float64] // limit
	MemoryLimit  cimeter.Opt[uint64]  // bytes
	Away         bool                 // its machine missed three heartbeats: this is old
}

// Machines counts who tells of running builds: one for an agent.
type Machines struct{ All, Away int }

// running is a build in any of the two forms.
type running struct {
	cimeter.Build
	Stage       string                           `json:"stage"`
	StartedAt   time.Time                        `json:"started_at"`
	EndedAt     time.Time                        `json:"ended_at"` // of an account so far: when it was taken
	CPUSeconds  cimeter.Opt[float64]             `json:"cpu_seconds"`
	MemoryBytes cimeter.Opt[uint64]              `json:"memory_bytes"`
	IO          *cimeter.ReadWrite[uint64]       `json:"io_bytes"`
	Network     *cimeter.ReceiveTransmit[uint64] `json:"network_bytes"`
	Limits      *cimeter.Limits                  `json:"limits"`
	Usage       *cimeter.Usage                   `json:"usage"`
	Stages      []struct {
		Name      string
		EndedAt   time.Time `json:"ended_at"`
		Alongside bool
	} `json:"stages"`
}

// Running returns the builds that run: of the fleet where a server is asked, of
// its own machine where an agent is. Errors are those of [Client.Builds].
func (c *Client) Running(ctx context.Context) ([]Running, Machines, error) {
	var fleet struct {
		Agents []struct {
			Machine string    `json:"machine"`
			SeenAt  time.Time `json:"seen_at"`
			Away    bool      `json:"away"`
			Running []running `json:"running"`
		} `json:"agents"`
	}
	err := c.get(ctx, "/api/v1/agents", "", maxListBytes, &fleet)
	if errors.Is(err, cimeter.ErrNotFound) {
		return c.ownRunning(ctx)
	}
	if err != nil {
		return nil, Machines{}, fmt.Errorf("list running builds from %s: %w", c.shown, err)
	}
	var all []Running
	machines := Machines{All: len(fleet.Agents)}
	for _, a := range fleet.Agents {
		if a.Away {
			machines.Away++
		}
		for i := range a.Running {
			b := a.Running[i].whole(a.SeenAt)
			b.Machine, b.Away = a.Machine, a.Away
			all = append(all, b)
		}
	}
	return all, machines, nil
}

func (c *Client) ownRunning(ctx context.Context) ([]Running, Machines, error) {
	var own struct {
		Builds []running `json:"builds"`
	}
	if err := c.get(ctx, "/api/v1/running", "", maxListBytes, &own); err != nil {
		return nil, Machines{}, fmt.Errorf("list running builds from %s: %w", c.shown, err)
	}
	var all []Running
	for i := range own.Builds {
		all = append(all, own.Builds[i].whole(time.Time{}))
	}
	return all, Machines{All: 1}, nil
}

// whole brings both forms to one.
func (r *running) whole(seen time.Time) Running {
	b := Running{Build: r.Build, Stage: r.Stage, StartedAt: r.StartedAt, ReadAt: seen, CPUSeconds: r.CPUSeconds, MemoryBytes: r.MemoryBytes}
	disk, network := r.IO, r.Network
	if u := r.Usage; u != nil {
		b.CPUSeconds, disk, network = u.CPUSeconds.Total, u.IOBytes, u.NetworkBytes
		if m := u.MemoryBytes; m != nil {
			b.MemoryBytes = m.Peak
			if !m.Peak.Known {
				b.MemoryBytes = cimeter.Some(uint64(max(0, m.Max)))
			}
		}
	}
	if disk != nil {
		b.DiskBytes = cimeter.Some(disk.Read + disk.Write)
	}
	if network != nil {
		b.NetworkBytes = cimeter.Some(network.Receive + network.Transmit)
	}
	if r.Limits != nil {
		b.Cores, b.MemoryLimit = r.Limits.CPUCores, r.Limits.MemoryBytes
	}
	if !r.EndedAt.IsZero() {
		b.ReadAt = r.EndedAt
	}
	if b.Stage == "" { // the latest that the others wait for
		for _, s := range r.Stages {
			if !s.Alongside {
				b.Stage = s.Name
			}
		}
	}
	return b
}
