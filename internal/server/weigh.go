package server

import (
	"context"
	"time"
)

// weighEvery is how often the store is asked for its size.
const weighEvery = 30 * time.Second

// weigh shows what the store holds and what this process uses. A figure that
// cannot be had is absent.
func (s *Server) weigh(ctx context.Context) {
	for {
		asking, cancel := context.WithTimeout(ctx, weighEvery)
		if st, err := s.o.Store.Stats(asking); err == nil {
			s.storeBytes.Set(float64(st.Bytes))
			s.storeBuilds.Set(float64(st.Builds))
		} else {
			s.storeBytes.Clear()
			s.storeBuilds.Clear()
		}
		cancel()
		if s.o.Usage != nil {
			if cpu, resident, err := s.o.Usage(); err == nil {
				s.cpu.Set(cpu.Seconds())
				s.memory.Set(float64(resident))
			}
		}
		if !pause(ctx, nil, weighEvery) {
			return
		}
	}
}
