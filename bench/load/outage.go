package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cimeter/cimeter/internal/push"
	"github.com/cimeter/cimeter/internal/spool"
	"github.com/cimeter/cimeter/internal/tally"
	"github.com/cimeter/cimeter/internal/wire"
)

// drainWithin is what an hour's records may take after the server's return.
const drainWithin = time.Minute

// outage is an agent's spool and pusher whose server is away until it comes
// back: a gate that nobody listens behind until then.
type outage struct {
	dir   string
	queue *spool.Spool
	way   *push.Sender
	gate  *gate
	keys  []string // in the order of receipt

	mu       sync.Mutex
	answered []string // in the order in which the server answered for them
	back     time.Time
	drained  time.Duration // 0: not yet
}

// newOutage puts n records into a spool, as ended at ten a minute.
func newOutage(p *process, n int) (*outage, error) {
	dir, err := os.MkdirTemp(p.dir, "spool-")
	if err != nil {
		return nil, err
	}
	o := &outage{dir: dir}
	if o.queue, err = spool.Open(spool.Options{Dir: dir}); err != nil {
		return nil, err
	}
	if o.gate, err = newGate(p.address); err != nil {
		o.close()
		return nil, err
	}
	if o.way, err = p.sender(o.gate.address, o.queue.ID()); err != nil {
		o.close()
		return nil, err
	}
	for i := range n {
		r := record(2_000_000+i, time.Now().Add(-time.Duration(n-i)*6*time.Second))
		line, err := json.Marshal(r)
		if err == nil {
			err = o.queue.Add(r.Key, line)
		}
		if err != nil {
			o.close()
			return nil, err
		}
		o.keys = append(o.keys, r.Key)
	}
	return o, nil
}

func (o *outage) close() {
	if o.gate != nil {
		o.gate.close()
	}
	o.queue.Close()
}

// Records implements push.Server and notes what is answered for, in order.
func (o *outage) Records(ctx context.Context, lines [][]byte) ([]wire.Result, error) {
	results, err := o.way.Records(ctx, lines)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range results {
		o.answered = append(o.answered, r.Key)
	}
	return results, err
}

// Heartbeat implements push.Server.
func (o *outage) Heartbeat(ctx context.Context, h wire.Heartbeat) error {
	return o.way.Heartbeat(ctx, h)
}

// Address implements push.Server.
func (o *outage) Address() string { return o.way.Address() }

func (o *outage) run(ctx context.Context) {
	push.New(push.Options{Server: o, Spool: o.queue, Tally: tally.New(tally.Options{}), Machine: "away"}, slog.New(slog.DiscardHandler)).Run(ctx)
	o.way.Close()
}

// comesBack lets the server be back after that long.
func (o *outage) comesBack(ctx context.Context, after time.Duration) {
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(after):
		}
		o.mu.Lock()
		o.back = time.Now()
		o.mu.Unlock()
		o.gate.open()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for o.queue.Stats().Records > 0 {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		o.mu.Lock()
		o.drained = time.Since(o.back)
		o.mu.Unlock()
	}()
}

// wait waits until everything is sent, for twice as long as it may take.
func (o *outage) wait(ctx context.Context) error {
	deadline := time.After(2 * drainWithin)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		o.mu.Lock()
		done := o.drained > 0
		o.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return nil // the report says so
		case <-tick.C:
		}
	}
}

func (o *outage) report(t *table, stored map[string]int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lost, twice := 0, 0
	for _, key := range o.keys {
		switch n := stored[key]; {
		case n == 0:
			lost++
		case n > 1:
			twice++
		}
	}
	took := o.drained
	if took == 0 {
		took = time.Since(o.back)
	}
	inOrder := 1.0
	if slices.Equal(o.answered, o.keys) {
		inOrder = 0
	}
	t.bound(fmt.Sprintf("%d records of an agent, after the return", len(o.keys)), drainWithin.Seconds(), took.Seconds(), " s", fmt.Sprintf("%d still wait", o.queue.Stats().Records))
	t.bound("of them lost", 0, float64(lost), "", "")
	t.bound("of them there twice", 0, float64(twice), "", "")
	t.bound("answered for in another order than received", 0, inOrder, "", "")
}

// gate is an address that ends every connection at once until it is opened;
// then it leads to the server.
type gate struct {
	address, to string
	l           net.Listener
	opened      atomic.Bool
}

func newGate(to string) (*gate, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &gate{address: l.Addr().String(), to: to, l: l}
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			if !g.opened.Load() {
				from.Close()
				continue
			}
			go join(from, g.to)
		}
	}()
	return g, nil
}

func (g *gate) open() { g.opened.Store(true) }

func (g *gate) close() { g.l.Close() }

func join(from net.Conn, address string) {
	defer from.Close()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	go func() { io.Copy(to, from); to.Close() }()
	io.Copy(from, to)
}
