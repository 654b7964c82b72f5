package postgres_test

import (
	"sync"
	"testing"

	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/storetest"
)

// Connections that died with a database are not used once it is back: the first
// questions and batches afterwards find no error (F39).
func TestStore_databaseIsBack(t *testing.T) {
	p, err := storetest.StartPostgres()
	storetest.NeedPostgres(t, err)
	defer p.Stop()
	s := openURL(t, p.Database(t))
	for round := range 3 {
		for _, when := range []string{"before", "after"} {
			var all sync.WaitGroup
			for i := range 8 { // as many as there are connections
				all.Go(func() {
					if _, err := s.List(t.Context(), store.Query{}); err != nil {
						t.Errorf("List %s the crash: %v", when, err)
					}
					if _, err := s.Put(t.Context(), batch(100*(8*round+i))); err != nil {
						t.Errorf("Put %s the crash: %v", when, err)
					}
				})
			}
			all.Wait()
			if when == "before" {
				p.Kill()
				if err := p.Start(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
