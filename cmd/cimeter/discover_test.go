package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/testtools"
)

var fenced = regexp.MustCompile("(?ms)^```(sh|yaml|hcl)\n(.*?)^```$")

// Every block of docs/ephemeral-machines.md in its order: what is a file is
// written, what is a command is run, each prometheus.yml finds the machine.
func TestEphemeralMachines(t *testing.T) {
	text, err := os.ReadFile("../../docs/ephemeral-machines.md")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	var configs []string
	var commands []string
	for _, m := range fenced.FindAllSubmatch(text, -1) {
		block := w.here(string(m[2]))
		switch string(m[1]) {
		case "hcl":
			w.write("/etc/cimeter/consul-policy.hcl", block)
		case "yaml":
			name, _, ok := strings.Cut(strings.TrimPrefix(block, "# "), "\n")
			if !ok || !strings.HasPrefix(block, "# ") {
				t.Fatalf("no file is named at the head of\n%s", block)
			}
			w.write(strings.TrimPrefix(name, w.dir), block)
			if strings.HasSuffix(name, "prometheus.yml") {
				configs = append(configs, block)
			}
		case "sh":
			commands = append(commands, block)
		}
	}
	if len(configs) != 3 || len(commands) != 4 {
		t.Fatalf("%d files for Prometheus, %d blocks of commands: want 3 and 4", len(configs), len(commands))
	}
	server, agent, token, look := commands[0], commands[1], commands[2], commands[3]
	w.run(server, w.ports[0])
	w.run(agent, w.ports[1])
	w.run(token, "") // the agent finds it when it tries again
	w.retry(look)

	rules, err := os.ReadFile("../../deploy/prometheus/cimeter.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	w.write("/etc/prometheus/cimeter.rules.yml", string(rules))
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var all []*testtools.PrometheusServer
	for _, c := range configs {
		all = append(all, testtools.StartPrometheus(t, testtools.Path(t, testtools.Prometheus), strings.ReplaceAll(c, "15s", "1s")))
	}
	ours := func(p *testtools.PrometheusServer) (found []testtools.ScrapeTarget) {
		for _, target := range p.Targets(t) {
			if target.Labels["job"] == "cimeter" {
				found = append(found, target)
			}
		}
		return found
	}
	for i, p := range all {
		w.until(fmt.Sprintf("the machine is up in the Prometheus of step %d", i+3), func() bool {
			found := ours(p)
			return len(found) == 1 && found[0].Health == "up" && found[0].Labels["pool"] == "large" && found[0].Labels["instance"] == host
		})
	}
	w.until("the server is up in the Prometheus of step 3", func() bool {
		return slices.ContainsFunc(all[0].Targets(t), func(target testtools.ScrapeTarget) bool {
			return target.Labels["job"] == "cimeter-server" && target.Health == "up"
		})
	})
	// The machine ends as it should, and is forgotten by all three.
	w.end("agent")
	if held := w.consul.Services(t); len(held) != 0 {
		t.Errorf("consul still has %v", held)
	}
	for i, p := range all {
		w.until(fmt.Sprintf("the machine is forgotten by the Prometheus of step %d", i+3), func() bool { return p.Targets(t) != nil && len(ours(p)) == 0 })
	}
}

// world is a folder that stands for the file systems of the document's machines.
type world struct {
	t       *testing.T
	dir     string
	ports   [2]string // of server and agent
	consul  *testtools.ConsulAgent
	names   *strings.Replacer
	groups  map[string]int // process groups that run, by role
	outputs []*bytes.Buffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), consul: testtools.StartConsul(t), groups: map[string]int{}}
	for i := range w.ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		w.ports[i] = l.Addr().String()
	}
	w.names = strings.NewReplacer(
		"/etc/", w.dir+"/etc/", "/srv/", w.dir+"/srv/", "cimeter.example.com:9808", w.ports[0],
		"consul.example.com:8500", strings.TrimPrefix(w.consul.URL, "http://"))
	for _, dir := range []string{"/etc/cimeter", "/etc/prometheus", "/srv/cimeter", "/bin"} {
		if err := os.MkdirAll(w.dir+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(testtools.Path(t, testtools.Consul), w.dir+"/bin/consul"); err != nil {
		t.Fatal(err)
	}
	w.write("/etc/prometheus/consul-token", w.consul.Token)
	t.Cleanup(func() {
		for _, g := range w.groups {
			_ = syscall.Kill(-g, syscall.SIGKILL)
		}
		if t.Failed() {
			for _, b := range w.outputs {
				t.Logf("said:\n%s", b)
			}
		}
	})
	return w
}

func (w *world) here(block string) string { return w.names.Replace(block) }

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// run runs a block by a shell. What it puts into the background runs on, and is
// waited for until it answers at listen.
func (w *world) run(block, listen string) {
	w.t.Helper()
	// The shell waits for what it has started, so that ending its group ends all.
	cmd := exec.Command("bash", "-eu", "-c", "trap wait TERM\n"+block+"\ntouch \"$DONE\"\nwait || :")
	done := filepath.Join(w.t.TempDir(), "done")
	cmd.Env = append(os.Environ(), "PATH="+w.dir+"/bin:"+os.Getenv("PATH"), "DONE="+done, "CIMETER_LISTEN="+listen, "CIMETER_DATA="+w.t.TempDir(),
		"CIMETER_DOCKER=unix://"+w.dir+"/none.sock", "CONSUL_HTTP_ADDR="+w.consul.URL, "CONSUL_HTTP_TOKEN=")
	if listen == "" { // commands of who looks after Consul
		cmd.Env = append(cmd.Env, "CONSUL_HTTP_TOKEN="+w.consul.Token)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out := &bytes.Buffer{}
	w.outputs = append(w.outputs, out)
	log, err := os.CreateTemp(w.t.TempDir(), "log")
	if err != nil {
		w.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	role := "server"
	if strings.Contains(block, "cimeter agent") {
		role = "agent"
	}
	if listen != "" {
		w.groups[role] = cmd.Process.Pid
	}
	w.t.Cleanup(func() {
		b, _ := os.ReadFile(log.Name())
		out.Write(b)
		log.Close()
	})
	w.until("commands are done: "+block, func() bool {
		select {
		case err := <-ended:
			b, _ := os.ReadFile(log.Name())
			if err != nil || listen != "" {
				w.t.Fatalf("%v\n%s\n%s", err, block, b)
			}
			return true
		default:
		}
		if _, err := os.Stat(done); err != nil || listen == "" {
			return false
		}
		resp, err := http.Get("http://" + listen + "/healthz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// end ends what runs in a role as an init system does, and waits.
func (w *world) end(role string) {
	w.t.Helper()
	g := w.groups[role]
	if err := syscall.Kill(-g, syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	w.until(role+" ends", func() bool { return syscall.Kill(-g, 0) != nil })
	delete(w.groups, role)
}

// retry runs a block until it does well: what it looks for may be on its way.
func (w *world) retry(block string) {
	w.t.Helper()
	w.until("this does well:\n"+block, func() bool {
		return exec.Command("bash", "-eu", "-o", "pipefail", "-c", block).Run() == nil
	})
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); {
		if time.Now().After(end) {
			w.t.Fatalf("not within two minutes: %s", what)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
