package e2e_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cimeter/cimeter/internal/testdocker"
)

// nobody is a user without any right, and socketGroup one that only the
// daemon's socket belongs to.
const nobody, socketGroup = 65534, 64999

// noCapability runs the agent as a user with no capability, who reaches the
// daemon by a group: CPU time, memory, block IO and network of a real
// container are metered all the same.
func noCapability(t *testing.T, m *machine) {
	require(t, "setpriv")
	socket := strings.TrimPrefix(m.Host(), "unix://")
	if err := os.Chown(socket, 0, socketGroup); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Chown(socket, 0, 0); err != nil {
			t.Error(err)
		}
	})
	a := newAgent(t, m, agentConfig(nil))
	a.data = filepath.Join(open(t), "data")
	if err := os.Mkdir(a.data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(a.data, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	// nobody can read neither the file nor the program where they are.
	config := filepath.Join(filepath.Dir(a.data), "cimeter.yml")
	if err := os.WriteFile(config, []byte("log:\n  level: debug\nagent:\n  grace: 3s\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	a.config = config
	b, err := os.ReadFile(agentProgram(t))
	if err != nil {
		t.Fatal(err)
	}
	a.program = filepath.Join(filepath.Dir(a.data), "cimeter")
	if err := os.WriteFile(a.program, b, 0o755); err != nil {
		t.Fatal(err)
	}
	a.wrapper = []string{
		"setpriv", fmt.Sprintf("--reuid=%d", nobody), fmt.Sprintf("--regid=%d", nobody), fmt.Sprintf("--groups=%d", socketGroup),
		"--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--",
	}
	a.start()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^CapEff:\s+0+$`).Match(status) || !regexp.MustCompile(`(?m)^Uid:\s+65534\s`).Match(status) {
		t.Fatalf("the agent has rights: %s", status)
	}
	a.watchCounters()
	j := sampleJob(m, 4700)
	if err := j.playOld(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r := a.await(j.Key())
	checkGitLab(t, m, j, &r)
	u := r.Usage
	if !u.CPUSeconds.Total.Known || u.MemoryBytes == nil || u.IOBytes == nil || u.NetworkBytes == nil {
		t.Errorf("usage %+v, want CPU time, memory, block IO and network", u)
	}
}

// open is a temporary folder that other users can reach.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cimeter-open-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// allowed are the requests that an agent may make of a daemon (T12).
var allowed = []*regexp.Regexp{
	regexp.MustCompile(`^(HEAD|GET) /_ping$`),
	regexp.MustCompile(`^GET /v1\.\d+/version$`),
	regexp.MustCompile(`^GET /v1\.\d+/events$`),
	regexp.MustCompile(`^GET /v1\.\d+/containers/json$`),
	regexp.MustCompile(`^GET /v1\.\d+/containers/[0-9a-f]{64}/json$`),
}

// onlyReads puts a proxy between agent and daemon that notes what is asked:
// nothing but the allowed requests, whatever happens.
func onlyReads(t *testing.T, m *machine) {
	var mu sync.Mutex
	asked := map[string]int{}
	upstream := strings.TrimPrefix(m.Host(), "unix://")
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "docker"})
	proxy.FlushInterval = -1
	proxy.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", upstream)
	}}
	socket := filepath.Join(open(t), "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.Method+" "+r.URL.Path]++
		mu.Unlock()
		proxy.ServeHTTP(w, r)
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })

	a := newAgent(t, m, agentConfig(nil))
	a.engine = "unix://" + socket
	a.start()
	j := interrupted(4710)
	end := j.begin(t, m)
	a.kill()
	a.start()
	if err := end(); err != nil {
		t.Fatal(err)
	}
	a.await(j.Key())
	s := &droneStage{Number: 31, Slug: "acme/reads", Random: "AbCdEfGhIjKlMnOpQ", Steps: []step{{Name: "one", Steps: []string{"cpu=0.05"}}}}
	if err := s.play(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	a.await(s.Key())
	if exit, err := m.Run(t.Context(), testdocker.Spec{Name: "stranger", Cmd: []string{"true"}}); err != nil || exit.Code != 0 {
		t.Fatalf("exit %d: %v", exit.Code, err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"events", "containers/json"} {
		if !slices.ContainsFunc(keysOf(asked), func(s string) bool { return strings.HasSuffix(s, want) }) {
			t.Errorf("no request for %s went through the proxy: %v", want, asked)
		}
	}
	for request := range asked {
		if !slices.ContainsFunc(allowed, func(r *regexp.Regexp) bool { return r.MatchString(request) }) {
			t.Errorf("the agent asked %q, want nothing but events, list, inspection, version and ping", request)
		}
	}
}

func keysOf(m map[string]int) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}
