package agent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/tally"
	"github.com/cimeter/cimeter/internal/testdocker"
)

// workEnv makes this test binary a container's process: it waits for a line on
// its standard input, burns CPU for the duration that the variable gives, and
// prints what it has used.
const workEnv = "CIMETER_TEST_WORK"

func TestMain(m *testing.M) {
	if s := os.Getenv(workEnv); s != "" {
		work(s)
		return
	}
	os.Exit(m.Run())
}

func work(s string) {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	var line [1]byte
	if _, err := os.Stdin.Read(line[:]); err != nil {
		panic(err)
	}
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			panic(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	start := used()
	for used()-start < d {
	}
	fmt.Println(used() - start)
	// A container that goes through two stages: the second script is the same
	// process with another command line.
	if len(os.Args) > 2 {
		next := append([]string{os.Args[0]}, os.Args[2:]...)
		panic(syscall.Exec("/proc/self/exe", next, os.Environ()))
	}
}

// engine is a container engine that says what a test has it say.
type engine struct {
	mu         sync.Mutex
	containers map[string]cimeter.Container
	events     chan cimeter.ContainerEvent
	hold       chan struct{} // not nil: inspections wait until it is closed
}

func newEngine() *engine {
	return &engine{containers: make(map[string]cimeter.Container), events: make(chan cimeter.ContainerEvent, 100)}
}

func (e *engine) List(context.Context) ([]cimeter.Container, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var l []cimeter.Container
	for _, c := range e.containers {
		l = append(l, c)
	}
	return l, nil
}

func (e *engine) Inspect(_ context.Context, id string) (cimeter.Container, error) {
	if e.hold != nil {
		<-e.hold
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c, ok := e.containers[id]
	if !ok {
		return c, cimeter.ErrNotFound
	}
	return c, nil
}

func (e *engine) Follow(ctx context.Context, _ time.Time, connected func(), fn func(cimeter.ContainerEvent)) error {
	connected()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev := <-e.events:
			fn(ev)
		}
	}
}

func (e *engine) tell(kind cimeter.ContainerEventKind, c cimeter.Container, exit cimeter.Opt[int]) {
	e.mu.Lock()
	if kind == cimeter.ContainerDestroyed {
		delete(e.containers, c.ID)
	} else {
		e.containers[c.ID] = c
	}
	e.mu.Unlock()
	e.events <- cimeter.ContainerEvent{Kind: kind, At: time.Now(), Container: c, Exit: exit}
}

// shelf keeps records and checkpoints in memory.
type shelf struct {
	mu          sync.Mutex
	records     map[string]*cimeter.Record
	checkpoints map[string][]byte
	fail        error
	changed     chan struct{}
}

func newShelf() *shelf {
	return &shelf{records: make(map[string]*cimeter.Record), checkpoints: make(map[string][]byte), changed: make(chan struct{}, 1)}
}

func (s *shelf) Put(r *cimeter.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	if s.records[r.Key] != nil {
		return cimeter.ErrConflict
	}
	s.records[r.Key] = r
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return nil
}

func (s *shelf) Checkpoint(key string, state []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	s.checkpoints[key] = state
	return nil
}

func (s *shelf) DropCheckpoint(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.checkpoints, key)
	return nil
}

func (s *shelf) Checkpoints(fn func(string, []byte) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, v := range s.checkpoints {
		if err := fn(k, v); err != nil {
			return err
		}
	}
	return nil
}

// await returns the record of a build when it is there.
func (s *shelf) await(t *testing.T, key string) *cimeter.Record {
	t.Helper()
	end := time.After(30 * time.Second)
	for {
		s.mu.Lock()
		r := s.records[key]
		s.mu.Unlock()
		if r != nil {
			return r
		}
		select {
		case <-s.changed:
		case <-end:
			t.Fatalf("no record of %s", key)
		}
	}
}

// box is a container of a test: a cgroup and a process in it.
type box struct {
	cimeter.Container
	path string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *strings.Builder
}

// newBox makes a container's cgroup below a parent of the test's own and starts
// a process in it that will burn CPU time, once for each script on its command
// line.
func newBox(t *testing.T, name string, burn time.Duration, scripts ...string) *box {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("making cgroups needs root")
		}
		t.Skip("making cgroups needs root")
	}
	parent := fmt.Sprintf("/cimeter-agent-%d", os.Getpid())
	id := fmt.Sprintf("%x", sha256.Sum256([]byte(t.Name()+name)))
	b := &box{path: parent + "/" + id, out: &strings.Builder{}}
	b.Container = cimeter.Container{ID: id, Name: name, Labels: map[string]string{"stage": name}, Running: true}
	for _, p := range []string{parent, b.path} {
		if err := testdocker.MakeCgroup(p); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		b.cmd.Process.Kill()
		b.cmd.Wait()
		testdocker.DropCgroup(b.path)
		testdocker.DropCgroup(parent) // the last one succeeds
	})
	b.cmd = exec.Command("/proc/self/exe", scripts...)
	b.cmd.Env = append(os.Environ(), workEnv+"="+burn.String())
	b.cmd.Stdout = b.out
	in, err := b.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	b.in = in
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	files, err := testdocker.CgroupProcs(b.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(f, fmt.Append(nil, b.cmd.Process.Pid), 0); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// finish has the process burn and end, removes the cgroup as a runtime does,
// and returns what the process used. by is an agent that the time is left to which a
// runtime takes for that; nil: none.
func (b *box) finish(t *testing.T, by *Agent) time.Duration {
	t.Helper()
	is := func(what string, is func(m *meter, l *live) bool) {
		if by != nil {
			within(t, what, func() bool { return by.meter.is(b.ID, is) })
		}
	}
	is("its process is seen", func(_ *meter, l *live) bool { return l.pid >= 0 })
	if _, err := b.in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if err := b.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	is("its end is read", func(m *meter, l *live) bool { return l.closed || !l.exited.IsZero() && len(m.ended) == 0 })
	if err := testdocker.DropCgroup(b.path); err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	for line := range strings.Lines(b.out.String()) {
		used, err := time.ParseDuration(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		sum += used
	}
	return sum
}

// identify books every container with a label "stage" on one build.
func identify(c *cimeter.Container) (cimeter.Identity, bool) {
	stage, ok := c.Labels["stage"]
	if !ok {
		return cimeter.Identity{}, false
	}
	return cimeter.Identity{Build: cimeter.Build{Key: "test/build", CI: "test", Project: "p"}, Role: cimeter.RoleBuild, Stage: stage}, true
}

func options(e Engine, s *shelf) Options {
	return Options{
		Machine: "m", Interval: 100 * time.Millisecond, FullEvery: 10, Grace: 300 * time.Millisecond, Quiet: time.Minute,
		CgroupRoot: "/sys/fs/cgroup", ProcRoot: "/proc", SysRoot: "/sys",
		Engines: []NamedEngine{{"docker", e}}, Identify: identify, Tally: tally.New(tally.Options{}), Records: s,
	}
}

// start runs an agent until stop is called or the test ends.
func start(t *testing.T, o Options) (a *Agent, stop func()) {
	t.Helper()
	a, err := New(o, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	within(t, "the agent is ready", func() bool { return a.Ready() == nil })
	return a, stop
}

// within waits for a condition that another goroutine brings about.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); !is(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// is asks the meter about a container; false: it has none of that id.
func (m *meter) is(id string, is func(*meter, *live) bool) bool {
	answer := make(chan bool)
	m.post(func() {
		for _, l := range m.paths {
			if l.id == id {
				answer <- is(m, l)
				return
			}
		}
		answer <- false
	})
	return <-answer
}

func checkCPU(t *testing.T, what string, got cimeter.Opt[float64], want time.Duration) {
	t.Helper()
	// The process itself starts before it burns: some milliseconds more.
	if d := got.Value - want.Seconds(); !got.Known || d < -0.001 || d > 0.05 {
		t.Errorf("%s: CPU %v s (known %v), want %v", what, got.Value, got.Known, want)
	}
}

func TestAgent_lives(t *testing.T) {
	e, s := newEngine(), newShelf()
	a, _ := start(t, options(e, s))

	one := newBox(t, "one", 300*time.Millisecond)
	e.tell(cimeter.ContainerCreated, one.Container, cimeter.Opt[int]{})
	e.tell(cimeter.ContainerStarted, one.Container, cimeter.Opt[int]{})
	used := one.finish(t, a)
	e.tell(cimeter.ContainerDied, one.Container, cimeter.Some(0))

	// The same container again is another segment.
	again := newBox(t, "one", 50*time.Millisecond)
	again.ID = one.ID
	e.tell(cimeter.ContainerStarted, again.Container, cimeter.Opt[int]{})
	usedAgain := again.finish(t, a)
	e.tell(cimeter.ContainerDied, again.Container, cimeter.Some(3))
	e.tell(cimeter.ContainerDestroyed, one.Container, cimeter.Opt[int]{})

	r := s.await(t, "test/build")
	if !r.Complete || r.Result != "failed" || len(r.Stages) != 2 {
		t.Fatalf("complete %v, result %q, %d stages, gaps %+v; want complete, failed, 2", r.Complete, r.Result, len(r.Stages), r.Gaps)
	}
	checkCPU(t, "first life", r.Stages[0].Usage.CPUSeconds.Total, used)
	checkCPU(t, "second life", r.Stages[1].Usage.CPUSeconds.Total, usedAgain)
	if r.Stages[1].Attempt != 2 || r.Stages[1].ExitCode != cimeter.Some(3) {
		t.Errorf("second life: attempt %d, exit %+v", r.Stages[1].Attempt, r.Stages[1].ExitCode)
	}
	sum := r.Stages[0].Usage.CPUSeconds.Total.Value + r.Stages[1].Usage.CPUSeconds.Total.Value
	if math.Abs(sum-r.Usage.CPUSeconds.Total.Value) > 1e-6 {
		t.Errorf("stages add up to %v s, the build says %v", sum, r.Usage.CPUSeconds.Total.Value)
	}
}

// A container that is removed before it has been inspected does not keep its
// build open.
func TestAgent_inspectedAfterItsRemoval(t *testing.T) {
	e, s := newEngine(), newShelf()
	e.hold = make(chan struct{})
	a, _ := start(t, options(e, s))
	b := newBox(t, "step", 20*time.Millisecond)
	e.tell(cimeter.ContainerCreated, b.Container, cimeter.Opt[int]{})
	e.tell(cimeter.ContainerStarted, b.Container, cimeter.Opt[int]{})
	used := b.finish(t, a)
	e.tell(cimeter.ContainerDied, b.Container, cimeter.Some(0))
	e.tell(cimeter.ContainerDestroyed, b.Container, cimeter.Opt[int]{})
	within(t, "the removal is told", func() bool {
		n := make(chan bool)
		a.meter.post(func() { n <- a.meter.know(b.ID).gone })
		return <-n
	})
	close(e.hold)
	r := s.await(t, "test/build") // well before options' Quiet of a minute
	checkCPU(t, "step", r.Usage.CPUSeconds.Total, used)
	if !r.Complete || r.Result != "success" {
		t.Errorf("complete %v, result %q", r.Complete, r.Result)
	}
}

// An agent that is stopped and started again goes on with the build, counts the
// time between by the kernel's counters, and says that it was away.
func TestAgent_restart(t *testing.T) {
	e, s := newEngine(), newShelf()
	a, stop := start(t, options(e, s))
	b := newBox(t, "step", 200*time.Millisecond)
	e.tell(cimeter.ContainerCreated, b.Container, cimeter.Opt[int]{})
	e.tell(cimeter.ContainerStarted, b.Container, cimeter.Opt[int]{})
	within(t, "the build runs", func() bool {
		n := make(chan int)
		a.meter.post(func() { n <- a.ledger.Builds() })
		return <-n == 1
	})
	stop()
	if len(s.checkpoints) != 1 {
		t.Fatalf("%d checkpoints after the stop, want 1", len(s.checkpoints))
	}

	a, _ = start(t, options(e, s))
	used := b.finish(t, a)
	e.tell(cimeter.ContainerDied, b.Container, cimeter.Some(0))
	e.tell(cimeter.ContainerDestroyed, b.Container, cimeter.Opt[int]{})
	r := s.await(t, "test/build")
	checkCPU(t, "step", r.Usage.CPUSeconds.Total, used)
	if r.Complete || len(r.Gaps) != 1 || r.Gaps[0].Reason != cimeter.GapAgentRestart {
		t.Errorf("complete %v, gaps %+v", r.Complete, r.Gaps)
	}
	within(t, "the checkpoint is dropped", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.checkpoints) == 0
	})
}

// silent is a stager that knows nothing.
type silent struct{}

func (silent) Missed()                           {}
func (silent) Started(int, cimeter.Role, string) {}
func (silent) Command(int, string)               {}
func (silent) JobList(int, string)               {}
func (silent) Ended(int, cimeter.Opt[int])       {}
func (silent) Finish()                           {}
func (silent) Stage(int) attrib.StageName        { return attrib.StageName{} }

// A container whose cgroup was never seen marks its build, though the engine
// tells of it only afterwards.
func TestAgent_missed(t *testing.T) {
	e, s := newEngine(), newShelf()
	a, _ := start(t, options(e, s))
	ghost := cimeter.Container{ID: strings.Repeat("ab", 32), Name: "ghost", Labels: map[string]string{"stage": "ghost"}}
	e.tell(cimeter.ContainerCreated, ghost, cimeter.Opt[int]{})
	e.tell(cimeter.ContainerStarted, ghost, cimeter.Opt[int]{})
	e.tell(cimeter.ContainerDied, ghost, cimeter.Some(0))
	e.tell(cimeter.ContainerDestroyed, ghost, cimeter.Opt[int]{})
	b := newBox(t, "step", 20*time.Millisecond)
	e.tell(cimeter.ContainerCreated, b.Container, cimeter.Opt[int]{})
	e.tell(cimeter.ContainerStarted, b.Container, cimeter.Opt[int]{})
	b.finish(t, a)
	e.tell(cimeter.ContainerDied, b.Container, cimeter.Some(0))
	e.tell(cimeter.ContainerDestroyed, b.Container, cimeter.Opt[int]{})
	r := s.await(t, "test/build")
	if r.Complete || len(r.Gaps) != 1 || r.Gaps[0].Reason != cimeter.GapMissedSegment {
		t.Errorf("complete %v, gaps %+v; want a missed segment", r.Complete, r.Gaps)
	}
}

func TestWriter_fullDisk(t *testing.T) {
	s := newShelf()
	s.fail = errors.New("no space left on device")
	table := tally.New(tally.Options{})
	w := newWriter(s, table, slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { w.run(ctx); close(done) }()
	defer func() { cancel(); <-done }()

	const over = 7
	for i := range maxPending + over {
		w.put(&cimeter.Record{Build: cimeter.Build{Key: fmt.Sprint(i)}})
	}
	within(t, "the failure is told", func() bool { return w.err() != nil })
	if v, _ := table.Value(catalog.AgentDropped, "disk").Get(); v != over {
		t.Errorf("%v records dropped, want %d", v, over)
	}
	s.mu.Lock()
	s.fail = nil
	s.mu.Unlock()
	s.await(t, fmt.Sprint(maxPending+over-1))
	within(t, "the disk is trusted again", func() bool { return w.err() == nil })
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.records) != maxPending || s.records[fmt.Sprint(over-1)] != nil || s.records[fmt.Sprint(over)] == nil {
		t.Errorf("%d records kept, want the newest %d", len(s.records), maxPending)
	}
}

// A steady-state round allocates nothing.
func TestMeter_round_allocations(t *testing.T) {
	e, s := newEngine(), newShelf()
	o := options(e, s)
	o.Engines = nil
	a, err := New(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { a.watch.Close(); a.host.Close(); a.nets.Close() }()
	for i := range 5 {
		newBox(t, fmt.Sprint("step", i), time.Second)
	}
	m := a.meter
	m.begin(time.Now())
	for _, l := range m.lives {
		if !strings.Contains(l.path, fmt.Sprint("cimeter-agent-", os.Getpid())) {
			m.release(l) // others may be in motion
			continue
		}
		l.born = l.born.Add(-time.Minute) // its limits are sure
		k := m.know(l.id)
		k.container.Labels = map[string]string{"stage": l.id[:4]}
		m.identify(k, time.Now())
	}
	now := time.Now()
	step := func() {
		now = now.Add(o.Interval)
		m.settle(now, now)
		m.round(now)
	}
	for range 300 { // everything is found out, the trace has its length
		step()
	}
	if m.ledger.Builds() != 1 || len(m.lives) != 5 {
		t.Fatalf("%d builds of %d containers, want 1 of 5", m.ledger.Builds(), len(m.lives))
	}
	delete(m.due, "test/build") // a checkpoint every 30 s is not part of the steady state
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations a round, want 0", n)
	}
}
