package server_test

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/push"
)

// cutter stands between client and server and ends every connection after a
// random number of bytes in either direction, by a reset, by an end, or by
// silence.
type cutter struct {
	l    net.Listener
	to   string
	wg   sync.WaitGroup
	mu   sync.Mutex
	rand *rand.Rand
	cuts int
	off  bool // lets everything through
}

func newCutter(t *testing.T, to string, random *rand.Rand) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{l: l, to: to, rand: random}
	c.wg.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			c.wg.Go(func() { c.join(from.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() { l.Close(); c.wg.Wait() })
	return c
}

func (c *cutter) join(from *net.TCPConn) {
	defer from.Close()
	conn, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	to := conn.(*net.TCPConn)
	defer to.Close()
	c.mu.Lock()
	limits := [2]int64{1 + c.rand.Int64N(8000), 1 + c.rand.Int64N(12000)}
	how := c.rand.IntN(3)
	if c.off {
		limits = [2]int64{1 << 40, 1 << 40}
	} else {
		c.cuts++
	}
	c.mu.Unlock()
	var once sync.Once
	end := func() {
		once.Do(func() {
			switch how {
			case 0: // reset both
				from.SetLinger(0)
				to.SetLinger(0)
			case 1: // silence: what is on its way is lost, nobody is told
				<-time.After(50 * time.Millisecond)
			}
			from.Close()
			to.Close()
		})
	}
	var both sync.WaitGroup
	both.Go(func() { io.CopyN(to, from, limits[0]); end() })
	both.Go(func() { io.CopyN(from, to, limits[1]); end() })
	both.Wait()
}

// Over connections that are cut at random places, each record is there once
// (F22).
func TestServer_brokenNetwork(t *testing.T) {
	random := seeded(t)
	p := startProcess(t, t.TempDir(), "")
	defer p.end(syscall.SIGTERM)
	c := newCutter(t, p.addr, rand.New(rand.NewPCG(random.Uint64(), 0)))
	way, err := push.NewSender(push.SenderOptions{URL: "http://" + c.l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer way.Close()
	l := &load{way: way, step: 1}
	taken := 0
	for range 300 {
		if len(l.left) < 50 {
			for range 1 + random.IntN(10) {
				l.left = append(l.left, l.next)
				l.next++
			}
		}
		if l.send(t) {
			taken++
		}
	}
	c.mu.Lock()
	c.off = true
	cuts := c.cuts
	c.mu.Unlock()
	if len(l.left) > 0 && !l.send(t) {
		t.Fatal("the last batch was not taken over a whole connection")
	}
	if cuts < 10 || taken == 0 || taken == 300 {
		t.Errorf("%d connections cut, %d of 300 tries taken: this test does not try what it should", cuts, taken)
	}
	exactlyOnce(t, stored(t, p.addr), l.next)
	t.Logf("%d connections cut, %d of 300 tries taken, %d records: lost 0, twice 0", cuts, taken, l.next)
}
