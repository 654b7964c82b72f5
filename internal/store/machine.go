package store

import (
	"context"
	"fmt"
	"time"

	"github.com/cimeter/cimeter"
)

// MaxMachinePoints is how many points one write takes.
const MaxMachinePoints = 5000

// MachinePoint is what a machine did, as its agent told: means over a time that ends at
// At. NaN is not known.
type MachinePoint struct {
	Machine                string
	At                     time.Time
	Builds, Other, Cimeter float32 // cores
	Coverage               float32 // 0 to 1, as the last heartbeat in that time told it
	Memory                 float32 // bytes in use
	IO, Network            float32 // bytes a second, both ways
	Pressure               float32 // 0 to 1: the largest share of time in which some task waited
}

// CheckMachinePoints refuses what no store takes. The error wraps [cimeter.ErrInvalid].
func CheckMachinePoints(points []MachinePoint) error {
	if len(points) > MaxMachinePoints {
		return fmt.Errorf("%d points of machines: want at most %d: %w", len(points), MaxMachinePoints, cimeter.ErrInvalid)
	}
	for _, p := range points {
		if !ValidKey(p.Machine) || p.At.IsZero() {
			return fmt.Errorf("point of machine %.200q: want a name and a time: %w", p.Machine, cimeter.ErrInvalid)
		}
	}
	return nil
}

// MachinePoints returns what a machine did since a time, the oldest first.
func (r Reader) MachinePoints(ctx context.Context, machine string, since time.Time) (points []MachinePoint, err error) {
	if !ValidKey(machine) {
		return nil, nil
	}
	s := statement{dialect: r.q.Dialect()}
	s.add("SELECT at, builds, other, cimeter, coverage, memory, io, network, pressure FROM machine_points WHERE machine = ? AND at > ? ORDER BY at", machine, since.Unix())
	err = s.run(ctx, r.q, func(scan func(dest ...any) error) error {
		var at int64
		var builds, other, cimeter, coverage, memory, io, network, pressure *float64
		if err := scan(&at, &builds, &other, &cimeter, &coverage, &memory, &io, &network, &pressure); err != nil {
			return err
		}
		points = append(points, MachinePoint{Machine: machine, At: time.Unix(at, 0).UTC(), Builds: orNaN(builds), Other: orNaN(other), Cimeter: orNaN(cimeter), Coverage: orNaN(coverage),
			Memory: orNaN(memory), IO: orNaN(io), Network: orNaN(network), Pressure: orNaN(pressure)})
		return nil
	})
	return points, wrap("what a machine did", err)
}
