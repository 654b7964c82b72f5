package e2e_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// counterWatch scrapes /metrics four times a second and remembers every
// counter that fell.
type counterWatch struct {
	stop chan struct{}
	wg   sync.WaitGroup

	mu      sync.Mutex
	last    map[string]float64
	fell    []string
	scrapes int
}

// watchCounters begins to watch the agent's counters; stopWatch reports.
func (a *agent) watchCounters() {
	w := &counterWatch{stop: make(chan struct{}), last: map[string]float64{}}
	a.watch = w
	w.wg.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-w.stop:
				return
			case <-tick.C:
			}
			b, err := a.get("/metrics")
			if err != nil {
				continue // a scrape may fail; a counter may not fall
			}
			w.read(string(b))
		}
	})
}

// stopWatch ends the watch and fails the test when a counter fell.
func (a *agent) stopWatch() {
	a.t.Helper()
	w := a.watch
	if w == nil {
		return
	}
	a.watch = nil
	close(w.stop)
	w.wg.Wait()
	if w.scrapes == 0 {
		a.t.Error("no scrape of /metrics succeeded")
	}
	for _, f := range w.fell {
		a.t.Errorf("a counter fell: %s", f)
	}
}

// read takes in one exposition.
func (w *counterWatch) read(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scrapes++
	kinds := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			if name, kind, ok := strings.Cut(rest, " "); ok {
				kinds[name] = kind
			}
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || strings.HasPrefix(line, "#") || !rises(kinds, line) {
			continue
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			continue
		}
		series := line[:at]
		if before, ok := w.last[series]; ok && v < before {
			w.fell = append(w.fell, fmt.Sprintf("%s from %v to %v", series, before, v))
		}
		w.last[series] = v
	}
	// A counter that goes away and comes back smaller fell as well: last keeps it.
}

// rises reports whether a line is a sample of a counter or of a histogram.
func rises(kinds map[string]string, line string) bool {
	name := line[:strings.IndexAny(line, "{ ")]
	if kinds[name] == "counter" || kinds[strings.TrimSuffix(name, "_total")] == "counter" {
		return true
	}
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if base, ok := strings.CutSuffix(name, suffix); ok && kinds[base] == "histogram" {
			return true
		}
	}
	return false
}

// metric sums the samples of a family whose labels contain all of the texts,
// such as `stage="step_script"`.
func (a *agent) metric(name string, labels ...string) float64 {
	a.t.Helper()
	b, err := a.get("/metrics")
	if err != nil {
		a.t.Fatal(err)
	}
	var sum float64
next:
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(line[:at], l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			a.t.Fatalf("metrics: %q: %v", line, err)
		}
		sum += v
	}
	return sum
}
