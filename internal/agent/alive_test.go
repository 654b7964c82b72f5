package agent

import (
	"sync/atomic"
	"testing"
	"time"
)

// The meter tells that it is alive from its start on, more often than it samples where
// that is asked, and not while it is stuck.
func TestMeter_alive(t *testing.T) {
	var told atomic.Int64
	o := options(nil, newShelf())
	o.Engines = nil
	o.Interval, o.AliveEvery = time.Hour, 5*time.Millisecond
	o.Alive = func(time.Time) { told.Add(1) }
	a, _ := start(t, o)
	within(t, "it is alive", func() bool { return told.Load() > 5 })
	stuck := make(chan int64)
	a.meter.post(func() {
		before := told.Load()
		time.Sleep(20 * o.AliveEvery) // what it is stuck in
		stuck <- told.Load() - before
	})
	if n := <-stuck; n != 0 {
		t.Errorf("told %d times while it was stuck", n)
	}
	before := told.Load()
	within(t, "it is alive again", func() bool { return told.Load() > before })
}
