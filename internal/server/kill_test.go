package server_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/push"
	"github.com/cimeter/cimeter/internal/server"
	"github.com/cimeter/cimeter/internal/spool"
	"github.com/cimeter/cimeter/internal/tally"
	"github.com/cimeter/cimeter/internal/wire"
)

func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SERVER_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("SERVER_SEED=%s: want a number", s)
		}
	}
	t.Logf("SERVER_SEED=%d plays this again", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// rounds is how often a fault is repeated: SERVER_ROUNDS (200 is what a release
// is held to), or few where it is not set.
func rounds(t *testing.T, few int) int {
	t.Helper()
	s := os.Getenv("SERVER_ROUNDS")
	if s == "" {
		return few
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("SERVER_ROUNDS=%s: want a number of rounds", s)
	}
	return n
}

// sender is an agent's spool and the pusher that empties it.
type sender struct {
	to      *moving
	spool   *spool.Spool
	records push.Records
	stop    func()
}

// nowhere keeps no records.
type nowhere struct{ push.Records }

func (nowhere) Put(*cimeter.Record) error { return nil }

func newSender(t *testing.T, dir string) *sender {
	t.Helper()
	queue, err := spool.Open(spool.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	to := &moving{}
	way, err := push.NewSender(push.SenderOptions{URL: "http://server.example.com", Transport: to, Agent: queue.ID()})
	if err != nil {
		t.Fatal(err)
	}
	p := push.New(push.Options{Server: way, Spool: queue, Tally: tally.New(tally.Options{}), Machine: "ci-7"}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	s := &sender{to: to, spool: queue, records: p.Before(nowhere{}), stop: func() { cancel(); <-done; queue.Close() }}
	return s
}

// add puts a record into the spool.
func (s *sender) add(t *testing.T, n int) {
	t.Helper()
	if err := s.records.Put(record(n)); err != nil {
		t.Fatal(err)
	}
}

// drained waits until the spool is empty.
func (s *sender) drained(t *testing.T) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for s.spool.Stats().Records > 0 {
		select {
		case <-deadline:
			t.Fatalf("%+v still wait after two minutes", s.spool.Stats())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// exactlyOnce holds what a server has against the numbers that ended.
func exactlyOnce(t *testing.T, rows map[string]int, ended int) {
	t.Helper()
	lost, duplicates := 0, 0
	for n := range ended {
		switch rows[key(n)] {
		case 0:
			lost++
		case 1:
		default:
			duplicates++
		}
	}
	if lost > 0 || duplicates > 0 || len(rows) != ended {
		t.Errorf("of %d builds %d are lost, %d there twice; %d rows", ended, lost, duplicates, len(rows))
	}
}

// load is a client that sends batches as fast as they are taken, and sends what
// was not answered for again.
type load struct {
	way  *push.Sender
	next int // the number that it sends next; it counts in steps, so that several do not meet
	step int
	left []int // sent and not answered for
	done []int // answered for
}

// run sends until the server is gone.
func (l *load) run(t *testing.T, random *rand.Rand) {
	for {
		for range min(1+random.IntN(20), 200-len(l.left)) {
			l.left = append(l.left, l.next)
			l.next += l.step
		}
		if !l.send(t) {
			return
		}
	}
}

func (l *load) send(t *testing.T) bool {
	var lines [][]byte
	for _, n := range l.left {
		b, err := json.Marshal(record(n))
		if err != nil {
			t.Error(err)
			return false
		}
		lines = append(lines, b)
	}
	results, err := l.way.Records(t.Context(), lines)
	if err != nil {
		return false
	}
	for i, r := range results {
		if r.Status == wire.Refused || r.Key != key(l.left[i]) {
			t.Errorf("record %d: %+v", l.left[i], r)
		}
	}
	l.done, l.left = append(l.done, l.left...), nil
	return true
}

// newLoads makes clients that send to a server that moves.
func newLoads(t *testing.T, to *moving, n int) (loads []*load) {
	t.Helper()
	for i := range n {
		way, err := push.NewSender(push.SenderOptions{URL: "http://server.example.com", Transport: to})
		if err != nil {
			t.Fatal(err)
		}
		loads = append(loads, &load{way: way, next: i, step: n})
	}
	return loads
}

// sendUntil has the clients send while f does something to the server, and
// waits until each has failed once.
func sendUntil(t *testing.T, random *rand.Rand, loads []*load, f func()) {
	t.Helper()
	var all sync.WaitGroup
	for _, l := range loads {
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		all.Go(func() { l.run(t, own) })
	}
	f()
	all.Wait()
}

// answered holds what a server has against what was answered for, and returns
// how many that is.
func answered(t *testing.T, rows map[string]int, loads []*load) (n int) {
	t.Helper()
	for _, l := range loads {
		for _, n := range l.done {
			if rows[key(n)] != 1 {
				t.Errorf("record %d was answered for and is there %d times", n, rows[key(n)])
			}
		}
		n += len(l.done)
	}
	return n
}

// settle sends what was not answered for again and holds the account: ended =
// stored, lost 0, twice 0.
func settle(t *testing.T, addr string, loads []*load) {
	t.Helper()
	before, again := answered(t, stored(t, addr), loads), 0
	for _, l := range loads {
		again += len(l.left)
		if len(l.left) > 0 && !l.send(t) {
			t.Fatal("the last batch was not taken")
		}
	}
	rows := stored(t, addr)
	if ended := answered(t, rows, loads); len(rows) != ended {
		t.Errorf("%d rows: want %d", len(rows), ended)
	}
	t.Logf("%d records answered for, %d sent again at the end: lost 0, twice 0", before, again)
}

// Killed at random moments under load, the server loses nothing that it answered
// for, and has nothing twice (F3).
func TestServer_Kill(t *testing.T) {
	random := seeded(t)
	dir := t.TempDir()
	to := &moving{}
	loads := newLoads(t, to, 2)
	n := rounds(t, 20)
	for range n {
		p := startProcess(t, dir, "")
		to.set(p.addr)
		sendUntil(t, random, loads, func() {
			<-time.After(time.Duration(random.Int64N(int64(80 * time.Millisecond)))) // the random moment is the fault
			p.end(syscall.SIGKILL)
		})
	}
	p := startProcess(t, dir, "")
	defer p.end(syscall.SIGTERM)
	to.set(p.addr)
	settle(t, p.addr, loads)
	t.Logf("%d kills", n)
}

// Killed before the commit and between the commit and the answer (F4): what was
// committed is sent again and changes nothing.
func TestServer_KillAtStep(t *testing.T) {
	for _, step := range []string{server.StepCommit, server.StepAnswer} {
		t.Run(step, func(t *testing.T) {
			dir := t.TempDir()
			a := newSender(t, t.TempDir())
			for n := range 10 {
				a.add(t, n)
			}
			for range 3 {
				p := startProcess(t, dir, step)
				a.to.set(p.addr)
				p.cmd.Wait() // it kills itself
				a.to.set("")
			}
			if a.spool.Stats().Records != 10 {
				t.Errorf("%+v: want all to wait: nothing was answered", a.spool.Stats())
			}
			p := startProcess(t, dir, "")
			a.to.set(p.addr)
			want := 0
			if step == server.StepAnswer {
				want = 10
			}
			if rows := stored(t, p.addr); len(rows) < want {
				t.Errorf("%d rows: want those that were committed", len(rows))
			}
			a.drained(t)
			a.stop()
			exactlyOnce(t, stored(t, p.addr), 10)
			p.end(syscall.SIGTERM)
		})
	}
}
