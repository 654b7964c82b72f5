package server_test

import (
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/storetest"
)

// Two servers on one PostgreSQL, of which one is killed again and again, and
// now and then the database itself: a client that then turns to the other
// server loses nothing and has nothing twice (F39).
func TestServer_twoOnOneDatabase(t *testing.T) {
	random := seeded(t)
	p, err := storetest.StartPostgres()
	storetest.NeedPostgres(t, err)
	defer p.Stop()
	database := "SERVER_CHILD_DATABASE=" + p.Database(t)
	servers := []*process{startProcess(t, "none", "", database), startProcess(t, "none", "", database)}
	defer func() {
		for _, s := range servers {
			s.end(syscall.SIGKILL)
		}
	}()
	first, second := &moving{}, &moving{}
	first.set(servers[0].addr)
	second.set(servers[1].addr)
	a, b := newLoads(t, first, 2)[0], newLoads(t, second, 2)[1]
	loads := []*load{a, b}
	n := rounds(t, 20)
	crashes := 0
	for round := range n {
		victim := random.IntN(2)
		var all sync.WaitGroup
		for i, l := range loads {
			own := rand.New(rand.NewPCG(random.Uint64(), 0))
			if i == victim {
				all.Go(func() { l.run(t, own) })
				continue
			}
			all.Go(func() { // the other server takes all of it
				for range 10 {
					add(l, own)
					if !l.send(t) && round%5 != 4 {
						t.Error("a server does not take what it should while another is killed")
					}
				}
			})
		}
		<-time.After(time.Duration(random.Int64N(int64(80 * time.Millisecond)))) // the random moment is the fault
		servers[victim].end(syscall.SIGKILL)
		if round%5 == 4 {
			p.Kill()
		}
		all.Wait()
		if round%5 == 4 {
			crashes++
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
		}
		// What the killed server did not answer for goes to the other one.
		left := loads[victim]
		to := first
		if victim == 1 {
			to = second
		}
		to.set(servers[1-victim].addr)
		deadline := time.Now().Add(time.Minute)
		for len(left.left) > 0 && !left.send(t) {
			if time.Now().After(deadline) {
				t.Fatal("the other server takes nothing a minute after the database is back")
			}
			<-time.After(50 * time.Millisecond)
		}
		servers[victim] = startProcess(t, "none", "", database)
		to.set(servers[victim].addr)
	}
	settle(t, servers[0].addr, loads)
	t.Logf("%d kills of a server, %d of the database", n, crashes)
}
