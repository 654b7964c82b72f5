package server

import (
	"context"
	"time"
)

// warmEvery is how often sums are brought up to date: what comes late changes
// those of a day or a week.
const warmEvery = time.Minute

// warm has the store add up what pages ask for: at the start, when that takes
// seconds over a million builds, and whenever builds came.
func (s *Server) warm(ctx context.Context, w Warmer) {
	for known := int64(-1); ; {
		if stored := s.committed.Load(); stored != known {
			// A store that does not answer says so to those who ask.
			if err := w.Warm(ctx, s.o.Now()); err == nil {
				known = stored
			}
		}
		if !pause(ctx, nil, warmEvery) {
			return
		}
	}
}
