package cri

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cimeter/cimeter"
)

// life is how long a stream of the tests lives.
const life = 10 * time.Second

// fake is a runtime that lists the pods that it has and streams what the test sends.
type fake struct {
	name string
	mu   sync.Mutex
	pods []string
	open []*call // streams that were ever opened
}

// call is a stream as the runtime sees it.
type call struct {
	timeout string // as the caller has told it
	ctx     context.Context
	send    chan []byte
}

func bytesField(n protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
}

func numberField(n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), v)
}

// podMessage is a PodSandbox, and as far as it is read a PodSandboxStatus.
func podMessage(id string) []byte {
	return slices.Concat(bytesField(1, []byte(id)), bytesField(2, slices.Concat(bytesField(1, []byte("n")), bytesField(2, []byte("u")))), numberField(4, 1))
}

// started is the event that a sandbox was started.
func started(id string) []byte {
	return slices.Concat(bytesField(1, []byte(id)), numberField(2, 1), numberField(3, 7), bytesField(4, podMessage(id)))
}

// removed is the event that it was removed.
func removed(id string) []byte {
	return slices.Concat(bytesField(1, []byte(id)), numberField(2, 3), numberField(3, 8))
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/grpc")
	write := func(b []byte) {
		_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)) // the caller may be gone
		w.(http.Flusher).Flush()
	}
	f.mu.Lock()
	switch r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:] {
	case "Version":
		write(slices.Concat(bytesField(2, []byte(f.name)), bytesField(3, []byte("1"))))
	case "ListContainers":
		write(nil)
	case "ListPodSandbox":
		var all []byte
		for _, id := range f.pods {
			all = append(all, bytesField(1, podMessage(id))...)
		}
		write(all)
	case "GetContainerEvents":
		c := &call{timeout: r.Header.Get("Grpc-Timeout"), ctx: r.Context(), send: make(chan []byte)}
		f.open = append(f.open, c)
		f.mu.Unlock()
		for {
			select {
			case b := <-c.send:
				write(b)
			case <-c.ctx.Done():
				return
			}
		}
	}
	f.mu.Unlock()
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
}

func (f *fake) add(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods = append(f.pods, id)
}

// streams are those that were opened, and how many of them there still are.
func (f *fake) streams() (all []*call, live int) {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.open {
		if c.ctx.Err() == nil {
			live++
		}
	}
	return slices.Clone(f.open), live
}

// pipes is a listener whose connections are pipes.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "p", Net: "unix"} }

// follow has body run beside a Follow of a runtime of that name, by a clock of its
// own. told returns what has been told since it was last asked.
func follow(t *testing.T, name string, o Options, body func(t *testing.T, f *fake, c *Client, told func() []string)) {
	synctest.Test(t, func(t *testing.T) {
		f, l := &fake{name: name}, pipes{make(chan net.Conn), make(chan struct{})}
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		server := &http.Server{Handler: f, Protocols: protocols}
		go func() { _ = server.Serve(l) }() // ends with the test
		o.Socket, o.Every = "unix:///p", life
		c, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		c.http.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			l.accepted <- theirs
			return ours, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var events []string
		ended := make(chan error, 1)
		go func() {
			ended <- c.Follow(ctx, time.Time{}, func() {}, func(e cimeter.ContainerEvent) {
				mu.Lock()
				defer mu.Unlock()
				if e.Kind == cimeter.ContainerStarted {
					events = append(events, e.Container.ID)
				}
			})
		}()
		body(t, f, c, func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			now := events
			events = nil
			return now
		})
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow: %v, want that it was ended", err)
		}
		if _, live := f.streams(); live != 0 {
			t.Errorf("%d streams when it had ended", live)
		}
		c.Close()
		server.Close()
	})
}

func wantTold(t *testing.T, when string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: told of %q, want %q", when, got, want)
	}
}

// TestFollow_renews holds that each stream has a deadline that the runtime knows, that
// the next one is there before it, and that what both tell is told once.
func TestFollow_renews(t *testing.T) {
	follow(t, "containerd", Options{}, func(t *testing.T, f *fake, _ *Client, told func() []string) {
		for i := range 5 {
			all, live := f.streams()
			if len(all) != i+1 {
				t.Fatalf("%d streams were opened, want %d", len(all), i+1)
			}
			if want := min(i+1, 2); live != want {
				t.Errorf("%d streams live when number %d was opened, want %d", live, i+1, want)
			}
			if all[i].timeout != "10000m" {
				t.Errorf("the runtime was told a deadline of %q, want 10000m", all[i].timeout)
			}
			id := "p" + string(rune('0'+i))
			for _, c := range all {
				if c.ctx.Err() == nil {
					c.send <- started(id)
					c.send <- removed(id)
				}
			}
			wantTold(t, "on each stream", told(), id)
			time.Sleep(life * 4 / 5)
		}
	})
}

// TestFollow_idle holds that no stream is opened for nothing: a runtime keeps those
// that have ended until it has something to tell.
func TestFollow_idle(t *testing.T) {
	follow(t, "containerd", Options{}, func(t *testing.T, f *fake, c *Client, told func() []string) {
		time.Sleep(100 * life)
		if all, live := f.streams(); len(all) != 1 || live != 0 {
			t.Errorf("%d streams were opened while nothing happened, %d live: want one, which has ended", len(all), live)
		}
		c.Noticed("a container of another engine", true)
		time.Sleep(life)
		if all, _ := f.streams(); len(all) != 1 {
			t.Errorf("%d streams were opened for what is not the runtime's, want none", len(all)-1)
		}
		f.add("p1")
		c.Noticed("p1", true)
		wantTold(t, "noticed", told(), "p1")
		all, live := f.streams()
		if len(all) != 2 || live != 1 {
			t.Fatalf("%d streams, %d live, when something had happened: want a second", len(all), live)
		}
		all[1].send <- started("p2")
		wantTold(t, "on the second stream", told(), "p2")
		f.add("p2")
		time.Sleep(10 * life)
		if all, live := f.streams(); len(all) != 3 || live != 0 {
			t.Errorf("%d streams, %d live: want a third, which told nothing", len(all), live)
		}
		f.add("p3")
		time.Sleep(life)
		wantTold(t, "by the list", told(), "p3")
	})
}

// TestFollow_unbounded holds that CRI-O's stream has no deadline, and that there is
// none where none is wanted.
func TestFollow_unbounded(t *testing.T) {
	follow(t, "cri-o", Options{}, func(t *testing.T, f *fake, _ *Client, _ func() []string) {
		time.Sleep(100 * life)
		if all, live := f.streams(); len(all) != 1 || live != 1 || all[0].timeout != "" {
			t.Errorf("%d streams, %d live: want one without a deadline", len(all), live)
		}
	})
	follow(t, "containerd", Options{NoEvents: true}, func(t *testing.T, f *fake, c *Client, told func() []string) {
		f.add("p1")
		c.Noticed("p1", true)
		wantTold(t, "noticed", told(), "p1")
		time.Sleep(100 * life)
		if all, _ := f.streams(); len(all) != 0 {
			t.Errorf("%d streams were opened where they are off", len(all))
		}
	})
}
