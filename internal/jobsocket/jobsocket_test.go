package jobsocket_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/jobsocket"
	"github.com/cimeter/cimeter/internal/tally"
)

// asksOn makes this test binary a process that asks on a connection which it
// did not make: its descriptor 3.
const asksOn = "CIMETER_TEST_ASKS_ON"

func TestMain(m *testing.M) {
	if os.Getenv(asksOn) != "" {
		askOn(os.NewFile(3, "connection"))
		return
	}
	os.Exit(m.Run())
}

// askOn asks as it should be, and prints what comes.
func askOn(f *os.File) {
	r := bufio.NewReader(f)
	line, err := r.ReadString('\n')
	if err != nil {
		panic(err)
	}
	fmt.Fprint(f, "summary "+strings.Fields(line)[2]+"\n")
	b, _ := io.ReadAll(r) // refused: the connection ends
	os.Stdout.Write(b)
}

// caller is what a test has the agent say of a process.
type caller struct {
	container string
	record    *cimeter.Record
	err       error
	ended     bool
	asked     *atomic.Int64
	open      *atomic.Int64
	enter     chan struct{} // not nil: told when it is asked
	leave     chan struct{} // not nil: it answers when this is closed
}

func (c *caller) Scope() string { return c.container }
func (c *caller) Same() bool    { return !c.ended }
func (c *caller) Close()        { c.open.Add(-1) }
func (c *caller) Account(ctx context.Context) (*cimeter.Record, string, error) {
	c.asked.Add(1)
	if c.enter != nil {
		c.enter <- struct{}{}
		select {
		case <-c.leave:
		case <-ctx.Done():
			return nil, "", cimeter.ErrUnavailable
		}
	}
	return c.record, "step_script", c.err
}

func record(key string) *cimeter.Record {
	return &cimeter.Record{Schema: 1, Build: cimeter.Build{Key: key, CI: "gitlab", Project: "group/app", Name: "build"}, Gaps: []cimeter.Gap{},
		Stages: []cimeter.Stage{{Name: "step_script", Usage: cimeter.Usage{WallSeconds: 11, CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(12.0)}}}}}
}

// socket serves until the test ends.
type socket struct {
	path  string
	tally *tally.Table
	asked atomic.Int64 // accounts
	open  atomic.Int64 // callers that are held
	stop  func() error
}

func serve(t *testing.T, hold func(s *socket, pid int) (*caller, error), history jobsocket.History) *socket {
	t.Helper()
	dir, err := os.MkdirTemp("", "job-") // t.TempDir may be too long for a unix address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &socket{path: filepath.Join(dir, "deep", "job.sock"), tally: tally.New(tally.Options{Budget: 1000})}
	l, err := jobsocket.Listen(s.path, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	server := jobsocket.New(jobsocket.Options{
		Hold: func(pid int) (jobsocket.Caller, error) {
			c, err := hold(s, pid)
			if err != nil {
				return nil, err
			}
			c.asked, c.open = &s.asked, &s.open
			s.open.Add(1)
			return c, nil
		},
		History: history, Pages: "https://cimeter.example.com/", Tally: s.tally,
	}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()
	s.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if n := s.open.Load(); n != 0 {
			t.Errorf("%d callers are held still", n)
		}
	})
	return s
}

func (s *socket) count(result string) float64 {
	v, _ := s.tally.Value(catalog.AgentJobQuestions, result).Get()
	return v
}

// me lets this process ask alone.
func me(s *socket, pid int) (*caller, error) {
	if pid != os.Getpid() {
		return nil, fmt.Errorf("process %d: %w", pid, cimeter.ErrNotFound)
	}
	return &caller{container: "c1", record: record("gitlab/x/a%20b/1")}, nil
}

func TestAsk(t *testing.T) {
	s := serve(t, me, func(_ context.Context, of *cimeter.Build, limit int) ([]*cimeter.Record, error) {
		if of.Project != "group/app" || limit != 20 {
			t.Errorf("history of %s, %d: want of group/app, 20", of.Project, limit)
		}
		old := record("old")
		old.Stages[0].Usage.WallSeconds = 10
		return []*cimeter.Record{old, old, old}, nil
	})
	a, err := jobsocket.Ask(t.Context(), s.path)
	if err != nil {
		t.Fatal(err)
	}
	if a.Record.Key != "gitlab/x/a%20b/1" || a.Stage != "step_script" || a.URL != "https://cimeter.example.com/builds/gitlab/x/a%20b/1" {
		t.Errorf("got %+v", a)
	}
	if got, want := a.Usual.Line(), "CPU 0 %, time +10 % against the median of 3 builds"; got != want {
		t.Errorf("usual: got %q, want %q", got, want)
	}
	if err := s.stop(); err != nil || s.count("answered") != 1 || s.asked.Load() != 1 {
		t.Errorf("%v; answered %v, asked %d: want 1", err, s.count("answered"), s.asked.Load())
	}
	if _, err := os.Lstat(s.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if _, err := jobsocket.Ask(t.Context(), s.path); !errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("nobody listens: got %v, want unavailable", err)
	}
}

func TestAsk_NotToBeTold(t *testing.T) {
	for name, c := range map[string]struct {
		hold   func(*socket, int) (*caller, error)
		want   error
		result string
	}{
		"in no container": {func(*socket, int) (*caller, error) { return nil, cimeter.ErrNotFound }, cimeter.ErrNotFound, "unknown"},
		"of no build":     {func(*socket, int) (*caller, error) { return &caller{err: cimeter.ErrNotFound}, nil }, cimeter.ErrNotFound, "unknown"},
		"busy":            {func(*socket, int) (*caller, error) { return &caller{err: cimeter.ErrUnavailable}, nil }, cimeter.ErrNotFound, "failed"},
		"it has ended":    {func(*socket, int) (*caller, error) { return &caller{record: record("k"), ended: true}, nil }, cimeter.ErrUnavailable, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.hold, nil)
			a, err := jobsocket.Ask(t.Context(), s.path)
			if a != nil || !errors.Is(err, c.want) {
				t.Errorf("got %+v, %v: want %v", a, err, c.want)
			}
			if err := s.stop(); err != nil || s.count(c.result) != 1 {
				t.Errorf("%v; %s %v: want 1", err, c.result, s.count(c.result))
			}
		})
	}
}

// A process that asks on another one's connection is told nothing, though it
// saw the nonce: what connects may end, and its number go to a process of
// another job.
func TestServer_AnotherProcessAsks(t *testing.T) {
	s := serve(t, me, nil)
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f, err := c.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asksOn+"=1")
	cmd.ExtraFiles = []*os.File{f}
	out, err := cmd.CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("the other was told %q: %v", out, err)
	}
	if err := s.stop(); err != nil || s.count("refused") != 1 || s.asked.Load() != 0 {
		t.Errorf("%v; refused %v, asked %d: want 1 and 0", err, s.count("refused"), s.asked.Load())
	}
}

func TestServer_NotTheQuestion(t *testing.T) {
	s := serve(t, me, nil)
	for _, text := range []string{"summary\n", "summary 0123456789abcdef\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", strings.Repeat("x", 1<<20), "\x00"} {
		c, err := net.Dial("unix", s.path)
		if err != nil {
			t.Fatal(err)
		}
		go io.WriteString(c, text) // the server may end the connection meanwhile
		r := bufio.NewReader(c)
		if _, err := r.ReadString('\n'); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("no greeting: %v", err)
		}
		if b, _ := io.ReadAll(r); len(b) > 0 { // an end or a reset
			t.Errorf("%.20q was answered with %q", text, b)
		}
		c.Close()
	}
	if s.asked.Load() != 0 {
		t.Error("the meter was asked")
	}
}

// Descriptors that come along are not kept.
func TestServer_Descriptors(t *testing.T) {
	s := serve(t, me, nil)
	before := descriptors(t)
	for range 20 {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(c)
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		rights := syscall.UnixRights(0, 0, 0, 0, 0, 0, 0, 0)
		if _, _, err := c.WriteMsgUnix([]byte("summary "+strings.Fields(line)[2]+"\n"), rights, nil); err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, r) // until it ends: what is in it is not the point
		c.Close()
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors are open, before %d", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// Slow callers of many containers hold eight connections at most, and none for
// long; then others are answered.
func TestServer_Slow(t *testing.T) {
	var n atomic.Int64
	s := serve(t, func(_ *socket, pid int) (*caller, error) {
		return &caller{container: fmt.Sprintf("c%d", n.Add(1)), record: record("k")}, nil
	}, nil)
	const slow = 17 // three times the deadline
	before := runtime.NumGoroutine()
	var all []net.Conn
	for range slow {
		c, err := net.Dial("unix", s.path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all = append(all, c)
	}
	most := 0
	for _, c := range all { // each is closed, by its deadline
		most = max(most, runtime.NumGoroutine()-before)
		if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
	}
	if most > 8+4 {
		t.Errorf("%d more goroutines with %d slow callers", most, slow)
	}
	if _, err := jobsocket.Ask(t.Context(), s.path); err != nil {
		t.Errorf("after them: %v", err)
	}
	if got := s.count("refused"); got != slow {
		t.Errorf("%v refused, want %d", got, slow)
	}
}

// While the meter is asked for two connections of a container, a third of it
// is refused, and another container is answered.
func TestServer_ManyOfOneContainer(t *testing.T) {
	enter, leave := make(chan struct{}), make(chan struct{})
	other := atomic.Bool{}
	s := serve(t, func(*socket, int) (*caller, error) {
		if other.Load() {
			return &caller{container: "other", record: record("other")}, nil
		}
		return &caller{container: "one", record: record("one"), enter: enter, leave: leave}, nil
	}, nil)
	done := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := jobsocket.Ask(t.Context(), s.path)
			done <- err
		}()
		<-enter
	}
	if _, err := jobsocket.Ask(t.Context(), s.path); !errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("a third: got %v, want unavailable", err)
	}
	other.Store(true)
	if a, err := jobsocket.Ask(t.Context(), s.path); err != nil || a.Record.Key != "other" {
		t.Errorf("another container: %+v, %v", a, err)
	}
	close(leave)
	for range 2 {
		if err := <-done; err != nil && !errors.Is(err, cimeter.ErrUnavailable) && !errors.Is(err, cimeter.ErrNotFound) { // late where the machine is slow
			t.Error(err)
		}
	}
}

func TestAsk_Foreign(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "garbage": "\x00\xff\n", "another version": "cimeter-job 9 abc\n", "endless": strings.Repeat("x", 8<<20),
		"an error": `{"problem":"\u001b[2J no"}`, "no record": `{}`, "no JSON": "<html>", "null": "null",
	} {
		t.Run(name, func(t *testing.T) {
			path := fake(t, func(c net.Conn) { io.WriteString(c, text) })
			a, err := jobsocket.Ask(t.Context(), path)
			if a != nil || err == nil || strings.ContainsAny(err.Error(), "\x1b\n\x00") || len(err.Error()) > 600 {
				t.Errorf("got %+v, %q", a, err)
			}
		})
	}
	for name, answer := range map[string]string{"half": `{"record":{"key":"a"`, "endless": `{"record":{"key":"` + strings.Repeat("x", 5<<20), "nothing": ""} {
		t.Run("then "+name, func(t *testing.T) {
			path := fake(t, func(c net.Conn) {
				io.WriteString(c, "cimeter-job 1 0123456789abcdef\n")
				bufio.NewReader(c).ReadString('\n')
				io.WriteString(c, answer)
			})
			if a, err := jobsocket.Ask(t.Context(), path); a != nil || err == nil {
				t.Errorf("got %+v, %v", a, err)
			}
		})
	}
	t.Run("silent", func(t *testing.T) {
		path := fake(t, func(c net.Conn) { io.Copy(io.Discard, c) })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := jobsocket.Ask(ctx, path); !errors.Is(err, cimeter.ErrUnavailable) || !strings.Contains(err.Error(), "in time") {
			t.Errorf("got %v, want no answer in time", err)
		}
	})
}

// fake listens in an agent's place.
func fake(t *testing.T, f func(net.Conn)) (path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "job-")
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		f(c)
		c.Close()
	}()
	t.Cleanup(func() { l.Close(); <-done; os.RemoveAll(dir) })
	return path
}

// BenchmarkAsk is one question from a connection to the answer, both ends. Its
// pace is the server's: what is over 200 a second waits.
func BenchmarkAsk(b *testing.B) {
	dir := b.TempDir()
	l, err := jobsocket.Listen(filepath.Join(dir, "s"), 0o600)
	if err != nil {
		b.Fatal(err)
	}
	asked, open := &atomic.Int64{}, &atomic.Int64{}
	s := jobsocket.New(jobsocket.Options{
		Hold: func(int) (jobsocket.Caller, error) {
			return &caller{container: "c", record: record("k"), asked: asked, open: open}, nil
		},
		Tally: tally.New(tally.Options{Budget: 1000}),
	}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	for b.Loop() {
		if _, err := jobsocket.Ask(b.Context(), filepath.Join(dir, "s")); err != nil {
			b.Fatal(err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
