package export_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter/internal/export"
)

// An output that is sent to at a build's end has its counters within half a
// second, however long its interval is; builds that end together are sent
// together, and others are not sent to.
func TestExporter_sendsAtABuildsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soon, later := &receiver{}, &receiver{}
		f := run(t,
			export.Target{Name: "soon", Metrics: soon, Interval: 1000 * time.Hour, AtEnd: true},
			export.Target{Name: "later", Metrics: later, Interval: 1000 * time.Hour})
		records := f.x.After(&kept{})
		time.Sleep(1000 * time.Hour) // both have had their first turn
		synctest.Wait()
		if len(soon.calls) != 1 || len(later.calls) != 1 {
			t.Fatalf("%d and %d sends in the first interval, want 1", len(soon.calls), len(later.calls))
		}
		soon.calls, later.calls = nil, nil
		f.value.Store(42)
		at := time.Now()
		for i := range 50 {
			if err := records.Put(record(i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(soon.calls) != 1 || soon.calls[0].at.Sub(at) > 500*time.Millisecond || soon.calls[0].value != 42 {
			t.Errorf("%+v after the builds' end, want one send within half a second", soon.calls)
		}
		if len(later.calls) > 1 { // its interval may just have come
			t.Errorf("%d sends to the other output", len(later.calls))
		}
		f.stop()
		if got := len(soon.calls); got != 2 {
			t.Errorf("%d sends with the last one, want 2", got)
		}
	})
}
