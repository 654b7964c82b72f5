package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/storetest"
	"github.com/cimeter/cimeter/internal/testdocker"
)

// central is a process of `cimeter server` that the agents of a machine can
// reach. It listens on every address, so that reading needs a token.
type central struct {
	t              *testing.T
	m              place
	dir, database  string
	pushing, reads string // tokens
	listen         string // the same after a restart
	log            *logBuffer
	view           *agent // reads the API as it reads an agent's

	cmd  *exec.Cmd
	done chan struct{}
}

// bearer adds a token to each request.
type bearer struct {
	token string
	to    http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.to.RoundTrip(r)
}

// startCentral starts a server with tokens for both roles. database is the
// address of a PostgreSQL, or "".
func startCentral(t *testing.T, m place, database string) *central {
	t.Helper()
	s := &central{t: t, m: m, dir: t.TempDir(), database: database, listen: "0.0.0.0:0", log: &logBuffer{}}
	s.pushing, s.reads = s.token("push"), s.token("read")
	s.view = &agent{t: t, m: m, log: s.log, done: make(chan struct{}),
		client: &http.Client{Transport: bearer{s.reads, &http.Transport{DialContext: m.Dial}}, Timeout: patience}}
	t.Cleanup(func() {
		if s.cmd != nil {
			s.kill()
		}
		if t.Failed() {
			t.Logf("the server's log:\n%s", s.log)
		}
	})
	s.start()
	return s
}

func (s *central) tokens() string { return filepath.Join(s.dir, "tokens") }

func (s *central) data() string { return filepath.Join(s.dir, "data") }

// token makes a token by the command, keeps it in a file of its own, and returns it.
func (s *central) token(role string) string {
	s.t.Helper()
	out, err := exec.Command(agentProgram(s.t), "token", "--role", role, "--name", role, "--tokens", s.tokens()).Output()
	if err != nil {
		s.t.Fatalf("making a token: %v", err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, role), out, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// start starts the process and waits until it listens.
func (s *central) start() {
	s.t.Helper()
	cmd := s.m.Command(agentProgram(s.t), "server", "--listen", s.listen, "--data", s.data(), "--tokens", s.tokens())
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "CIMETER_DATABASE=" + s.database}
	out, err := cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Stdout = s.log
	if err := cmd.Start(); err != nil {
		s.t.Fatalf("starting the server: %v", err)
	}
	address, done := make(chan string, 1), make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Fprintln(s.log, lines.Text())
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				select {
				case address <- m[1]:
				default:
				}
			}
		}
		_ = cmd.Wait()
		close(done)
	}()
	s.cmd, s.done = cmd, done
	select {
	case a := <-address:
		s.view.address = "127.0.0.1" + a[strings.LastIndex(a, ":"):]
		s.listen = "0.0.0.0" + a[strings.LastIndex(a, ":"):]
	case <-done:
		s.cmd = nil
		s.t.Fatalf("the server ended at its start:\n%s", s.log)
	case <-time.After(patience):
		s.t.Fatalf("the server does not say that it listens:\n%s", s.log)
	}
}

// kill ends the server with SIGKILL.
func (s *central) kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Errorf("killing the server: %v", err)
	}
	<-s.done
	s.cmd = nil
}

// config is the part of an agent's file that makes it push here.
func (s *central) config() string {
	return fmt.Sprintf("server:\n  url: http://%s\n  token_file: %s\n  heartbeat: 1s\n", s.view.address, filepath.Join(s.dir, "push"))
}

// answer asks a path with a token and returns the status.
func (s *central) answer(method, path, token string) int {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+s.view.address+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := bearer{token, s.view.client.Transport.(bearer).to}.RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestServer has an agent on a real daemon send to a server whose process is
// killed meanwhile, with each of the stores.
func TestServer(t *testing.T) {
	m := newMachine(t)
	t.Run("SQLite", func(t *testing.T) { agentToServer(t, m, "") })
	t.Run("PostgreSQL", func(t *testing.T) {
		p, err := storetest.StartPostgres()
		if err != nil {
			unable(t, "%v", err)
		}
		t.Cleanup(p.Stop)
		agentToServer(t, m, bySocket(t, p.Database(t)))
	})
}

// bySocket makes the address of a local PostgreSQL one that holds in every
// network namespace: that of its socket.
func bySocket(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), "pg*", ".s.PGSQL."+u.Port()))
	if len(found) != 1 {
		t.Fatalf("sockets of %s: %q, want one", address, found)
	}
	return fmt.Sprintf("postgres://postgres@%s?host=%s&port=%s&sslmode=disable", u.Path, url.QueryEscape(filepath.Dir(found[0])), u.Port())
}

// agentToServer is the account of builds whose records go to a server that is
// killed at random moments: what ended is stored there, once and as the agent
// has it. Then no secret is anywhere.
func agentToServer(t *testing.T, m *machine, database string) {
	rnd := rand.New(rand.NewPCG(seed(t), 9))
	list := newJobList(t, m)
	s := startCentral(t, m, database)
	a := startAgent(t, m, agentConfig(list)+s.config())
	a.watchCounters()
	c := account{want: map[string]time.Duration{}}
	var mu sync.Mutex
	run := func(j *gitlabJob, play func(*gitlabJob, context.Context, *machine) error) {
		j.List, j.Cgroup = list, fmt.Sprintf("%s/job-%d", m.CgroupParent(), j.ID)
		if err := play(j, t.Context(), m); err != nil {
			t.Errorf("job %d: %v", j.ID, err)
			return
		}
		cpu, err := testdocker.CgroupCPU(j.Cgroup)
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		c.want[j.Key()] = cpu
	}
	first := 7000
	if database != "" {
		first = 8000
	}
	var workers sync.WaitGroup
	for w := range 2 {
		workers.Go(func() {
			for i := range 2 {
				j := smallJob(first + 10*w + i)
				j.Slot = w
				play := (*gitlabJob).playOld
				if i%2 == 1 {
					play, j.SystemID = (*gitlabJob).playNew, "s_a1b2c3d4e5f6"
				}
				run(j, play)
			}
		})
	}
	played := make(chan struct{})
	go func() { workers.Wait(); close(played) }()
	kills := 0
	for more := true; more; kills++ {
		select {
		case <-played:
			more = false
		case <-time.After(time.Duration(rnd.Int64N(int64(2 * time.Second)))): // the random moment is the fault
		}
		s.kill()
		if more {
			s.start()
		}
	}
	// One more ends while the server is away.
	planted := sampleJob(m, first+99)
	run(planted, (*gitlabJob).playOld)
	plant(t, m, first)
	a.await(planted.Key())
	s.start()

	c.settle(t, a)
	a.eventually("the spool is empty", func() error {
		if n := a.metric("cimeter_agent_spool_records"); n > 0 {
			return fmt.Errorf("%v records wait", n)
		}
		return nil
	})
	if n := a.metric("cimeter_agent_dropped_total"); n != 0 {
		t.Errorf("%v records dropped, want none", n)
	}
	c.settle(t, s.view)
	mine, err := a.keys()
	if err != nil {
		t.Fatal(err)
	}
	stored, err := s.view.keys()
	if err != nil {
		t.Fatal(err)
	}
	if len(stored) != len(mine) {
		t.Errorf("ended %d, stored %d, in the spool 0, dropped 0: want them equal", len(mine), len(stored))
	}
	for _, key := range mine {
		s.same(a, key)
	}
	t.Logf("%d kills of the server, ended %d = stored %d + 0 in the spool + 0 dropped", kills, len(mine), len(stored))
	s.eventuallyKnows(a)
	s.roles()
	s.keepsNoSecret(a, planted)
}

// plant runs a container with secrets wherever a build can put them.
func plant(t *testing.T, m *machine, id int) {
	t.Helper()
	exit, err := m.Run(t.Context(), testdocker.Spec{
		Name:   fmt.Sprintf("drone-%d%s", id, strings.Repeat("x", 16)),
		Labels: map[string]string{"deploy.token": plantedSecret, "io.drone": "true", "io.drone.repo.slug": "a/b"},
		Env:    []string{"PASSWORD=" + plantedSecret}, Cmd: []string{"sh", "-c", "true " + plantedSecret},
	})
	if err != nil || exit.Code != 0 {
		t.Fatalf("exit %d: %v", exit.Code, err)
	}
}

// same holds a record of the server against the agent's own.
func (s *central) same(a *agent, key string) {
	s.t.Helper()
	mine, err := a.record(key)
	if err != nil {
		s.t.Fatal(err)
	}
	theirs, err := s.view.record(key)
	if err != nil {
		s.t.Fatal(err)
	}
	plain := func(r cimeter.Record) (v map[string]any) {
		r.Trace = nil // has a route of its own at a server
		b, err := json.Marshal(r)
		if err == nil {
			err = json.Unmarshal(b, &v)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		return v
	}
	if want, got := plain(mine), plain(theirs); !reflect.DeepEqual(got, want) {
		s.t.Errorf("%s: the server has\n%v\nthe agent\n%v", key, got, want)
	}
}

// eventuallyKnows waits until the server tells of the agent.
func (s *central) eventuallyKnows(a *agent) {
	s.t.Helper()
	a.eventually("the server knows its agent", func() error {
		b, err := s.view.get("/api/v1/agents")
		if err == nil && !strings.Contains(string(b), `"machine"`) {
			err = fmt.Errorf("agents: %s", b)
		}
		return err
	})
}

// pages are the routes that are for people.
var pages = []string{"/", "/builds", "/compare", "/help", "/projects", "/project?name=group/app", "/job?project=group/app&name=build-and-test", "/machines", "/live", "/static/x"}

// described lists what the server says that it serves: path and method.
func (s *central) described() map[string]string {
	s.t.Helper()
	b, err := s.view.get("/api/v1/openapi.json")
	if err != nil {
		s.t.Fatal(err)
	}
	var api struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(b, &api); err != nil {
		s.t.Fatal(err)
	}
	routes := map[string]string{}
	for path, methods := range api.Paths {
		method := http.MethodGet
		if methods["post"] != nil {
			method = http.MethodPost
		}
		routes[strings.NewReplacer("{key}", "gitlab/x/1").Replace(path)] = method
	}
	return routes
}

// roles asks every route of the binary without a token, with a wrong one, and
// with one of each role.
func (s *central) roles() {
	s.t.Helper()
	routes := s.described()
	if len(routes) < 15 {
		s.t.Fatalf("%d routes are described: %v", len(routes), routes)
	}
	for _, page := range pages {
		routes[page] = http.MethodGet
	}
	for path, method := range routes {
		// A server that asks no CI server has none of these, for nobody.
		if strings.HasPrefix(path, "/api/v1/work") || strings.HasPrefix(path, "/api/v1/hooks/") || strings.HasPrefix(path, "/api/v1/sections/") {
			if got := s.answer(method, path, s.reads); got != http.StatusNotFound {
				s.t.Errorf("%s %s without a CI server: %d, want 404", method, path, got)
			}
			continue
		}
		right, other := s.reads, s.pushing
		if method == http.MethodPost {
			right, other = other, right
		}
		for _, c := range []struct {
			name, token string
			open        bool
			want        []int // nil: anything but a refusal of the token
		}{
			{"no token", "", false, []int{401}}, {"a wrong token", "cmt_wrong", false, []int{401, 429}},
			{"the other role's token", other, false, []int{403}}, {"the right token", right, true, nil},
		} {
			got := s.answer(method, path, c.token)
			refused := got == 401 || got == 403 || got == 429
			open := path == "/healthz" || path == "/readyz" || path == "/version"
			switch {
			case (open || c.want == nil) && refused, !open && c.want != nil && got != c.want[0] && got != c.want[len(c.want)-1]:
				s.t.Errorf("%s %s with %s: %d, want %v", method, path, c.name, got, c.want)
			}
		}
	}
}

// keepsNoSecret looks for what was planted, and for tokens, in everything that
// the server writes, serves and says.
func (s *central) keepsNoSecret(a *agent, j *gitlabJob) {
	s.t.Helper()
	texts := map[string]string{"the server's log": s.log.String(), "the agent's log": a.log.String()}
	build := "/builds/" + j.Key()
	for _, path := range append([]string{build, build + "?as=json", build + "?as=text", build + "?as=markdown", "/trace/" + j.Key(), "/api/v1" + build, "/api/v1/traces/" + j.Key(),
		"/api/v1/builds", "/api/v1/agents", "/api/v1/running", "/api/v1/runners", "/api/v1/jobs", "/api/v1/stages", "/metrics", "/api/v1/names?kind=runner&part=", "/healthz", "/readyz", "/version"}, pages[:8]...) {
		b, err := s.view.get(path)
		if err != nil && path != "/compare" && !strings.Contains(path, "names") {
			s.t.Error(err)
		}
		texts[path] = string(b)
	}
	for _, dir := range []string{s.data(), a.data} {
		err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			info, err := e.Info()
			if err != nil || info.Mode().Perm()&0o077 != 0 {
				s.t.Errorf("%s has the mode %v (%v), want it private", path, info.Mode(), err)
			}
			b, err := os.ReadFile(path)
			texts[path] = string(b)
			return err
		})
		if err != nil && dir == a.data {
			s.t.Error(err)
		}
	}
	if s.database != "" {
		out, err := exec.Command("pg_dump", "--inserts", s.database).CombinedOutput()
		if err != nil {
			s.t.Errorf("pg_dump: %v: %s", err, out)
		}
		texts["the database"] = string(out)
	}
	b, err := os.ReadFile(s.tokens())
	if err != nil {
		s.t.Fatal(err)
	}
	texts["the file of tokens"] = string(b)
	for where, text := range texts {
		for _, secret := range []string{plantedSecret, secretOf(j), "PlantedSecret", "PlantedJobToken", s.pushing, s.reads} {
			if strings.Contains(text, secret) {
				s.t.Errorf("%s holds the secret %q", where, secret)
			}
		}
	}
	s.t.Logf("looked for secrets in %d texts", len(texts))
}
