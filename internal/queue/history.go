package queue

import "time"

// The steps in which history is kept: minutes for a day, tens of minutes for longer.
const (
	FineStep   = time.Minute
	CoarseStep = 10 * time.Minute
	KeepFine   = 24 * time.Hour
	KeepCoarse = 7 * 24 * time.Hour
)

// KeptPoint is a point of a server's history as a store keeps it: means over a step
// that ends at it.
type KeptPoint struct {
	Server string // as the settings call it
	Step   time.Duration
	Point
}
