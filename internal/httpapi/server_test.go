package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter/internal/httpapi"
)

// serve starts a server on loopback and returns its address.
func serve(t *testing.T, h http.Handler) (*httpapi.Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httpapi.NewServer(h, nil)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l, nil) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s, l.Addr().String()
}

func dial(t *testing.T, addr, send string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, send); err != nil {
		t.Fatal(err)
	}
	return c
}

const request = "GET /healthz HTTP/1.1\r\nHost: x\r\n"

// 2,000 clients that send half a header do not keep a scrape from its answer:
// over the bound each new connection takes the place of the one that was silent
// for longest (T18).
func TestServer_StalledClients(t *testing.T) {
	var closed atomic.Int64
	count := func() { closed.Add(1) }
	fleet, _ := newServer(t, 0, func(o *httpapi.Options) { o.Closed = count })
	for _, c := range []struct {
		name   string
		api    *httpapi.API
		closed int64
	}{{"agent", httpapi.New(httpapi.Options{Closed: count}), 2000 - 512}, {"server", fleet, 0}} {
		t.Run(c.name, func(t *testing.T) {
			closed.Store(0)
			_, addr := serve(t, c.api)
			for i := range 2000 {
				dial(t, addr, []string{"", "G", request, request + "X-Slow: "}[i%4])
			}
			resp, err := http.Get("http://" + addr + "/healthz")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "ok\n" {
				t.Errorf("got %q, %v", body, err)
			}
			if n := closed.Load(); n < c.closed || c.closed == 0 && n > 0 {
				t.Errorf("%d connections closed: want %d and those that came after", n, c.closed)
			}
		})
	}
}

// Over the bound the connection goes that was silent for longest, and no other.
func TestServer_longestSilent(t *testing.T) {
	_, addr := serve(t, httpapi.New(httpapi.Options{}))
	ask := func(c net.Conn) error {
		if _, err := io.WriteString(c, request+"\r\n"); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
		}
		return err
	}
	var all []net.Conn
	for range 512 {
		all = append(all, dial(t, addr, ""))
	}
	for _, i := range []int{511, 0} { // all before the first of them are there then
		if err := ask(all[i]); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	if err := ask(dial(t, addr, "")); err != nil {
		t.Fatalf("one too many: %v", err)
	}
	if err := ask(all[1]); err == nil {
		t.Error("the one that was silent for longest is still there")
	}
	for _, i := range []int{0, 2, 256, 511} {
		if err := ask(all[i]); err != nil {
			t.Errorf("connection %d of 512: %v", i, err)
		}
	}
}

// Each agent of a fleet keeps its connection: none is closed for another's sake.
func TestServer_fleetOfAgents(t *testing.T) {
	const agents = 1000
	var closed atomic.Int64
	api, _ := newServer(t, 0, func(o *httpapi.Options) { o.Closed = func() { closed.Add(1) } })
	_, addr := serve(t, api)
	var fleet []net.Conn
	for round := range 2 {
		for i := range agents {
			if round == 0 {
				fleet = append(fleet, dial(t, addr, ""))
			}
			io.WriteString(fleet[i], request+"\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(fleet[i]), nil)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("agent %d, round %d: %v, %v: want its connection kept", i, round, resp, err)
			}
			io.Copy(io.Discard, resp.Body)
		}
	}
	if n := closed.Load(); n > 0 {
		t.Errorf("%d connections closed: want none", n)
	}
}

// Requests in handlers are never cut off for newcomers: those are refused.
func TestServer_AllBusy(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{}, 600)
	_, addr := serve(t, httpapi.New(httpapi.Options{Metrics: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-release
		io.WriteString(w, "done")
	})}))
	var busy []net.Conn
	for range 512 {
		busy = append(busy, dial(t, addr, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
	}
	for range busy {
		<-entered
	}
	extra := dial(t, addr, "")
	if _, err := extra.Read(make([]byte, 1)); err == nil {
		t.Error("a connection over the bound was served")
	}
	close(release)
	for _, c := range busy {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(resp.Body); string(body) != "done" {
			t.Fatalf("got %q", body)
		}
		c.Close()
	}
	dialled := dial(t, addr, request+"Connection: close\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(dialled), nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("after all that: %v, %v", resp, err)
	}
}

func TestServer_LargeHeader(t *testing.T) {
	_, addr := serve(t, httpapi.New(httpapi.Options{}))
	c := dial(t, addr, request+"X-Large: "+strings.Repeat("x", 32<<10)+"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %d: want 431", resp.StatusCode)
	}
}

// pipeListener gives a server in-memory connections, so that its deadlines run
// on a bubble's clock.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }
func (l *pipeListener) Close() error {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	return nil
}

// signalConn tells when the server closes it.
type signalConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *signalConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// Each way to stall ends by a deadline.
func TestServer_Deadlines(t *testing.T) {
	for _, c := range []struct {
		name, send string
		dribble    bool // then a byte every second
		read       bool // the client reads the answer
		want       time.Duration
	}{
		{name: "nothing sent", want: 5 * time.Second},
		{name: "half a header", send: request, want: 5 * time.Second},
		{name: "a header that dribbles in", send: request + "X-Slow: ", dribble: true, want: 5 * time.Second},
		{name: "kept alive and idle", send: request + "\r\n", read: true, want: 60 * time.Second},
		{name: "an answer never read", send: "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", want: 30 * time.Second},
		{name: "a body that dribbles in", send: request + "Content-Length: 1000\r\n\r\n", dribble: true, read: true, want: 30 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
				s := httpapi.NewServer(httpapi.New(httpapi.Options{Metrics: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.WriteString(w, strings.Repeat("x", 1<<20))
				})}), nil)
				ctx, cancel := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() { served <- s.Serve(ctx, l, nil) }()
				client, end := net.Pipe()
				server := &signalConn{Conn: end, closed: make(chan struct{})}
				l.conns <- server
				began := time.Now()
				if _, err := io.WriteString(client, c.send); err != nil {
					t.Fatal(err)
				}
				if c.read {
					go io.Copy(io.Discard, client)
				}
				var dribbling sync.WaitGroup
				if c.dribble {
					dribbling.Go(func() {
						tick := time.NewTicker(time.Second)
						defer tick.Stop()
						for range tick.C {
							if _, err := client.Write([]byte("y")); err != nil {
								return
							}
						}
					})
				}
				<-server.closed
				if got := time.Since(began); got < c.want-time.Second || got > c.want+time.Second {
					t.Errorf("closed after %s: want %s", got, c.want)
				}
				client.Close()
				dribbling.Wait()
				cancel()
				if err := <-served; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestServer_Shutdown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	entered, release := make(chan struct{}), make(chan struct{})
	s := httpapi.NewServer(httpapi.New(httpapi.Options{Metrics: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		io.WriteString(w, "done")
	})}), nil)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l, nil) }()
	c := dial(t, l.Addr().String(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
	<-entered
	cancel()
	close(release)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); string(body) != "done" {
		t.Errorf("got %q: want the running request finished", body)
	}
	if err := <-served; err != nil {
		t.Errorf("got %v: want nil after the context", err)
	}
}

func TestServer_ServeFailure(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	err = httpapi.NewServer(http.NotFoundHandler(), nil).Serve(t.Context(), l, func(net.Listener, *http.Server) error { return boom })
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("got %v: want boom on %s", err, l.Addr())
	}
	if _, err := l.Accept(); err == nil {
		t.Error("the listener is still open")
	}
}
