package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
)

// patience bounds every wait for something that must come. It is long for the
// emulated guest's sake; nothing waits longer than it has to.
const patience = 2 * time.Minute

// place is where an agent runs: a machine with a daemon, or a bare one.
type place interface {
	Host() string                                  // address of the engine
	Command(name string, args ...string) *exec.Cmd // inside its network
	Dial(ctx context.Context, network, addr string) (net.Conn, error)
	Cgroups() []string // of containers that there still are, for messages
}

// agent is a process of `cimeter agent` at a place.
type agent struct {
	t      *testing.T
	m      place
	client *http.Client
	data   string
	config string
	log    *logBuffer
	// Set before start where they are not the usual ones: the engine's address,
	// the program, and a command that becomes the agent by exec.
	engine  string
	program string
	wrapper []string

	cmd     *exec.Cmd
	done    chan struct{} // closed when cmd has ended
	address string
	watch   *counterWatch
}

// startAgent starts an agent beside the machine's daemon, inside its network
// namespace, and waits until it is ready. config is the text of its file.
func startAgent(t *testing.T, m place, config string) *agent {
	t.Helper()
	a := newAgent(t, m, config)
	a.start()
	return a
}

// newAgent is startAgent without the start.
func newAgent(t *testing.T, m place, config string) *agent {
	t.Helper()
	dir := t.TempDir()
	a := &agent{
		t: t, m: m, data: filepath.Join(dir, "data"), config: filepath.Join(dir, "cimeter.yml"), log: &logBuffer{},
		client: &http.Client{Transport: &http.Transport{DialContext: m.Dial}, Timeout: patience},
	}
	if err := os.WriteFile(a.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && a.cmd != nil {
			a.tell()
		}
		if a.cmd != nil {
			a.terminate()
		}
		if t.Failed() {
			t.Logf("the agent's log:\n%s", a.log)
		}
	})
	return a
}

// tell logs what the agent says of itself and every record without its trace.
func (a *agent) tell() {
	b, err := a.get("/metrics")
	if err != nil {
		a.t.Logf("metrics: %v", err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "cimeter_agent_") || strings.HasPrefix(line, "cimeter_builds_running") {
			a.t.Log(strings.TrimSpace(line))
		}
	}
	for _, dir := range a.m.Cgroups() {
		a.t.Logf("there is still %s", dir)
	}
	keys, err := a.keys()
	if err != nil {
		a.t.Logf("listing records: %v", err)
	}
	for _, key := range keys {
		r, err := a.record(key)
		if err != nil {
			a.t.Logf("record %s: %v", key, err)
			continue
		}
		a.t.Logf("%s: complete=%v gaps=%+v CPU=%v", key, r.Complete, r.Gaps, r.Usage.CPUSeconds.Total)
		for _, s := range r.Stages {
			a.t.Logf("    %s %d by %s from %s to %s: CPU %v, exit %v", s.Name, s.Attempt, s.Boundary,
				s.StartedAt.Format(clock), s.EndedAt.Format(clock), s.Usage.CPUSeconds.Total, s.ExitCode)
		}
	}
}

const clock = "15:04:05.000"

// start starts the process and waits until it is ready.
func (a *agent) start() {
	a.t.Helper()
	a.launch()
	a.eventually("the agent is ready", func() error {
		_, err := a.get("/readyz")
		return err
	})
}

// command is the agent's command line.
func (a *agent) command() *exec.Cmd {
	engine := a.engine
	if engine == "" {
		engine = a.m.Host()
	}
	program := a.program
	if program == "" {
		program = agentProgram(a.t)
	}
	flag := "--docker"
	if _, ok := a.m.(*node); ok {
		flag = "--cri"
	}
	line := append(slices.Clone(a.wrapper), program, "agent", "--listen", "127.0.0.1:0", flag, engine, "--data", a.data, "--config", a.config)
	return a.m.Command(line[0], line[1:]...)
}

// launch starts the process and waits until it listens.
func (a *agent) launch() {
	a.t.Helper()
	cmd := a.command()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	out, err := cmd.StderrPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	cmd.Stdout = a.log
	if err := cmd.Start(); err != nil {
		a.t.Fatalf("starting the agent: %v", err)
	}
	address, ended, done := make(chan string, 1), make(chan error, 1), make(chan struct{})
	go func() {
		s := bufio.NewScanner(out)
		for s.Scan() {
			fmt.Fprintln(a.log, s.Text())
			if m := listening.FindStringSubmatch(s.Text()); m != nil {
				select {
				case address <- m[1]:
				default:
				}
			}
		}
		ended <- cmd.Wait()
		close(done)
	}()
	a.cmd, a.done = cmd, done
	select {
	case a.address = <-address:
	case err := <-ended:
		a.cmd = nil
		a.t.Fatalf("the agent ended at its start: %v\n%s", err, a.log)
	case <-time.After(patience):
		a.t.Fatalf("the agent does not say that it listens:\n%s", a.log)
	}
}

// listening finds the address in the agent's log.
var listening = regexp.MustCompile(`msg="?listening"?.*\baddress="?([0-9.:\[\]a-f]+)`)

// kill ends the agent with SIGKILL.
func (a *agent) kill() {
	a.t.Helper()
	a.stopWatch()
	if err := a.cmd.Process.Kill(); err != nil {
		a.t.Fatalf("killing the agent: %v", err)
	}
	<-a.done
	a.cmd = nil
}

// terminate ends the agent with SIGTERM; it must leave with 0.
func (a *agent) terminate() {
	a.t.Helper()
	a.stopWatch()
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		a.t.Errorf("ending the agent: %v", err)
	}
	select {
	case <-a.done:
		if code := a.cmd.ProcessState.ExitCode(); code != 0 {
			a.t.Errorf("the agent left with %d after SIGTERM, want 0", code)
		}
	case <-time.After(patience):
		a.t.Errorf("the agent did not leave within %v of SIGTERM", patience)
		_ = a.cmd.Process.Kill() // told already
		<-a.done
	}
	a.cmd = nil
}

// get is the body of a page of the agent.
func (a *agent) get(path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.address+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return b, fmt.Errorf("GET %s: %s: %s", path, resp.Status, b)
	}
	return b, nil
}

// keys lists the keys of all records, newest first.
func (a *agent) keys() ([]string, error) {
	var keys []string
	for next := "/api/v1/builds?limit=100"; next != ""; {
		b, err := a.get(next)
		if err != nil {
			return nil, err
		}
		var page struct {
			Builds []struct {
				Key string `json:"key"`
			} `json:"builds"`
			Next string `json:"next"`
		}
		if err := json.Unmarshal(b, &page); err != nil {
			return nil, fmt.Errorf("GET %s: %w", next, err)
		}
		for _, r := range page.Builds {
			keys = append(keys, r.Key)
		}
		if next = page.Next; next != "" {
			next = "/api/v1/builds?limit=100&cursor=" + url.QueryEscape(next)
		}
	}
	return keys, nil
}

// record is the finished record of a build.
func (a *agent) record(key string) (cimeter.Record, error) {
	var r cimeter.Record
	b, err := a.get("/api/v1/builds/" + key)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("record %s: %w", key, err)
	}
	return r, nil
}

// await waits for the record of a build.
func (a *agent) await(key string) cimeter.Record {
	a.t.Helper()
	var r cimeter.Record
	a.eventually("there is a record of "+key, func() (err error) {
		r, err = a.record(key)
		return err
	})
	return r
}

// eventually repeats f until it succeeds.
func (a *agent) eventually(what string, f func() error) {
	a.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			a.t.Fatalf("waiting until %s: %v", what, err)
		}
		select {
		case <-tick.C:
		case <-a.done:
			a.t.Fatalf("waiting until %s: the agent ended (%v): %v", what, a.cmd.ProcessState, err)
		}
	}
}

// logBuffer is a growing text that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
