package bench_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/testdocker"
)

// The machine that BenchmarkProcesses measures on: pods' containers with their
// processes, beside a runner with builds that have none.
const (
	podContainers = 300
	inContainer   = 10
	shellBuilds   = 20
)

// looks is after how long the agent has looked a second time at each process that was
// there before it: from then on it looks at new ones.
const looks = 30 * time.Second

// BenchmarkProcesses measures what an agent costs beside 300 containers with
// 3,000 processes, of which a tenth works a little every 2 s, and a runner with 20
// builds of plain processes: with process events, by looking, and without.
func BenchmarkProcesses(b *testing.B) {
	if testing.Short() {
		b.Skip("3,000 processes are not for -short")
	}
	p := buildPrograms(b)
	root := makeRoot(b)
	engine := testdocker.NewEngine(b)
	c := &crowd{b: b, root: root, engine: []string{"--docker", engine.Host()}}
	b.Cleanup(c.end)
	for i := range podContainers {
		c.container(engine, i)
	}
	var t table
	for _, part := range []struct {
		mode   string
		runner bool
	}{{"off", false}, {"auto", false}, {"auto", true}, {"scan", true}} {
		name := part.mode
		if part.runner {
			name += " with builds"
		}
		b.Run(name, func(b *testing.B) {
			if part.runner {
				defer c.runner(b)()
			}
			c.measure(b, &t, p.agent, part.mode, "processes "+name)
		})
	}
	t.print(machineLoad())
}

// measure prints what an agent takes of a core and of memory beside what runs.
func (c *crowd) measure(b *testing.B, t *table, program, mode, name string) {
	b.Helper()
	a := c.agent(b, program, mode)
	wait(warmUp + looks)
	used, began, resident := a.cpu(), time.Now(), 0
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for time.Since(began) < window {
		<-tick.C
		resident = max(resident, a.status("VmRSS"))
	}
	share := 100 * (a.cpu() - used).Seconds() / time.Since(began).Seconds()
	page := a.metrics()
	detail := fmt.Sprintf("%.0f containers", value(b, page, "cimeter_agent_containers"))
	if mode != "off" {
		detail += fmt.Sprintf(", %.0f processes followed, %.0f events a second",
			value(b, page, "cimeter_agent_processes"), value(b, page, "cimeter_agent_process_events_total")/a.age().Seconds())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(share, "%-of-a-core")
	b.ReportMetric(float64(resident)/1024, "MiB-resident")
	t.bound("CPU of the process, "+name, 1, share, " % of a core", detail)
	t.bound("resident memory, "+name, 40, float64(resident)/1024, " MiB", "")
	a.end(syscall.SIGTERM)
}

// crowd is what runs on the machine.
type crowd struct {
	b      *testing.B
	root   string
	engine []string // the agent's flags that name it
	rules  string   // lines of the agent's settings
	groups []*exec.Cmd
	paths  []string // of cgroups, each after the one it is in
}

// begin starts a shell in a process group of its own.
func (c *crowd) begin(tb testing.TB, script string, args ...string) *exec.Cmd {
	tb.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", script}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	return cmd
}

func kill(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait() // killed
}

func (c *crowd) end() {
	for _, g := range c.groups {
		kill(g)
	}
	for _, path := range slices.Backward(c.paths) {
		if err := testdocker.RemoveCgroup(path); err != nil {
			c.b.Error(err)
		}
	}
}

// crowded is a script of ten processes of which one works.
var crowded = fmt.Sprintf("n=0; while [ $n -lt %d ]; do sleep 100000 & n=$((n+1)); done\n", inContainer-1) + work

// container starts a container of a build of its own with ten processes.
func (c *crowd) container(engine *testdocker.Engine, i int) {
	c.b.Helper()
	id := fmt.Sprintf("%064x", i+1)
	files := c.cgroup(c.root + "/" + id)
	box := &testdocker.Box{ID: id, Name: fmt.Sprintf("drone-%020d", i), Labels: map[string]string{
		"io.drone": "true", "io.drone.repo.slug": fmt.Sprintf("acme/app-%d", i), "io.drone.build.number": "1", "io.drone.stage.number": "1",
		"io.drone.stage.name": "default", "io.drone.step.name": "test", "io.drone.system.host": "drone.example.com",
	}}
	engine.Create(box)
	cmd := c.begin(c.b, join(files)+crowded)
	c.groups = append(c.groups, cmd)
	engine.Start(box, cmd.Process.Pid)
}

// runner starts a runner with builds that run until it is ended.
func (c *crowd) runner(b *testing.B) (end func()) {
	dir := b.TempDir()
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(dir, "gitlab-runner")
	if err := os.WriteFile(path, shell, 0o755); err != nil {
		b.Fatal(err)
	}
	var script strings.Builder
	for i := range shellBuilds {
		fmt.Fprintf(&script, "env GITLAB_CI=true CI_JOB_ID=%d CI_SERVER_URL=https://gitlab.example.com CI_PROJECT_PATH=acme/shell-%d sh -c '%s' &\n",
			os.Getpid()*100+i, i, work)
	}
	cmd := c.begin(b, `exec "$0" -c "$1"`, path, script.String()+"wait")
	return func() { kill(cmd) }
}

// timedAgent is an agent with the time of its start.
type timedAgent struct {
	*agent
	began time.Time
}

func (a *timedAgent) age() time.Duration { return time.Since(a.began) }

// agent starts an agent that meters the crowd and nothing else in cgroups.
func (c *crowd) agent(b *testing.B, program, mode string) *timedAgent {
	b.Helper()
	dir := b.TempDir()
	root, config := filepath.Join(dir, "cgroup"), filepath.Join(dir, "cimeter.yml")
	if err := os.WriteFile(config, []byte("agent:\n  processes: "+mode+"\n  cgroup_root: "+root+"\n"+c.rules), 0o600); err != nil {
		b.Fatal(err)
	}
	script, err := mounts(c.root, root)
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-ec", script + `exec "$@"`, "sh",
		program, "agent", "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"), "--config", config}, c.engine...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	a := &agent{process: start(b, cmd, cmd.StderrPipe), client: &http.Client{Timeout: patience}}
	a.address = a.next(listening)
	a.next(metering)
	return &timedAgent{agent: a, began: time.Now()}
}
