package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/testdocker"
)

// bare is a build machine without a runtime: its containers are cgroups with a
// process of burn, made and removed as a runtime does it, and a stand-in engine
// tells of them. A container costs some milliseconds here, not a tenth of a
// second: hundreds can be had.
type bare struct {
	*testdocker.Engine
	t      *testing.T
	parent string
	burn   string
	silent bool // no event tells of the containers that follow
	// delay is the time between a container's end and the removal of its cgroup.
	delay time.Duration
	name  string // form of the cgroups' names, with the id at %s; "" is the id alone
}

var bares, boxes atomic.Int64 // number the machines and containers of this process

// runtimeDelay is the time between a container's end and the removal of its
// cgroup: the least that a runtime was seen to take. An agent that gets no CPU for so
// long misses the end, and marks it.
const runtimeDelay = 10 * time.Millisecond

// lateRemoval is longer than a busy machine lets the agent wait: for tests that want
// all of what a container used on record, and are not about how soon it is read.
const lateRemoval = 300 * time.Millisecond

// bareConfig is the agent's file on a bare machine. Lines are added to the
// section of the agent.
func bareConfig(lines ...string) string {
	return "log:\n  level: debug\nagent:\n  interval: 200ms\n  grace: 500ms\n" + strings.Join(lines, "\n") + "\n"
}

// patientConfig is bareConfig for builds of several steps on a patient machine: the
// time between two of them is no build's end, however busy it is.
func patientConfig() string {
	return strings.Replace(bareConfig(), "grace: 500ms", "grace: 3s", 1)
}

func newBare(t *testing.T) *bare {
	t.Helper()
	if os.Geteuid() != 0 {
		unable(t, "making cgroups needs root, this is user %d", os.Geteuid())
	}
	b := &bare{
		Engine: testdocker.NewEngine(t), t: t, burn: burnProgram(t),
		parent: fmt.Sprintf("/cimeter-bare-%d-%d", os.Getpid(), bares.Add(1)), delay: runtimeDelay,
	}
	top := b.parent
	if err := testdocker.MakeCgroup(top); err != nil {
		unable(t, "%v", err)
	}
	t.Cleanup(func() {
		if err := testdocker.RemoveCgroup(top); err != nil {
			t.Error(err)
		}
	})
	return b
}

// newPatientBare is a bare machine whose runtime leaves even a starved agent the time
// to read a container's end.
func newPatientBare(t *testing.T) *bare {
	t.Helper()
	b := newBare(t)
	b.delay = lateRemoval
	return b
}

// Command implements place.
func (b *bare) Command(name string, args ...string) *exec.Cmd { return exec.Command(name, args...) }

// Dial implements place.
func (b *bare) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// Cgroups implements place.
func (b *bare) Cgroups() []string { return nil }

// bareBuild is a build on a bare machine: a stage of Drone, whose containers
// tell their steps by themselves.
type bareBuild struct {
	*droneStage
	b    *bare
	kept []*testdocker.Box // ended, not removed yet
	box  testdocker.Box    // what all its containers have in common

	mu    sync.Mutex
	spent time.Duration // CPU time of its containers, by their own cgroups
	steps int
	ended time.Time // when the last of its processes had ended
}

// build begins a build. Its number makes its key.
func (b *bare) build(number int) *bareBuild {
	return &bareBuild{b: b, droneStage: &droneStage{Number: number, Slug: "acme/bare"}}
}

// box is a running container of a build.
type box struct {
	*testdocker.Box
	build  *bareBuild
	cgroup string
	inside []string // cgroups below its own, deepest first, which end with it
	cmd    *exec.Cmd
	out    bytes.Buffer
}

// begin starts a container with this step of the build; steps are burn's.
func (s *bareBuild) begin(step string, steps ...string) (*box, error) {
	n := boxes.Add(1)
	s.mu.Lock()
	s.steps++
	labels := s.labels()
	labels["io.drone.step.name"], labels["io.drone.step.number"] = step, fmt.Sprint(s.steps)
	s.mu.Unlock()
	made := s.box
	made.ID, made.Name = fmt.Sprintf("%016x%08x%040x", os.Getpid(), s.Number, n), fmt.Sprintf("drone-%020d", n)
	made.Labels, made.Silent = labels, s.b.silent
	c := &box{build: s, Box: &made}
	c.cgroup = s.b.parent + "/" + c.ID
	if s.b.name != "" {
		c.cgroup = s.b.parent + "/" + fmt.Sprintf(s.b.name, c.ID)
	}
	s.b.Create(c.Box)
	return c, c.start(steps)
}

func (c *box) start(steps []string) error {
	if err := testdocker.MakeCgroup(c.cgroup); err != nil {
		return err
	}
	files, err := testdocker.CgroupProcs(c.cgroup)
	if err != nil {
		return err
	}
	var args []string
	for _, f := range files {
		args = append(args, "join="+f)
	}
	c.cmd = exec.Command(c.build.b.burn, append(args, steps...)...)
	c.cmd.Env = []string{"GOMAXPROCS=1"}
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	if err := c.cmd.Start(); err != nil {
		return err
	}
	c.build.b.Start(c.Box, c.cmd.Process.Pid)
	return nil
}

// end waits for the container's process and takes its cgroup away.
func (c *box) end() error {
	err := c.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() == 125) {
		return fmt.Errorf("container %s: %w: %s", c.Name, err, c.out.Bytes())
	}
	ended := time.Now()
	<-time.After(c.build.b.delay) // what a runtime does meanwhile takes that long
	cpu, err := testdocker.CgroupCPU(c.cgroup)
	if err != nil {
		return err
	}
	c.build.mu.Lock()
	c.build.spent += cpu
	c.build.ended = ended
	c.build.kept = append(c.build.kept, c.Box)
	c.build.mu.Unlock()
	for _, path := range append(c.inside, c.cgroup) {
		if err := testdocker.DropCgroup(path); err != nil {
			return err
		}
	}
	c.build.b.Die(c.Box, c.cmd.ProcessState.ExitCode())
	return nil
}

// step runs a container to its end.
func (s *bareBuild) step(name string, steps ...string) error {
	c, err := s.begin(name, steps...)
	if err != nil {
		return err
	}
	return c.end()
}

// remove removes the containers, as runners do at a build's end.
func (s *bareBuild) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.kept {
		s.b.Destroy(c)
	}
	s.kept = nil
}

// run runs a build of these steps, one after the other.
func (s *bareBuild) run(names ...string) error {
	defer s.remove()
	for _, name := range names {
		if err := s.step(name, "cpu=0.01", "sleep=0.05"); err != nil {
			return err
		}
	}
	return nil
}

// churn runs builds, each of some steps, side by side until told to stop.
type churn struct {
	b       *bare
	account account
	stop    func()
	wg      sync.WaitGroup
	mu      sync.Mutex
	errs    []error
	lives   map[string]span // from before a build's begin to the end of its last process
}

type span struct{ begin, end time.Time }

// churn begins builds in this many workers. Their numbers begin at 1000.
func (b *bare) churn(workers int, first int, play func(s *bareBuild) error) *churn {
	stopped := make(chan struct{})
	c := &churn{
		b: b, account: account{want: map[string]time.Duration{}}, lives: map[string]span{},
		stop: sync.OnceFunc(func() { close(stopped) }),
	}
	b.t.Cleanup(func() { // of a test that failed: no cgroup is made once the machine goes
		c.stop()
		c.wg.Wait()
	})
	var number atomic.Int64
	number.Store(int64(first))
	for range workers {
		c.wg.Go(func() {
			for {
				select {
				case <-stopped:
					return
				default:
				}
				s := b.build(int(number.Add(1)))
				begun := time.Now()
				err := play(s)
				s.remove()
				c.mu.Lock()
				c.account.want[s.Key()], c.lives[s.Key()] = s.spent, span{begun, s.ended}
				if err != nil {
					c.errs = append(c.errs, err)
				}
				c.mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	return c
}

// forget takes the builds out of the account that lived while nobody saw them: wholly
// within one of these times.
func (c *churn) forget(t *testing.T, all []absence) {
	t.Helper()
	for key, life := range c.lives {
		if slices.ContainsFunc(all, func(u absence) bool {
			return !u.kept[key] && life.begin.After(u.begin.Add(-young)) && life.end.Before(u.end)
		}) {
			t.Logf("%s lived for %v while no agent did", key, life.end.Sub(life.begin))
			delete(c.account.want, key)
		}
	}
}

// end lets the builds that run come to their end and returns the account.
func (c *churn) end(t *testing.T) *account {
	t.Helper()
	c.stop()
	c.wg.Wait()
	if err := errors.Join(c.errs...); err != nil {
		t.Fatal(err)
	}
	return &c.account
}
