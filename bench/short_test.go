package bench_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/testdocker"
	"github.com/cimeter/cimeter/internal/testtools"
)

// shortContainers is how many containers that live for a moment are run.
const shortContainers = 200

// shortLived measures how much of such containers' CPU time is captured, on a
// machine that runs nothing else and beside as many busy loops as it has CPUs.
func (s *suite) shortLived(b *testing.B) {
	s.short(b, 1, "otherwise idle machine")
	var loops []*exec.Cmd
	for range runtime.NumCPU() {
		cmd := exec.Command("busybox", "sh", "-c", "while :; do :; done")
		if err := testtools.StartTied(cmd); err != nil {
			b.Fatal(err)
		}
		loops = append(loops, cmd)
	}
	defer func() {
		for _, cmd := range loops {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		}
	}()
	s.short(b, 2, fmt.Sprintf("%d busy loops beside", len(loops)))
}

// short runs the containers as steps of one Drone build.
func (s *suite) short(b *testing.B, number int, where string) {
	a := s.start(b, s.agent)
	rnd := rand.New(rand.NewPCG(uint64(number), 0))
	before, err := s.d.CPU()
	if err != nil {
		b.Fatal(err)
	}
	var ids []string
	for i := range shortContainers {
		const p = "io.drone"
		id, err := s.d.Create(b.Context(), testdocker.Spec{
			Name: fmt.Sprintf("drone-ROWCTbx4pAgK4xR%02d%03d", number, i),
			Labels: map[string]string{
				p: "true", p + ".build.number": fmt.Sprint(number), p + ".repo.name": "short", p + ".repo.namespace": "acme",
				p + ".repo.slug": "acme/short", p + ".stage.name": "default", p + ".stage.number": "1",
				p + ".system.host": "drone.example.com", p + ".system.proto": "https", p + ".ttl": "1h0m0s",
				p + ".step.name": fmt.Sprintf("step-%03d", i), p + ".step.number": strconv.Itoa(i + 1),
			},
			Cmd: []string{"burn", fmt.Sprintf("cpu=%.3f", 0.04+0.24*rnd.Float64())},
		})
		if err != nil {
			b.Fatal(err)
		}
		ids = append(ids, id)
	}
	var wg sync.WaitGroup
	next := make(chan string)
	for range runtime.NumCPU() {
		wg.Go(func() {
			for id := range next {
				if exit, err := s.d.Play(b.Context(), id, ""); err != nil || exit.Code != 0 {
					b.Errorf("container %.12s: exit %d: %s: %v", id, exit.Code, exit.Output, err)
				}
			}
		})
	}
	for _, id := range ids {
		next <- id
	}
	close(next)
	wg.Wait()
	after, err := s.d.CPU()
	if err != nil {
		b.Fatal(err)
	}
	for _, id := range ids {
		if err := s.d.Remove(b.Context(), id); err != nil {
			b.Fatal(err)
		}
	}
	r := s.record(b, a, fmt.Sprintf("/api/v1/builds/drone/drone.example.com/acme/short/%d/1", number))
	captured := 100 * r.Usage.CPUSeconds.Total.Value / (after - before).Seconds()
	missed := shortContainers - len(r.Stages)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(captured, "%captured/"+strconv.Itoa(number))
	b.ReportMetric(float64(missed), "missed/"+strconv.Itoa(number))
	s.table.add(fmt.Sprintf("CPU captured of %d short containers", shortContainers), ">= 99.5 %", fmt.Sprintf("%.2f %%", captured),
		captured >= 99.5 && missed == 0, fmt.Sprintf("%d missed, %d gaps; %s", missed, len(r.Gaps), where))
	a.end(syscall.SIGTERM)
}

// record waits for a build's record.
func (s *suite) record(b *testing.B, a *agent, path string) cimeter.Record {
	b.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		body, err := a.get(path)
		if err == nil {
			var r cimeter.Record
			if err := json.Unmarshal(body, &r); err != nil {
				b.Fatalf("%s: %v", path, err)
			}
			return r
		}
		if time.Now().After(deadline) {
			b.Fatalf("no record: %v\n%s", err, a.text())
		}
	}
}
