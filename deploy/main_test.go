package deploy_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter/deploy"
	"github.com/cimeter/cimeter/internal/testdocker"
)

const root = ".." // of the module

// patience bounds every wait for something that must come.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := folder(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// folder holds what is built once for all tests.
var folder = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "cimeter-deploy-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	return dir, err
})

// binFolder names a folder with a ready cimeter, as in e2e.
const binFolder = "CIMETER_TEST_BIN"

var built = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(binFolder); dir != "" {
		return filepath.Join(dir, "cimeter"), nil
	}
	dir, err := folder()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "cimeter")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "./cmd/cimeter")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building cimeter: %w\n%s", err, out)
	}
	return path, nil
})

// program is the path of cimeter.
func program(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// role is the role of that name.
func role(t *testing.T, name string) deploy.Role {
	t.Helper()
	i := slices.IndexFunc(deploy.Roles(), func(r deploy.Role) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("no role %s", name)
	}
	return deploy.Roles()[i]
}

// require fails the test where a program is missing.
func require(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("%s is not installed: scripts/setup.sh installs it", name)
		}
	}
}

// output runs a command that must end with 0 and returns what it says on both
// outputs.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, b)
	}
	return string(b)
}

// write writes a file with its folders.
func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until what holds.
func eventually(t *testing.T, what string, holds func() error) {
	t.Helper()
	end := time.Now().Add(patience)
	for {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// web asks at an address of the daemon's network.
func web(d *testdocker.Daemon) *http.Client {
	dial := new(net.Dialer).DialContext
	if d != nil {
		dial = func(ctx context.Context, network, addr string) (net.Conn, error) { return d.Dial(ctx, network, addr) }
	}
	return &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
}

// playJob plays a job as GitLab Runner starts it: one container that gets its
// script on standard input. It burns CPU time and writes a file.
func playJob(t *testing.T, d *testdocker.Daemon, number int) (key string) {
	t.Helper()
	const p = "com.gitlab.gitlab-runner."
	url := fmt.Sprintf("https://gitlab.example.com/group/app/-/jobs/%d", number)
	id, err := d.Create(t.Context(), testdocker.Spec{
		Name: fmt.Sprintf("runner-abcdefgh-project-42-concurrent-0-%016x-build", number), Stdin: true, Cmd: []string{"sh"},
		Labels: map[string]string{
			p + "managed": "true", p + "type": "build", p + "job.id": fmt.Sprint(number), p + "job.ref": "main", p + "job.url": url,
			p + "job.sha": strings.Repeat("7e", 20), p + "pipeline.id": "991", p + "project.id": "42", p + "runner.id": "abcdefgh", p + "runner.local_id": "0",
		},
		Env: []string{
			"CI=true", "GITLAB_CI=true", "CI_SERVER_URL=https://gitlab.example.com", fmt.Sprintf("CI_JOB_ID=%d", number), "CI_JOB_NAME=test",
			"CI_JOB_URL=" + url, "CI_PROJECT_PATH=group/app", "CI_COMMIT_REF_NAME=main",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	exit, err := d.Play(t.Context(), id, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done\n")
	if err != nil || exit.Code != 0 || exit.Output != "done" {
		t.Fatalf("the job ended with %+v: %v", exit, err)
	}
	if err := d.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("gitlab/gitlab.example.com/%d", number)
}
