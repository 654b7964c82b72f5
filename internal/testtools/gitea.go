package testtools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// GiteaServer is a Gitea with Actions and one user, an administrator.
type GiteaServer struct {
	*Process
	URL   string
	User  string
	Token string // of the user, for everything
}

// StartGitea runs a Gitea with a database of its own and waits until it answers.
func StartGitea(t testing.TB) *GiteaServer {
	t.Helper()
	bin := Path(t, Gitea)
	dir := t.TempDir()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	static := giteaFiles(t)
	port := freePorts(t, 1)[0]
	g := &GiteaServer{URL: "http://127.0.0.1:" + port, User: "admin1"}
	ini := filepath.Join(dir, "app.ini")
	config := fmt.Sprintf(`RUN_USER = %s
WORK_PATH = %s
I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = %s
ROOT_URL = %s/
DISABLE_SSH = true
OFFLINE_MODE = true
STATIC_ROOT_PATH = %s
[database]
DB_TYPE = sqlite3
PATH = %s
[security]
INSTALL_LOCK = true
SECRET_KEY = only-for-tests
[actions]
ENABLED = true
[webhook]
ALLOWED_HOST_LIST = loopback
[log]
LEVEL = warn
[git.config]
gc.auto = 0
`, me.Username, dir, port, g.URL, static, filepath.Join(dir, "gitea.db"))
	if err := os.WriteFile(ini, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), bin, append([]string{"-c", ini}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+dir, "GITEA_WORK_DIR="+dir)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("gitea %s: %v\n%s%s", args[0], err, out, errs.Bytes())
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n") // warnings go before what was asked for
		return lines[len(lines)-1]
	}
	run("migrate")
	run("admin", "user", "create", "--username", g.User, "--password", "only-for-tests-1", "--email", "a@example.com", "--admin", "--must-change-password=false")
	g.Token = run("admin", "user", "generate-access-token", "--username", g.User, "--token-name", "t", "--scopes", "all", "--raw")
	t.Setenv("HOME", dir) // git's settings
	g.Process = Run(t, bin, "-c", ini, "web")
	for end := time.Now().Add(time.Minute); ; {
		if resp, err := http.Get(g.URL + "/api/v1/version"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return g
			}
		}
		select {
		case <-g.Done():
			t.Fatalf("gitea ended:\n%s", g.Output())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatalf("gitea does not answer:\n%s", g.Output())
		}
	}
}

// giteaFiles is the folder of Gitea's templates and options: its module's.
func giteaFiles(t testing.TB) string {
	t.Helper()
	source, err := moduleFolder(t.Context(), "gitea")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "code.gitea.io/gitea")
	cmd.Dir, cmd.Env = source, append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	var module struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &module)
	}
	if err != nil || module.Dir == "" {
		t.Fatalf("find Gitea's files: %v\n%s", err, out)
	}
	return module.Dir
}

// Ask puts a request to the API below /api/v1 and decodes a good answer.
func (g *GiteaServer) Ask(t testing.TB, method, path string, body, into any) {
	t.Helper()
	g.post(t, method, g.URL+"/api/v1"+path, http.Header{"Authorization": {"token " + g.Token}}, body, into)
}

func (g *GiteaServer) post(t testing.TB, method, url string, header http.Header, body, into any) {
	t.Helper()
	var b []byte
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header.Clone()
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode < 200 || resp.StatusCode > 299 {
		t.Fatalf("%s %s: %d, %v: %.500s", method, url, resp.StatusCode, err, answer)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(answer, into); err != nil {
		t.Fatalf("%s %s: %v: %.500s", method, url, err, answer)
	}
}

// GiteaRunner is a runner of Gitea's Actions that a test plays.
type GiteaRunner struct {
	server *GiteaServer
	header http.Header
}

// Runner registers a runner.
func (g *GiteaServer) Runner(t testing.TB, name string, labels ...string) *GiteaRunner {
	t.Helper()
	var token struct{ Token string }
	g.Ask(t, http.MethodPost, "/admin/actions/runners/registration-token", nil, &token)
	var answer struct {
		Runner struct{ UUID, Token string }
	}
	r := &GiteaRunner{server: g, header: http.Header{}}
	r.call(t, "Register", map[string]any{"name": name, "token": token.Token, "version": "v0", "labels": labels}, &answer)
	r.header.Set("X-Runner-Uuid", answer.Runner.UUID)
	r.header.Set("X-Runner-Token", answer.Runner.Token)
	r.call(t, "Declare", map[string]any{"version": "v0", "labels": labels}, nil)
	return r
}

// call speaks the runner's protocol, Connect with JSON.
func (r *GiteaRunner) call(t testing.TB, method string, body, into any) {
	t.Helper()
	r.server.post(t, http.MethodPost, r.server.URL+"/api/actions/runner.v1.RunnerService/"+method, r.header, body, into)
}

// Take takes a job and returns the id of its task, decimal.
func (r *GiteaRunner) Take(t testing.TB) (task string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		var answer struct{ Task struct{ ID string } }
		r.call(t, "FetchTask", map[string]any{"tasksVersion": "0"}, &answer)
		if answer.Task.ID != "" {
			return answer.Task.ID
		}
		if time.Now().After(end) {
			t.Fatal("no job for the runner within a minute")
		}
	}
}

// Begin says that the task runs, and End how it ended: RESULT_SUCCESS.
func (r *GiteaRunner) Begin(t testing.TB, task string) {
	t.Helper()
	r.call(t, "UpdateTask", map[string]any{"state": map[string]any{"id": task, "startedAt": time.Now().UTC().Format(time.RFC3339)}}, nil)
}

// End says how the task ended: RESULT_SUCCESS, RESULT_FAILURE.
func (r *GiteaRunner) End(t testing.TB, task, result string) {
	t.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	r.call(t, "UpdateTask", map[string]any{"state": map[string]any{"id": task, "result": result, "startedAt": now, "stoppedAt": now}}, nil)
}
