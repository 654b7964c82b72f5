package bench_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/testdocker"
	"github.com/cimeter/cimeter/internal/testtools"
)

// BenchmarkPeer measures cAdvisor and an agent in turn beside the same
// containers, and prints the figures of docs/comparison.md.
func BenchmarkPeer(b *testing.B) {
	if testing.Short() {
		b.Skip("a docker daemon is not for -short")
	}
	p := buildPrograms(b)
	root := makeRoot(b)
	s := &suite{programs: p, root: root, d: testdocker.Start(b, testdocker.Options{
		CgroupParent: root + "/docker", Files: map[string]string{"/usr/bin/burn": p.burn},
	})}
	s.fleet.d = s.d
	seen, captured := s.peerShort(b)
	s.table.note(fmt.Sprintf("cAdvisor, of %d short containers", shortContainers), fmt.Sprintf("%d seen, %.1f %% of their CPU", seen, captured))
	s.short(b, 1, "the agent")
	s.fleet.grow(b, some)
	peer := s.startPeer(b)
	theirs := s.cost(b, peer.process, peer.metrics)
	peer.end(syscall.SIGTERM)
	a := s.start(b, s.agent)
	ours := s.cost(b, a.process, a.metrics)
	a.end(syscall.SIGTERM)
	s.table.note(fmt.Sprintf("beside %d containers: CPU", some), fmt.Sprintf("cAdvisor %.1f ms/s, agent %.1f ms/s: %.0f times", theirs.cpu, ours.cpu, theirs.cpu/ours.cpu))
	s.table.note("what dockerd and containerd use meanwhile", fmt.Sprintf("cAdvisor %.1f ms/s, agent %.1f ms/s", theirs.engine, ours.engine))
	s.table.note("resident memory", fmt.Sprintf("cAdvisor %.0f MiB, agent %.0f MiB", theirs.resident, ours.resident))
	s.table.note("a scrape", fmt.Sprintf("cAdvisor %.0f ms CPU, %d series; agent %.2f ms, %d series", theirs.scrape, theirs.series, ours.scrape, ours.series))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(theirs.cpu/ours.cpu, "x-CPU")
	s.table.print(machineLoad())
}

// cost is what a program beside containers costs: CPU of it and of the engine in
// milliseconds a second, of a scrape in milliseconds; memory in MiB.
type cost struct {
	cpu, engine, resident, scrape float64
	series                        int
}

// cost measures p, which has just been started, after a warm-up.
func (s *suite) cost(b *testing.B, p *process, scrape func() string) (c cost) {
	b.Helper()
	engine := append(children(b, s.d.Pid(), "containerd"), s.d.Pid())
	used := func() (sum time.Duration) {
		for _, pid := range engine {
			sum += cpu(b, pid)
		}
		return sum
	}
	wait(warmUp)
	scrape()
	own, theirs, began := p.cpu(), used(), time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for time.Since(began) < window {
		<-tick.C
		c.resident = max(c.resident, float64(p.status("VmRSS"))/1024)
	}
	c.cpu, c.engine = perSecond(p.cpu()-own, time.Since(began)), perSecond(used()-theirs, time.Since(began))
	const scrapes = 5
	before, body := p.cpu(), ""
	for range scrapes {
		body = scrape()
	}
	c.scrape = float64((p.cpu() - before).Microseconds()) / 1e3 / scrapes
	for l := range strings.Lines(body) {
		if l[0] != '#' {
			c.series++
		}
	}
	return c
}

// peer is a process of cAdvisor.
type peer struct {
	*process
	address string
	client  *http.Client
}

var peerAddress = regexp.MustCompile(`^(127\.0\.0\.1:\d+)$`)

func (s *suite) startPeer(b *testing.B) *peer {
	b.Helper()
	cmd := s.d.Command(testtools.Path(b, testtools.CAdvisor), "-docker", s.d.Host(), "-docker_only", "-listen", "127.0.0.1:0")
	p := &peer{
		process: start(b, cmd, cmd.StdoutPipe),
		client:  &http.Client{Transport: &http.Transport{DialContext: s.d.Dial}, Timeout: patience},
	}
	p.address = p.next(peerAddress)
	return p
}

func (p *peer) fetch() (string, error) {
	resp, err := p.client.Get("http://" + p.address + "/metrics")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func (p *peer) metrics() string {
	p.b.Helper()
	body, err := p.fetch()
	if err != nil {
		p.b.Fatal(err)
	}
	return body
}

var peerCPU = regexp.MustCompile(`(?m)^container_cpu_usage_seconds_total\{.*id="[^"]*/([0-9a-f]{64})".*\} (\S+)`)

// peerShort runs short containers beside cAdvisor, which is scraped every second
// as a Prometheus could at best, and returns how many were seen to use CPU and the
// share in per cent of their CPU time that was.
func (s *suite) peerShort(b *testing.B) (seen int, captured float64) {
	b.Helper()
	p := s.startPeer(b)
	before, err := s.d.CPU()
	if err != nil {
		b.Fatal(err)
	}
	highest := map[string]float64{}
	scrape := func() {
		body, err := p.fetch()
		if err != nil {
			b.Errorf("scraping cAdvisor: %v", err)
		}
		for _, m := range peerCPU.FindAllStringSubmatch(body, -1) {
			if v, err := strconv.ParseFloat(m[2], 64); err == nil && v > 0 {
				highest[m[1]] = max(highest[m[1]], v)
			}
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var scraper sync.WaitGroup
	scraper.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				scrape()
			}
		}
	})
	var wg sync.WaitGroup
	next := make(chan int)
	for range runtime.NumCPU() {
		wg.Go(func() {
			for i := range next {
				burn := 0.04 + 0.24*float64(i)/shortContainers
				if exit, err := s.d.Run(ctx, testdocker.Spec{
					Name: fmt.Sprintf("short-%03d", i), Cmd: []string{"burn", fmt.Sprintf("cpu=%.3f", burn)},
				}); err != nil || exit.Code != 0 {
					b.Errorf("container %d: exit %d: %v", i, exit.Code, err)
				}
			}
		})
	}
	for i := range shortContainers {
		next <- i
	}
	close(next)
	wg.Wait()
	cancel()
	scraper.Wait()
	after, err := s.d.CPU()
	if err != nil {
		b.Fatal(err)
	}
	p.end(syscall.SIGTERM)
	sum := 0.0
	for _, v := range highest {
		sum += v
	}
	return len(highest), 100 * sum / (after - before).Seconds()
}
