package httpapi

import (
	"container/list"
	"context"
	"net"
	"sync"
)

// connections bounds how many connections a server holds. A listener that
// merely stops accepting at the bound lets 512 silent clients keep everyone
// else waiting; here a new connection takes the place of the one that has been
// without a request in a handler for longest. Only when all are in handlers is
// the new one refused.
type connections struct {
	max  int
	over func() // told of each that is closed or refused to stay within max

	mu     sync.Mutex
	all    int
	silent *list.List // of *conn, in no handler, longest first
}

type conn struct {
	net.Conn
	owner *connections

	// Guarded by owner.mu.
	handlers int           // requests of it in handlers (HTTP/2 has several)
	place    *list.Element // in owner.silent; nil while handlers > 0 or closed
	closed   bool
}

type connKey struct{}

func newConnections(limit int, over func()) *connections {
	return &connections{max: limit, over: over, silent: list.New()}
}

// listen wraps l so that its connections are counted.
func (c *connections) listen(l net.Listener) net.Listener { return &countedListener{l, c} }

type countedListener struct {
	net.Listener
	conns *connections
}

// Accept returns the next connection that fits in.
func (l *countedListener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c, ok := l.conns.admit(nc); ok {
			return c, nil
		}
		l.conns.over()
		nc.Close()
	}
}

func (c *connections) admit(nc net.Conn) (*conn, bool) {
	c.mu.Lock()
	var victim *conn
	if c.all >= c.max {
		oldest := c.silent.Front()
		if oldest == nil {
			c.mu.Unlock()
			return nil, false
		}
		victim = oldest.Value.(*conn)
		c.forget(victim)
	}
	added := &conn{Conn: nc, owner: c}
	added.place = c.silent.PushBack(added)
	c.all++
	c.mu.Unlock()
	if victim != nil {
		c.over()
		victim.Conn.Close()
	}
	return added, true
}

// forget takes a connection out of the count. c.mu is held.
func (c *connections) forget(x *conn) {
	if x.closed {
		return
	}
	x.closed = true
	c.all--
	if x.place != nil {
		c.silent.Remove(x.place)
		x.place = nil
	}
}

// Close closes the connection and makes room for another.
func (x *conn) Close() error {
	x.owner.mu.Lock()
	x.owner.forget(x)
	x.owner.mu.Unlock()
	return x.Conn.Close()
}

// context is http.Server.ConnContext: it lets a handler find its connection.
func (c *connections) context(ctx context.Context, nc net.Conn) context.Context {
	if wrapped, ok := nc.(interface{ NetConn() net.Conn }); ok { // tls.Conn
		nc = wrapped.NetConn()
	}
	if x, ok := nc.(*conn); ok {
		return context.WithValue(ctx, connKey{}, x)
	}
	return ctx
}

// inHandler marks the connection of a request as busy until done is called.
func inHandler(ctx context.Context) (done func()) {
	x, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return func() {}
	}
	x.owner.busy(x, 1)
	return func() { x.owner.busy(x, -1) }
}

func (c *connections) busy(x *conn, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x.handlers += by
	switch {
	case x.closed:
	case x.handlers > 0 && x.place != nil:
		c.silent.Remove(x.place)
		x.place = nil
	case x.handlers == 0 && x.place == nil:
		x.place = c.silent.PushBack(x)
	}
}
