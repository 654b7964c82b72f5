package deploy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/deploy"
	"github.com/cimeter/cimeter/internal/testdocker"
)

// exposure is the most that systemd-analyze security may find, of 10.
const exposure = 2.5

// systemd takes every line of the units, finds little exposed, and what each
// right is for stands beside it.
func TestUnits(t *testing.T) {
	require(t, "systemd-analyze")
	for _, r := range deploy.Roles() {
		t.Run(r.Name, func(t *testing.T) {
			// There is no program where the unit has it. An unknown key is a line
			// on an output and exit code 0.
			path := filepath.Join(t.TempDir(), r.Unit.Path)
			write(t, path, strings.Replace(r.Unit.Text, "ExecStart="+deploy.Program, "ExecStart=/bin/true", 1), 0o644)
			if out := output(t, exec.Command("systemd-analyze", "verify", path)); out != "" {
				t.Errorf("systemd-analyze verify: %s", out)
			}
			got := exposed(t, path)
			if got > exposure {
				t.Errorf("exposure %v: want at most %v", got, exposure)
			}
			if stated := fmt.Sprintf("%.1f", got); !strings.Contains(readFile(t, "../docs/install.md"), "| "+stated+" |") {
				t.Errorf("docs/install.md does not tell the exposure %s", stated)
			}
			u := parseUnit(t, r.Unit.Text)
			if u.last("User") != r.User || u.last("Group") != r.User || "/var/lib/"+u.last("StateDirectory") != r.Home {
				t.Errorf("user %s, group %s, state %s: want %s and %s", u.last("User"), u.last("Group"), u.last("StateDirectory"), r.User, r.Home)
			}
			if want := deploy.Program + " " + r.Name + " --config " + r.Config.Path; u.last("ExecStart") != want {
				t.Errorf("ExecStart=%s: want %s", u.last("ExecStart"), want)
			}
			out := output(t, exec.Command(program(t), "check", "--config", configFile(t, r)))
			if !strings.HasPrefix(out, "configuration  ok") {
				t.Errorf("cimeter check: %s", out)
			}
		})
	}
}

func configFile(t *testing.T, r deploy.Role) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(r.Config.Path))
	write(t, path, r.Config.Text, 0o644)
	return path
}

// The ids of the units' users here: nobody else has them.
const agentUser, serverUser, dockerGroup = 64997, 64996, 64998

// The agent meters a real job with the rights of its unit and no other, and
// calls nothing that the unit's filter refuses.
func TestAgentUnit(t *testing.T) {
	d := testdocker.Start(t, testdocker.Options{})
	socket := strings.TrimPrefix(d.Host(), "unix://")
	if err := os.Chown(socket, 0, dockerGroup); err != nil {
		t.Fatal(err)
	}
	r := role(t, "agent")
	c := newCell(t, agentUser, strconv.Itoa(dockerGroup))
	// The daemon's folder is in /tmp, which the unit does not see.
	at := filepath.Join(c.dir, "docker.sock")
	write(t, at, "", 0o644)
	output(t, exec.Command("mount", "--bind", socket, at))
	t.Cleanup(func() { output(t, exec.Command("umount", at)) })

	p := start(t, c, d, r, "--docker", "unix://"+at)
	p.confined(t, parseUnit(t, r.Unit.Text))
	eventually(t, "the agent is ready", p.ready)
	key := playJob(t, d, 4711)
	var record struct {
		Usage struct {
			CPU    struct{ Total float64 } `json:"cpu_seconds"`
			Memory *struct{}               `json:"memory_bytes"`
		}
	}
	eventually(t, "the record of "+key, func() error { return p.getJSON("/api/v1/builds/"+key, &record) })
	if record.Usage.CPU.Total <= 0 || record.Usage.Memory == nil {
		t.Errorf("usage %+v: want CPU time and memory", record.Usage)
	}
	if strings.Contains(p.log(), "metering at normal priority") {
		t.Error("the agent does not have the priority that the unit gives it")
	}
	p.stop(t)
	p.allowed(t, parseUnit(t, r.Unit.Text))
}

// The server takes and shows a record with the rights of its unit and no other.
func TestServerUnit(t *testing.T) {
	r := role(t, "server")
	c := newCell(t, serverUser, "")
	tokens := filepath.Join(c.dir, "tokens")
	token := strings.TrimSpace(output(t, exec.Command(program(t), "token", "--role", "push", "--name", "agents", "--tokens", tokens)))
	if err := os.Chown(tokens, 0, serverUser); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tokens, 0o640); err != nil {
		t.Fatal(err)
	}
	p := start(t, c, nil, r, "--tokens", tokens)
	p.confined(t, parseUnit(t, r.Unit.Text))

	build := filepath.Join(t.TempDir(), "build.json")
	output(t, exec.Command(program(t), "run", "--project", "group/app", "--json", build, "--", "true"))
	push := exec.Command(program(t), "push", "--server", "http://"+p.address, build)
	push.Env = append(os.Environ(), "CIMETER_TOKEN="+token)
	output(t, push)
	var list struct{ Builds []struct{ Project string } }
	if err := p.getJSON("/api/v1/builds", &list); err != nil || len(list.Builds) != 1 || list.Builds[0].Project != "group/app" {
		t.Errorf("builds %+v, %v: want the one that was pushed", list, err)
	}
	p.stop(t)
	p.allowed(t, parseUnit(t, r.Unit.Text))
}

// confinedProcess is a unit's program in its cell.
type confinedProcess struct {
	cell    *cell
	client  *http.Client
	cmd     *exec.Cmd
	address string

	mu    sync.Mutex
	lines bytes.Buffer
	done  chan struct{}
}

var listening = regexp.MustCompile(`msg="?listening"?.*\baddress="?([0-9.:\[\]a-f]+)`)

// start starts what the unit starts and waits until it listens. What a test has
// elsewhere is given by flags.
func start(t *testing.T, c *cell, d *testdocker.Daemon, r deploy.Role, flags ...string) *confinedProcess {
	t.Helper()
	bin, config := filepath.Join(c.dir, "cimeter"), filepath.Join(c.dir, "config.yaml")
	output(t, exec.Command("install", "-m", "0755", program(t), bin))
	// As installed, but for the time that a build stays open.
	write(t, config, strings.Replace(r.Config.Text, "\nagent:\n", "\nagent:\n  grace: 1s\n"+c.agent, 1), 0o644)
	line := append([]string{bin, r.Name, "--config", config, "--data", c.state, "--listen", "127.0.0.1:0"}, flags...)
	line = c.confine(t, parseUnit(t, r.Unit.Text), line...)
	p := &confinedProcess{cell: c, client: web(d), cmd: exec.Command(line[0], line[1:]...), done: make(chan struct{})}
	if d != nil {
		p.cmd = d.Command(line[0], line[1:]...)
	}
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found := make(chan string, 1)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.mu.Lock()
			fmt.Fprintln(&p.lines, s.Text())
			p.mu.Unlock()
			if m := listening.FindStringSubmatch(s.Text()); m != nil {
				found <- m[1]
			}
		}
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s said:\n%s", r.Name, p.log())
		}
	})
	select {
	case p.address = <-found:
	case <-p.done:
		t.Fatalf("%s ended before it listened:\n%s", r.Name, p.log())
	case <-time.After(patience):
		t.Fatalf("%s does not listen:\n%s", r.Name, p.log())
	}
	return p
}

func (p *confinedProcess) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines.String()
}

// ready returns an error before the agent meters.
func (p *confinedProcess) ready() error {
	resp, err := p.client.Get("http://" + p.address + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /readyz: %s", resp.Status)
	}
	return nil
}

func (p *confinedProcess) getJSON(path string, v any) error {
	resp, err := p.client.Get("http://" + p.address + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %s", path, resp.Status, b)
	}
	return json.Unmarshal(b, v)
}

// stop ends it as systemd does; it must leave with 0.
func (p *confinedProcess) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("it does not end after SIGTERM:\n%s", p.log())
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0", code)
	}
}

// capabilities are the bits of what a unit names.
func capabilities(t *testing.T, names string) (set uint64) {
	t.Helper()
	for name := range strings.FieldsSeq(names) {
		bit, ok := map[string]uint{"CAP_DAC_READ_SEARCH": 2, "CAP_NET_ADMIN": 12, "CAP_SYS_PTRACE": 19}[name]
		if !ok {
			t.Fatalf("the unit gives %s, which no test knows", name)
		}
		set |= 1 << bit
	}
	return set
}

// confined fails the test when the process has more than the unit gives it.
func (p *confinedProcess) confined(t *testing.T, u unit) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	status := readFile(t, proc+"status")
	set := fmt.Sprintf("%016x", capabilities(t, u.last("AmbientCapabilities")))
	for _, want := range []string{`CapEff:\t` + set, `CapBnd:\t` + set, `CapPrm:\t` + set, `CapAmb:\t` + set, `NoNewPrivs:\t1`, fmt.Sprintf(`Uid:\t%d\t%[1]d\t%[1]d\t%[1]d`, p.cell.uid)} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(status) {
			t.Errorf("status has no line %s:\n%s", want, status)
		}
	}
	if limits := readFile(t, proc+"limits"); !regexp.MustCompile(`Max open files +` + u.last("LimitNOFILE") + ` +` + u.last("LimitNOFILE") + ` `).MatchString(limits) {
		t.Errorf("limits:\n%swant %s open files", limits, u.last("LimitNOFILE"))
	}
	private := []string{p.cell.state, filepath.Dir(p.cell.trace), "/tmp", "/var/tmp", "/root", "/home", "/proc", "/dev"}
	// What is mounted below /tmp lies under the unit's own.
	for line := range strings.Lines(readFile(t, proc+"mountinfo")) {
		f := strings.Fields(line)
		if !slices.Contains(private, f[4]) && !strings.HasPrefix(f[4], "/dev/") && !strings.HasPrefix(f[4], "/tmp/") && !slices.Contains(strings.Split(f[5], ","), "ro") {
			t.Errorf("%s can be written: %s", f[4], line)
		}
	}
	// The limits of memory and threads are on its cgroup, and it is in there.
	if !strings.Contains(readFile(t, proc+"cgroup"), p.cell.cgroup+"\n") {
		t.Errorf("it is not in %s", p.cell.cgroup)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	call    = regexp.MustCompile(`^\d+ +(?:<\.\.\. )?([a-z0-9_]+)(?:\(| resumed)`)
	family  = regexp.MustCompile(`socket(?:pair)?\((AF_[A-Z0-9]+)`)
	execute = regexp.MustCompile(`(?:mprotect|pkey_mprotect)\(.*PROT_EXEC|mmap\(.*PROT_WRITE\|PROT_EXEC`)
	newns   = regexp.MustCompile(`clone3?\(.*CLONE_NEW`)
)

// allowed fails the test when the program made a system call that the unit
// refuses.
func (p *confinedProcess) allowed(t *testing.T, u unit) {
	t.Helper()
	filter := syscalls(t, u["SystemCallFilter"])
	families := strings.Fields(u.last("RestrictAddressFamilies"))
	seen, started := map[string]bool{}, false
	for line := range strings.Lines(readFile(t, p.cell.trace)) {
		// What comes before is systemd's part.
		if !started {
			started = strings.Contains(line, `execve("`+filepath.Join(p.cell.dir, "cimeter")+`"`)
			continue
		}
		m := call.FindStringSubmatch(line)
		if m == nil {
			continue // a signal, an exit
		}
		if !seen[m[1]] && !filter[m[1]] {
			t.Errorf("the unit refuses %s", line)
		}
		seen[m[1]] = true
		if m := family.FindStringSubmatch(line); m != nil && !slices.Contains(families, m[1]) {
			t.Errorf("the unit refuses %s", line)
		}
		if execute.MatchString(line) || newns.MatchString(line) {
			t.Errorf("the unit refuses %s", line)
		}
	}
	if len(seen) < 20 {
		t.Errorf("%d different system calls seen: want those of a whole run", len(seen))
	}
}

// syscalls are what the unit's filter lets through, sets of systemd taken apart.
func syscalls(t *testing.T, lines []string) map[string]bool {
	t.Helper()
	filter := map[string]bool{}
	var set func(name string, to bool)
	set = func(name string, to bool) {
		if !strings.HasPrefix(name, "@") {
			if to {
				filter[name] = true
			} else {
				delete(filter, name)
			}
			return
		}
		for line := range strings.Lines(output(t, exec.Command("systemd-analyze", "--no-pager", "syscall-filter", name))) {
			if line = strings.TrimSpace(line); line != "" && line != name && line[0] != '#' {
				set(line, to)
			}
		}
	}
	set("@default", true) // is always let through
	for _, line := range lines {
		names, without := strings.CutPrefix(line, "~")
		for name := range strings.FieldsSeq(names) {
			set(name, !without)
		}
	}
	return filter
}
