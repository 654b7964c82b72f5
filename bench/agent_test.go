package bench_test

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/testdocker"
)

const (
	warmUp      = 15 * time.Second // before a steady state is measured
	window      = 30 * time.Second // of a steady state
	shortWindow = 20 * time.Second // of those that alternate
)

// Numbers of containers that the steady state is measured beside.
const few, some, many = 20, 100, 300

// BenchmarkAgent measures all that issue "the agent" bounds but what single
// packages measure for themselves, and prints it as one table. One daemon has
// the containers of all parts.
func BenchmarkAgent(b *testing.B) {
	if testing.Short() {
		b.Skip("a docker daemon is not for -short")
	}
	p := buildPrograms(b)
	root := makeRoot(b)
	s := &suite{programs: p, root: root, d: testdocker.Start(b, testdocker.Options{
		CgroupParent: root + "/docker", Files: map[string]string{"/usr/bin/burn": p.burn},
	})}
	s.fleet.d = s.d
	b.Run("ShortLived", s.shortLived)
	for _, n := range []int{few, some, many} {
		b.Run(fmt.Sprintf("N=%d", n), func(b *testing.B) { s.steady(b, n) })
	}
	b.Run("Daemon", s.daemon)
	b.Run("Scrape", s.scrape)
	b.Run("Allocations", s.allocations)
	s.table.print(machineLoad())
}

type suite struct {
	programs
	root  string // the cgroup that agents take for the root
	d     *testdocker.Daemon
	fleet fleet
	table table

	perRound   map[int]time.Duration // CPU time of a round by number of containers
	goroutines map[int]int
}

// steady measures an agent beside n containers in its steady state.
func (s *suite) steady(b *testing.B, n int) {
	s.fleet.grow(b, n)
	wait(3 * time.Second) // what starting them left to do
	a := s.start(b, s.agent)
	// The floor reads between the agent's rounds, so that neither reads what
	// the other has just brought into the CPU's caches.
	wait(450 * time.Millisecond)
	floor := startFloor(b, s.floor, s.fleet.files)
	wait(warmUp)
	begin := a.metrics()
	wait(2 * time.Second) // for the garbage of that
	rounds0, floor0 := floorRounds(floor)
	own0, floorOwn0, busy0 := a.cpu(), floor.cpu(), machineCPU(b)
	resident := 0
	began := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for time.Since(began) < window {
		<-tick.C
		resident = max(resident, a.status("VmRSS"))
	}
	own, floorOwn, busy := a.cpu()-own0, floor.cpu()-floorOwn0, machineCPU(b)-busy0
	took := time.Since(began)
	rounds1, floor1 := floorRounds(floor)
	end := a.metrics()
	threads := a.status("Threads")

	diff := func(name string) float64 { return value(b, end, name) - value(b, begin, name) }
	round := time.Duration(diff("cimeter_agent_round_cpu_seconds_total") / diff("cimeter_agent_rounds_total") * float64(time.Second))
	floorRound := (floor1 - floor0) / time.Duration(rounds1-rounds0)
	ratio, whole := float64(round)/float64(floorRound), float64(own)/float64(floorOwn)
	if got := int(value(b, end, "cimeter_agent_containers")); got != n {
		b.Errorf("the agent meters %d containers, want %d", got, n)
	}
	if s.perRound == nil {
		s.perRound, s.goroutines = map[int]time.Duration{}, map[int]int{}
	}
	s.perRound[n], s.goroutines[n] = round, a.goroutines()

	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ratio, "round-x-floor")
	b.ReportMetric(whole, "process-x-floor")
	b.ReportMetric(float64(round.Microseconds())/float64(n), "µs/container")
	b.ReportMetric(float64(resident)/1024, "MiB-resident")
	at := fmt.Sprintf(", %d containers", n)
	s.table.bound("CPU of a round"+at, 0.8, ratio, " x floor", fmt.Sprintf("%v of %v", round.Round(time.Microsecond), floorRound.Round(time.Microsecond)))
	s.table.bound("CPU of the process"+at, 1.5, whole, " x floor", fmt.Sprintf("%.2f of %.2f ms/s; machine %.0f %% busy",
		perSecond(own, took), perSecond(floorOwn, took), 100*busy.Seconds()/took.Seconds()/float64(runtime.NumCPU())))
	mib := float64(resident) / 1024
	switch n {
	case few:
		s.table.note("resident memory"+at, fmt.Sprintf("%.1f MiB", mib))
	case some:
		s.table.bound("resident memory"+at, 20, mib, " MiB", "")
	case many:
		s.table.bound("resident memory"+at, 25, mib, " MiB", "")
		s.table.bound("start beside"+at, 0.3, a.ready.Seconds(), " s CPU", fmt.Sprintf("%v when it metered", a.metering.Round(time.Millisecond)))
		s.linear()
	}
	s.table.note("goroutines, threads"+at, fmt.Sprintf("%d, %d", s.goroutines[n], threads))
}

// linear compares what each further container costs among many and among some.
func (s *suite) linear() {
	if s.perRound[few] == 0 || s.perRound[some] == 0 {
		return // only a part was run
	}
	low := float64(s.perRound[some]-s.perRound[few]) / (some - few)
	high := float64(s.perRound[many]-s.perRound[some]) / (many - some)
	s.table.bound("CPU of one container more, 300 to 100", 1.15, high/low, "", fmt.Sprintf("%.1f and %.1f µs a round", high/1e3, low/1e3))
	s.table.add("goroutines, 300 against 20 containers", "equal", fmt.Sprintf("%d and %d", s.goroutines[many], s.goroutines[few]),
		s.goroutines[many] == s.goroutines[few], "")
}

// daemon measures what dockerd and containerd do with an agent beside 300
// containers and without, in turn. Shims are not part of it.
func (s *suite) daemon(b *testing.B) {
	s.fleet.grow(b, many)
	pids := append(children(b, s.d.Pid(), "containerd"), s.d.Pid())
	if len(pids) != 2 {
		b.Fatalf("dockerd and its containerd: got processes %v", pids)
	}
	used := func() (sum time.Duration) {
		for _, pid := range pids {
			sum += cpu(b, pid)
		}
		return sum
	}
	measure := func() float64 {
		before, began := used(), time.Now()
		wait(shortWindow)
		return perSecond(used()-before, time.Since(began))
	}
	var on, off, starts []float64
	for range 3 {
		off = append(off, measure())
		before := used()
		a := s.start(b, s.agent)
		wait(5 * time.Second) // inspections
		starts = append(starts, float64((used()-before).Microseconds())/1e3)
		on = append(on, measure())
		a.end(syscall.SIGTERM)
		wait(time.Second)
	}
	spread := slices.Max(off) - slices.Min(off)
	extra := mean(on) - mean(off)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(mean(on), "ms/s-with")
	b.ReportMetric(mean(off), "ms/s-without")
	s.table.add("CPU of dockerd and containerd", "no more", fmt.Sprintf("%+.2f ms/s", extra), extra <= max(spread, 0.3),
		fmt.Sprintf("with an agent %.2f to %.2f, without %.2f to %.2f", slices.Min(on), slices.Max(on), slices.Min(off), slices.Max(off)))
	s.table.note("the same, once for a start beside 300", fmt.Sprintf("%.0f to %.0f ms (a list, an inspection each)", slices.Min(starts), slices.Max(starts)))
}

// scrape measures a scrape of /metrics with 300 containers' series.
func (s *suite) scrape(b *testing.B) {
	s.fleet.grow(b, many)
	a := s.start(b, s.agent)
	wait(8 * time.Second) // the containers' builds are known by then
	const scrapes = 20
	begin := a.metrics()
	before := a.cpu()
	var body string
	for range scrapes {
		body = a.metrics()
	}
	used := a.cpu() - before
	// Rounds that fell into it are none of a scrape's.
	used -= time.Duration((value(b, body, "cimeter_agent_round_cpu_seconds_total") - value(b, begin, "cimeter_agent_round_cpu_seconds_total")) * 1e9)
	series := 0
	for l := range strings.Lines(body) {
		if l[0] != '#' {
			series++
		}
	}
	ms := float64(used.Microseconds()) / 1e3 / scrapes
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms, "ms/scrape")
	b.ReportMetric(float64(len(body)), "B/scrape")
	s.table.note("a scrape, 300 builds of 300 projects", fmt.Sprintf("%.2f ms CPU, %d series, %.2f MB", ms, series, float64(len(body))/1e6))
	a.end(syscall.SIGTERM)
}

var probeLine = regexp.MustCompile(`^probe (\d+)$`)

// allocations counts what the whole agent allocates in a second in which it
// does nothing but one round.
func (s *suite) allocations(b *testing.B) {
	s.fleet.grow(b, many)
	a := s.start(b, s.probed)
	wait(warmUp)
	count := func() uint64 {
		a.signal(syscall.SIGUSR1)
		n, err := strconv.ParseUint(a.next(probeLine), 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var each []float64
	last := count()
	for range int(2 * window / time.Second) { // twice the interval of checkpoints
		<-tick.C
		n := count()
		each = append(each, float64(n-last))
		last = n
	}
	slices.Sort(each)
	median := each[len(each)/2]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median, "allocs/round")
	s.table.bound("allocations in a second of one round", 0, median, "", fmt.Sprintf("median; %.0f to %.0f with checkpoints, mean %.1f", each[0], each[len(each)-1], mean(each)))
	a.end(syscall.SIGTERM)
}

// wait lets time pass: here it is what is measured.
func wait(d time.Duration) { <-time.After(d) }

func perSecond(used, took time.Duration) float64 { return used.Seconds() / took.Seconds() * 1e3 }

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// machineCPU is how long the machine's CPUs have been busy, all together, in
// the ticks of /proc/stat (proc(5)).
func machineCPU(tb testing.TB) time.Duration {
	tb.Helper()
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		tb.Fatal(err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	var sum int64
	for i, f := range strings.Fields(line)[1:] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			tb.Fatalf("/proc/stat: %v", err)
		}
		if i != 3 && i != 4 && i < 8 { // idle, iowait; guests are in user
			sum += n
		}
	}
	const ticks = 100 // USER_HZ of every Linux
	return time.Duration(sum) * time.Second / ticks
}

// machineLoad is the machine's load average, for a reader to judge by.
func machineLoad() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err.Error()
	}
	f := strings.Fields(string(b))
	return fmt.Sprintf("%d CPUs, load %s", runtime.NumCPU(), strings.Join(f[:min(3, len(f))], " "))
}
