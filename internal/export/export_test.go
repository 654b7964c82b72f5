package export_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/export"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

// receiver is an output that does what a test says.
type receiver struct {
	mu     sync.Mutex
	calls  []call
	answer func(ctx context.Context, n int) (series.Sent, error) // n-th call; nil takes all
	kept   int
	closed bool
}

type call struct {
	at       time.Time // of the call
	families int
	value    float64 // of the first point
}

// Send implements export.Output.
func (r *receiver) Send(ctx context.Context, at time.Time, families []series.Family) (series.Sent, error) {
	c := call{at: time.Now(), families: len(families)}
	points := 0
	for _, f := range families {
		points += len(f.Points)
		c.value = f.Points[0].Value
	}
	r.mu.Lock()
	r.calls = append(r.calls, c)
	n := len(r.calls)
	r.mu.Unlock()
	if r.answer != nil {
		return r.answer(ctx, n)
	}
	return series.Sent{Points: points}, nil
}

// SendRecord implements export.RecordOutput.
func (r *receiver) SendRecord(ctx context.Context, rec *cimeter.Record) error {
	_, err := r.Send(ctx, time.Now(), nil)
	return err
}

func (r *receiver) close() { r.closed = true }

type ender struct{ receiver }

// End implements export.Ender.
func (e *ender) End(context.Context, time.Time) (series.Sent, error) {
	e.calls = append(e.calls, call{at: time.Now(), families: -1})
	return series.Sent{}, nil
}

type keeper struct{ receiver }

// Keep implements export.Keeper.
func (k *keeper) Keep(at time.Time, families []series.Family) series.Sent {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept++; k.kept > 5 {
		return series.Sent{Dropped: []series.Drop{{Reason: "oldest", Points: 3}}}
	}
	return series.Sent{}
}

func hang(ctx context.Context, _ int) (series.Sent, error) {
	<-ctx.Done()
	return series.Sent{}, fmt.Errorf("send: %w", ctx.Err())
}

// fixture is an exporter in a bubble.
type fixture struct {
	table *tally.Table
	log   *bytes.Buffer
	x     *export.Exporter
	value atomic.Int64
	stop  func()
	took  time.Duration // of the shutdown
	end   chan struct{}
}

func run(t *testing.T, targets ...export.Target) *fixture {
	t.Helper()
	f := &fixture{table: tally.New(tally.Options{}), log: &bytes.Buffer{}, end: make(chan struct{})}
	source := func() []series.Family {
		return []series.Family{{Name: "n_total", Kind: series.Counter, Points: make([]series.Point, 3)}, {Name: "level", Points: []series.Point{{Value: float64(f.value.Load())}}}}
	}
	f.x = export.New(export.Options{Targets: targets, Tally: f.table, Sources: []func() []series.Family{source}}, slog.New(slog.NewTextHandler(f.log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { defer close(f.end); f.x.Run(ctx) }()
	f.stop = func() {
		at := time.Now()
		cancel()
		<-f.end
		f.took = time.Since(at)
	}
	return f
}

func (f *fixture) get(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	v, _ := f.table.Value(name, labels...).Get()
	return v
}

// Outputs that hang, are slow, refuse, or fail in their own way hold up no other
// one; each drop is counted; a failure is said once.
func TestExporter_badReceiversHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := &receiver{}
		slow := &receiver{answer: func(ctx context.Context, n int) (series.Sent, error) {
			select {
			case <-ctx.Done():
				return series.Sent{Points: 1}, ctx.Err()
			case <-time.After(4 * time.Second):
				return series.Sent{Points: 4}, nil
			}
		}}
		hanging := &receiver{answer: hang}
		refusing := &receiver{answer: func(context.Context, int) (series.Sent, error) {
			return series.Sent{Points: 1, Dropped: []series.Drop{{Reason: "too_long", Points: 1}}}, fmt.Errorf("answered 403: %w", cimeter.ErrUnauthorized)
		}}
		f := run(t,
			export.Target{Name: "good", Metrics: good, Interval: 10 * time.Second, Close: good.close},
			export.Target{Name: "slow", Metrics: slow, Interval: 10 * time.Second},
			export.Target{Name: "hanging", Metrics: hanging, Interval: 10 * time.Second, Timeout: 3 * time.Second, Close: hanging.close},
			export.Target{Name: "refusing", Metrics: refusing, Interval: 10 * time.Second},
		)
		time.Sleep(20*time.Minute + time.Millisecond)
		f.value.Store(42)
		f.stop()
		if f.took > 2*time.Second {
			t.Errorf("the end took %v, want 2 s at most", f.took)
		}
		// Every 10 s from somewhere in the first 10 s on, and once at the end.
		for _, r := range []*receiver{good, slow} {
			if n := len(r.calls); n != 121 {
				t.Errorf("%d sends in 20 minutes, want 121", n)
			}
			for i := 1; i < len(r.calls)-1; i++ {
				if d := r.calls[i].at.Sub(r.calls[i-1].at); d != 10*time.Second {
					t.Errorf("send %d came %v after the one before, want 10 s", i, d)
				}
			}
		}
		if last := good.calls[len(good.calls)-1]; last.value != 42 || !good.closed || !hanging.closed {
			t.Errorf("last send has %v, closed %v and %v: want 42, and closed", last.value, good.closed, hanging.closed)
		}
		if n := f.get(t, catalog.OutputPoints, "good"); n != 4*121 {
			t.Errorf("%v points are counted, want %d", n, 4*121)
		}
		for _, name := range []string{"hanging", "refusing"} {
			r := map[string]*receiver{"hanging": hanging, "refusing": refusing}[name]
			tries := float64(len(r.calls))
			if tries < 10 || tries > 40 {
				t.Errorf("%s: %v tries in 20 minutes: want some, fewer than 40", name, tries)
			}
			failed, held := f.get(t, catalog.OutputDropped, name, "failed"), f.get(t, catalog.OutputDropped, name, "held_off")
			want := tries * 4
			if name == "refusing" {
				want = tries * 2
				if n := f.get(t, catalog.OutputDropped, name, "too_long"); n != tries {
					t.Errorf("%v points are counted as too long, want %v", n, tries)
				}
			}
			if failed != want || held != (121-tries)*4 {
				t.Errorf("%s: %v and %v dropped, want %v and %v", name, failed, held, want, (121-tries)*4)
			}
			if n := strings.Count(f.log.String(), "output="+name); n != 1 {
				t.Errorf("%s is in the log %d times, want once:\n%s", name, n, f.log)
			}
		}
		if n := f.get(t, catalog.OutputFailures, "refusing", "unauthorized"); n != float64(len(refusing.calls)) {
			t.Errorf("%v failures are counted as unauthorized, want %d", n, len(refusing.calls))
		}
	})
}

type asks struct{ after time.Duration }

func (a asks) Error() string             { return "answered 503" }
func (a asks) RetryAfter() time.Duration { return a.after }

// A receiver is left alone for as long as it asks, and its return is said.
func TestExporter_retryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(_ context.Context, n int) (series.Sent, error) {
			if n == 1 {
				return series.Sent{}, fmt.Errorf("post: %w", asks{5 * time.Minute})
			}
			return series.Sent{Points: 4}, nil
		}}
		f := run(t, export.Target{Name: "o", Metrics: r, Interval: time.Second})
		time.Sleep(8 * time.Minute)
		f.stop()
		if d := r.calls[1].at.Sub(r.calls[0].at); d < 5*time.Minute || d > 8*time.Minute {
			t.Errorf("tried again after %v, want 5 minutes and up to a half more", d)
		}
		if d := r.calls[2].at.Sub(r.calls[1].at); d != time.Second {
			t.Errorf("the one after came after %v, want 1 s", d)
		}
		if !strings.Contains(f.log.String(), "works again") || f.get(t, catalog.OutputLastSuccess, "o") == 0 {
			t.Errorf("its return is not told:\n%s", f.log)
		}
	})
}

// An output that keeps is given every interval though its receiver hangs, and
// one try runs at a time.
func TestExporter_keeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{receiver{answer: hang}}
		f := run(t, export.Target{Name: "k", Metrics: k, Interval: time.Second, Timeout: time.Minute})
		time.Sleep(10*time.Second + time.Millisecond)
		f.stop()
		if k.kept != 11 || f.took > 2*time.Second {
			t.Errorf("kept %d times, want 11; the end took %v", k.kept, f.took)
		}
		if n := f.get(t, catalog.OutputDropped, "k", "oldest"); n != 18 {
			t.Errorf("%v drops of its own are counted, want 18", n)
		}
		if n := f.get(t, catalog.OutputDropped, "k", "failed"); n != 0 {
			t.Errorf("%v points are counted as failed though they are kept", n)
		}
		for _, c := range k.calls {
			if c.families != 0 {
				t.Error("a keeper is given families to send")
			}
		}
	})
}

// What does not heed its deadline is left behind.
func TestExporter_deafOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{})
		defer close(wake)
		deaf := &receiver{answer: func(context.Context, int) (series.Sent, error) { <-wake; return series.Sent{}, nil }}
		f := run(t, export.Target{Name: "deaf", Metrics: deaf})
		time.Sleep(time.Minute)
		f.stop()
		if f.took > 3*time.Second || !strings.Contains(f.log.String(), "left behind") {
			t.Errorf("the end took %v:\n%s", f.took, f.log)
		}
	})
}

// kept are records that are only counted.
type kept struct {
	export.Records
	err error
	n   int
}

// Put implements export.Records.
func (k *kept) Put(*cimeter.Record) error {
	if k.err == nil {
		k.n++
	}
	return k.err
}

func record(n int) *cimeter.Record {
	r := &cimeter.Record{}
	r.Key = fmt.Sprint("gitlab/x/", n)
	return r
}

// Records reach the output once each, in order, whatever it takes; they never
// wait for it, and what does not fit into the queue is counted.
func TestExporter_records(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		var up atomic.Bool
		o := &recordOutput{send: func(ctx context.Context, r *cimeter.Record) error {
			switch {
			case !up.Load():
				<-ctx.Done()
				return ctx.Err()
			case r.Key == record(7).Key:
				return fmt.Errorf("answered 400: %w", cimeter.ErrInvalid)
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, r.Key)
			return nil
		}}
		f := run(t, export.Target{Name: "o", Records: o})
		dir := &kept{}
		records := f.x.After(dir)
		dir.err = errors.New("disk full")
		if err := records.Put(record(99)); err == nil {
			t.Error("an error of the records is lost")
		}
		dir.err = nil
		time.Sleep(time.Second)
		at := time.Now()
		for i := range 300 {
			if err := records.Put(record(i)); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(at); d != 0 || dir.n != 300 {
			t.Errorf("records waited %v for an output", d)
		}
		time.Sleep(10 * time.Minute)
		up.Store(true)
		time.Sleep(10 * time.Minute)
		dropped := f.get(t, catalog.OutputDropped, "o", "queue")
		if dropped < 43 || dropped > 44 || f.get(t, catalog.OutputDropped, "o", "refused") != 1 {
			t.Errorf("%v records dropped for want of room, want those over 256; %v refused, want 1", dropped, f.get(t, catalog.OutputDropped, "o", "refused"))
		}
		var want []string
		for i := range 300 - int(dropped) {
			if i != 7 {
				want = append(want, record(i).Key)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(got, want) || f.get(t, catalog.OutputRecords, "o") != float64(len(want)) {
			t.Errorf("%d records arrived, want the %d oldest in order", len(got), len(want))
		}
		// What waits at the end is sent, or counted.
		up.Store(false)
		for i := range 5 {
			records.Put(record(i))
		}
		time.Sleep(time.Second)
		f.stop()
		if n := f.get(t, catalog.OutputDropped, "o", "shutdown"); n != 5 || f.took > 2*time.Second {
			t.Errorf("%v records dropped at the end, want 5; it took %v", n, f.took)
		}
	})
}

type recordOutput struct {
	send func(context.Context, *cimeter.Record) error
}

// SendRecord implements export.RecordOutput.
func (o *recordOutput) SendRecord(ctx context.Context, r *cimeter.Record) error {
	return o.send(ctx, r)
}

// An output that tells its receiver of the end is let do so, after the last send.
func TestExporter_end(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &ender{}
		f := run(t, export.Target{Name: "e", Metrics: e})
		f.stop()
		if n := len(e.calls); n != 2 || e.calls[0].families != 2 || e.calls[1].families != -1 {
			t.Errorf("%+v: want the last send, then the end", e.calls)
		}
	})
}

// What was finished just before the end is sent at the end.
func TestExporter_lastRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		o := &recordOutput{send: func(context.Context, *cimeter.Record) error { n++; time.Sleep(10 * time.Millisecond); return nil }}
		f := run(t, export.Target{Name: "o", Records: o})
		records := f.x.After(&kept{})
		for i := range 50 {
			records.Put(record(i))
		}
		f.stop()
		if n != 50 || f.get(t, catalog.OutputDropped, "o", "shutdown") != 0 {
			t.Errorf("%d records arrived, want 50", n)
		}
	})
}
