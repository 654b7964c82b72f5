package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is the server under load.
type process struct {
	cmd     *exec.Cmd
	dir     string
	base    string // http://127.0.0.1:PORT
	address string
	token   string // of the role push
	log     bytes.Buffer
	logged  chan struct{} // closed when the log has ended; then log may be read
}

var listening = regexp.MustCompile(`msg="?listening"?.*\baddress="?([0-9.:]+)`)

// startServer starts a server with a store of its own and waits until it listens.
func startServer(ctx context.Context, program, database string) (_ *process, err error) {
	program, err = filepath.Abs(program)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "cimeter-load-")
	if err != nil {
		return nil, err
	}
	p := &process{dir: dir, logged: make(chan struct{})}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	tokens := filepath.Join(dir, "tokens")
	out, err := exec.CommandContext(ctx, program, "token", "--role", "push", "--name", "load", "--tokens", tokens).Output()
	if err != nil {
		return nil, fmt.Errorf("making a token by %s: %w", program, err)
	}
	p.token = strings.TrimSpace(string(out))
	p.cmd = exec.Command(program, "server", "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"), "--tokens", tokens)
	p.cmd.Env = append(os.Environ(), "CIMETER_DATABASE="+database)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	errout, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	address := make(chan string, 1)
	go func() {
		defer close(p.logged)
		for lines := bufio.NewScanner(errout); lines.Scan(); {
			if p.log.Len() < 1<<20 {
				fmt.Fprintln(&p.log, lines.Text())
			}
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				address <- m[1]
			}
		}
	}()
	select {
	case p.address = <-address:
	case <-p.logged:
		return nil, fmt.Errorf("the server ended: %w: %s", p.cmd.Wait(), p.log.Bytes())
	}
	p.base = "http://" + p.address
	return p, nil
}

// stop ends the server, which must leave with 0, and removes its store.
func (p *process) stop() error {
	defer os.RemoveAll(p.dir)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	late := time.AfterFunc(30*time.Second, func() { p.cmd.Process.Kill() })
	defer late.Stop()
	<-p.logged
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("the server after SIGTERM: %w: %s", err, p.log.Bytes())
	}
	return nil
}

// measured is what the server used.
type measured struct {
	cores    float64   // of CPU, on average
	resident []float64 // MiB, one a second
}

// ticks is the clock of /proc/PID/stat.
const ticks = 100

// measure watches the process for that long.
func (p *process) measure(ctx context.Context, d time.Duration) (measured, error) {
	var m measured
	begun := time.Now()
	before, _, err := p.usage()
	if err != nil {
		return m, err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for time.Since(begun) < d {
		select {
		case <-ctx.Done():
			return m, ctx.Err()
		case <-tick.C:
		}
		_, resident, err := p.usage()
		if err != nil {
			return m, err
		}
		m.resident = append(m.resident, resident)
	}
	after, _, err := p.usage()
	m.cores = (after - before) / time.Since(begun).Seconds()
	return m, err
}

// usage is the CPU time in seconds and the resident memory in MiB.
func (p *process) usage() (cpu, resident float64, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 22 {
		return 0, 0, errors.New("/proc/PID/stat: want 24 fields")
	}
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	pages, err := strconv.ParseFloat(f[21], 64)
	return (user + system) / ticks, pages * float64(os.Getpagesize()) / (1 << 20), err
}

// growth compares the median of the last third with that of the third before:
// the first third is the server's warming up. In MiB.
func (m measured) growth() (from, to float64) {
	n := len(m.resident) / 3
	median := func(v []float64) float64 { return slices.Sorted(slices.Values(v))[len(v)/2] }
	return median(m.resident[n : 2*n]), median(m.resident[2*n:])
}

func (m measured) report(t *table) {
	t.bound("CPU of the server", 1, m.cores, " cores", "")
	from, to := m.growth()
	t.note("memory of the server", fmt.Sprintf("%.1f MiB, at most %.1f", to, slices.Max(m.resident)))
	// A collector's heap breathes; what grows with time goes on doing so.
	t.bound("growth from the second to the last third", 0.05*from, to-from, " MiB", fmt.Sprintf("%+.1f%%", 100*(to/from-1)))
}

// keys pages through all builds of the server and counts each key.
func (p *process) keys() (map[string]int, error) {
	keys := map[string]int{}
	for next := ""; ; {
		resp, err := http.Get(p.base + "/api/v1/builds?limit=500&cursor=" + url.QueryEscape(next))
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("listing builds: %s: %w", resp.Status, err)
		}
		var page struct {
			Builds []struct {
				Key string `json:"key"`
			} `json:"builds"`
			Next string `json:"next"`
		}
		if err := json.Unmarshal(b, &page); err != nil {
			return nil, err
		}
		for _, r := range page.Builds {
			keys[r.Key]++
		}
		if next = page.Next; next == "" {
			return keys, nil
		}
	}
}
