package server

import (
	"context"
	"time"
)

// weighEvery is how often the store is asked for its size.
const weighEvery = 30 * time.Second

// weighTries bounds how often the store is asked again because builds came
// meanwhile.
const weighTries = 3

// weigh shows what the store holds and what this process uses. A figure that
// cannot be had is absent.
func (s *Server) weigh(ctx context.Context) {
	for {
		s.weighStore(ctx)
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

// weighStore asks the store for its size. Between two weighings the commits of
// this server add to the number of builds; those of others are seen at the next.
func (s *Server) weighStore(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, weighEvery)
	defer cancel()
	for range weighTries {
		before := s.committed.Load()
		answered := s.store.ask(time.Now())
		st, err := s.o.Store.Stats(asking)
		answered()
		if err != nil {
			s.storeBytes.Clear()
			s.storeBuilds.Clear()
			return
		}
		s.storeBytes.Set(float64(st.Bytes))
		s.storeBuilds.Set(float64(st.Builds))
		s.unjoined.Set(float64(st.Unjoined))
		if s.committed.Load() == before {
			return
		}
		// Who knows whether a commit meanwhile is in the number.
	}
}
