package jobsocket

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/tally"
)

// Options are what a server needs. Hold and Tally must be set.
type Options struct {
	// Hold takes hold of a process; see Caller. cimeter.ErrNotFound: it is in no
	// container, and no descendant of a runner. cimeter.ErrGone: there is no such process.
	Hold func(pid int) (Caller, error)
	// History returns a job's last builds; nil: what is usual is not known. It
	// is called from at most two goroutines at once.
	History History
	Machine cimeter.Limits // what the machine has
	Pages   string         // address of cimeter's pages; "" is none
	Tally   *tally.Table
}

// Caller is a process that is held: as long as Same says so, its number has not
// gone to another one.
type Caller interface {
	// Scope names what it was a part of when it was held: a container, or the
	// processes that a runner started. All of one scope are of one build, or of none.
	Scope() string
	// Account returns the account so far of the scope's build, and the stage that
	// runs. cimeter.ErrNotFound: the scope is of no build.
	Account(ctx context.Context) (r *cimeter.Record, stage string, err error)
	// Same reports whether the process still lives.
	Same() bool
	// Close lets go of it.
	Close()
}

// Server answers jobs. Make it with New.
type Server struct {
	o       Options
	log     *slog.Logger
	history *histories
	counts  map[string]*tally.Value

	mu     sync.Mutex
	open   map[string]int    // connections of a scope
	recent map[string]recent // by scope
}

// recent is the last answer to a scope.
type recent struct {
	at     time.Time
	answer []byte
}

// The results of questions.
const (
	answered = "answered"
	unknown  = "unknown"
	refused  = "refused"
	failed   = "failed"
)

// New returns a server that logs to log.
func New(o Options, log *slog.Logger) *Server {
	s := &Server{
		o: o, log: log, history: newHistories(o.History), counts: map[string]*tally.Value{},
		open: map[string]int{}, recent: map[string]recent{},
	}
	for _, result := range []string{answered, unknown, refused, failed} {
		s.counts[result] = o.Tally.Value(catalog.AgentJobQuestions, result)
	}
	return s
}

// Serve answers on l until ctx ends, and closes l.
func (s *Server) Serve(ctx context.Context, l *Listener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer s.history.run(work, &wg)()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	slots := make(chan struct{}, maxConnections)
	pace := pace{}
	for {
		slots <- struct{}{} // freed within the deadline of a connection
		c, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) && !errors.Is(err, unix.ECONNABORTED) {
				return fmt.Errorf("job socket: %w", err)
			}
			s.log.Warn("jobs are not answered", "err", err)
			<-slots
			pause(ctx, deadline)
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			defer c.Close()
			result, err := s.serve(work, c)
			s.counts[result].Add(1)
			if err != nil {
				s.log.Debug("job not answered", "err", err)
			}
		})
		pause(ctx, pace.next(time.Now()))
	}
}

// pace is a bucket that gives perSecond after a burst.
type pace struct {
	left float64
	at   time.Time
}

// next takes one out of the bucket and returns how long to wait for it.
func (p *pace) next(now time.Time) time.Duration {
	if p.at.IsZero() {
		p.left = burst
	} else {
		p.left = min(burst, p.left+now.Sub(p.at).Seconds()*perSecond)
	}
	p.at = now
	if p.left--; p.left >= 0 {
		return 0
	}
	return time.Second / perSecond
}

// pause waits, no longer than until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// serve is one connection.
func (s *Server) serve(ctx context.Context, c *net.UnixConn) (result string, err error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		return failed, err
	}
	pid, err := peer(c)
	if err != nil {
		return failed, err
	}
	if pid <= 0 {
		return unknown, s.say(c, Answer{Problem: problemUnseen})
	}
	caller, err := s.o.Hold(pid)
	if err != nil {
		_ = s.say(c, Answer{Problem: problemUnknown}) // told by the result
		return unknown, err
	}
	defer caller.Close()
	id := caller.Scope()
	if !s.enter(id) {
		return refused, errors.New("too many connections of one container or family of processes")
	}
	defer s.leave(id)
	if err := s.question(c, pid); err != nil {
		return refused, err
	}
	if b := s.lately(id, time.Now()); b != nil && caller.Same() {
		_, err := c.Write(b)
		return answered, err
	}
	r, stage, err := caller.Account(ctx)
	switch {
	case errors.Is(err, cimeter.ErrNotFound):
		return unknown, s.say(c, Answer{Problem: problemUnknown})
	case err != nil:
		_ = s.say(c, Answer{Problem: problemBusy}) // told by err
		return failed, err
	}
	a := Answer{Record: r, Stage: stage, Machine: s.o.Machine, URL: pageOf(s.o.Pages, r.Key), Usual: s.history.usual(ctx, r)}
	b, err := json.Marshal(a)
	if err != nil {
		return failed, err
	}
	if !caller.Same() { // its number may be another's by now
		return refused, errors.New("the caller has ended")
	}
	s.keep(id, b, time.Now())
	_, err = c.Write(b)
	return answered, err
}

// question greets the caller and reads its question, which must come from the
// process pid.
func (s *Server) question(c *net.UnixConn, pid int) error {
	if err := passCredentials(c); err != nil {
		return err
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	nonce := hex.EncodeToString(random[:])
	if _, err := fmt.Fprintf(c, "%s %s\n", greeting, nonce); err != nil {
		return err
	}
	want := question + " " + nonce + "\n"
	var got []byte
	for len(got) < len(want) { // each piece has a sender of its own
		var b [maxQuestion]byte
		var oob [64]byte
		n, oobn, _, _, err := c.ReadMsgUnix(b[:], oob[:])
		if err != nil {
			return err
		}
		if n == 0 {
			return errors.New("no question")
		}
		from, err := sender(oob[:oobn])
		if err != nil {
			return err
		}
		if from != pid {
			return fmt.Errorf("process %d asks on the connection of process %d", from, pid)
		}
		got = append(got, b[:n]...)
	}
	if string(got) != want {
		return errors.New("not the question")
	}
	return nil
}

// say writes an answer without a record.
func (s *Server) say(c *net.UnixConn, a Answer) error {
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = c.Write(b)
	return err
}

func (s *Server) enter(scope string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[scope] >= maxOfOne {
		return false
	}
	s.open[scope]++
	return true
}

func (s *Server) leave(scope string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[scope]--; s.open[scope] == 0 {
		delete(s.open, scope)
	}
}

// lately returns what the scope was told a moment ago, so that a flood of
// questions costs the meter one in a while.
func (s *Server) lately(scope string, now time.Time) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.recent[scope]; ok && now.Sub(r.at) < askAgain {
		return r.answer
	}
	return nil
}

func (s *Server) keep(scope string, answer []byte, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, r := range s.recent {
		if now.Sub(r.at) >= askAgain {
			delete(s.recent, id)
		}
	}
	s.recent[scope] = recent{now, answer}
}

// pageOf is the address of a build's page.
func pageOf(pages, key string) string {
	if pages == "" || key == "" {
		return ""
	}
	path, err := url.PathUnescape(key)
	if err != nil {
		return ""
	}
	at := url.URL{Path: "/builds/" + path, RawPath: "/builds/" + key} // a key is escaped already
	return strings.TrimRight(pages, "/") + at.EscapedPath()
}
