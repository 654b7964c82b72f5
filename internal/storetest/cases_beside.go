package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/store"
)

// testSections uses a cut that is a Monday's midnight, as a back end may delete by
// the week.
func testSections(t *testing.T, s Store) {
	mk := NewMaker(61, time.Hour)
	young, old, told := mk.Put(1), mk.Put(2), mk.Put(3)
	young.Record.EndedAt, old.Record.EndedAt = Base.AddDate(0, 0, -1), Base.AddDate(0, 0, -20)
	told.Record.EndedAt = Base.AddDate(0, 0, -1)
	put(t, s, []store.Put{young, old, told})
	keep := func(p store.Put, text string) store.Sections {
		return store.Sections{Key: p.Record.Key, EndedAt: p.Record.EndedAt, JSON: []byte(text)}
	}
	of := func(keys ...string) map[string][]byte {
		t.Helper()
		found, err := s.SectionsOf(t.Context(), keys)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	want := map[string][]byte{}
	is := func(text string, p store.Put) { want[p.Record.Key] = []byte(text) }
	if err := s.PutSections(t.Context(), []store.Sections{keep(young, `{"sections":1}`), keep(old, `{"sections":2}`), keep(told, ``)}); err != nil {
		t.Fatal(err)
	}
	if err := s.PutSections(t.Context(), []store.Sections{keep(young, `{"sections":3}`)}); err != nil {
		t.Fatal(err)
	}
	is(`{"sections":3}`, young)
	is(`{"sections":2}`, old)
	all := []string{young.Record.Key, old.Record.Key, told.Record.Key, "gitlab/nowhere/1", "", "a\x00b"}
	got := of(all...)
	if b, ok := got[told.Record.Key]; !ok || len(b) != 0 {
		t.Errorf("of a log without sections: %q, %v: want that it is known", b, ok)
	}
	delete(got, told.Record.Key)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// What a CI server tells of the build later takes nothing away.
	putJobs(t, s, jobOf(young.Record))
	if b := of(young.Record.Key)[young.Record.Key]; !bytes.Equal(b, want[young.Record.Key]) {
		t.Errorf("after a job: %q", b)
	}
	if got := retainAll(t, s, store.Retention{KeepFrom: Base.AddDate(0, 0, -14)}); got.Builds != 1 {
		t.Errorf("deleted %d builds, want 1", got.Builds)
	}
	if got := of(all...); len(got) != 2 || got[old.Record.Key] != nil {
		t.Errorf("after retention: %q", got)
	}
	for _, bad := range []store.Sections{{Key: "", EndedAt: Base}, {Key: "k"}, {Key: "k", EndedAt: Base, JSON: make([]byte, store.MaxSections+1)}} {
		if err := s.PutSections(t.Context(), []store.Sections{keep(told, "x"), bad}); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%.40v: %v", bad, err)
		}
	}
	if b := of(told.Record.Key)[told.Record.Key]; len(b) != 0 {
		t.Errorf("half of a refused batch was kept: %q", b)
	}
	if _, err := s.SectionsOf(t.Context(), make([]string, store.MaxBeside+1)); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("too many keys: %v", err)
	}
}

func testQueuePoints(t *testing.T, s Store) {
	nan := float32(math.NaN())
	at := func(server string, step time.Duration, minute int64, waiting float32) queue.KeptPoint {
		return queue.KeptPoint{Server: server, Step: step, Point: queue.Point{At: Base.Unix() + 60*minute, Waiting: waiting, Blocked: 1, Running: 2.5, Slots: nan, P50: 3.25, P95: nan}}
	}
	read := func(step time.Duration, since time.Time) string {
		t.Helper()
		points, err := s.QueuePoints(t.Context(), step, since)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(points)
	}
	write := func(keep map[time.Duration]time.Time, points ...queue.KeptPoint) {
		t.Helper()
		if err := s.PutQueuePoints(t.Context(), points, keep); err != nil {
			t.Fatal(err)
		}
	}
	a1, a2, b1, a10 := at("a", queue.FineStep, 1, 4), at("a", queue.FineStep, 2, 5), at("b", queue.FineStep, 1, 6), at("a", queue.CoarseStep, 10, 7)
	a2.Slots, a2.P95 = 8, 90.5
	write(nil, a2, b1, a10, at("a", queue.FineStep, 1, 99))
	write(nil, a1) // again
	if got, want := read(queue.FineStep, Base), fmt.Sprint([]queue.KeptPoint{a1, b1, a2}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := read(queue.FineStep, Base.Add(time.Minute)), fmt.Sprint([]queue.KeptPoint{a2}); got != want {
		t.Errorf("since: got %s, want %s", got, want)
	}
	write(map[time.Duration]time.Time{queue.FineStep: Base.Add(time.Minute)})
	if got, want := read(queue.FineStep, Base)+read(queue.CoarseStep, Base), fmt.Sprint([]queue.KeptPoint{a2})+fmt.Sprint([]queue.KeptPoint{a10}); got != want {
		t.Errorf("after their time: got %s, want %s", got, want)
	}
}

func testMachinePoints(t *testing.T, s Store) {
	nan := float32(math.NaN())
	at := func(machine string, minutes int, builds float32) store.MachinePoint {
		return store.MachinePoint{Machine: machine, At: Base.Add(time.Duration(minutes) * time.Minute), Builds: builds, Other: 0.25, Cimeter: nan, Coverage: 0.5, Memory: 3 << 30, IO: 1500, Network: nan, Pressure: 0.125}
	}
	write := func(upTo time.Time, points ...store.MachinePoint) {
		t.Helper()
		if err := s.PutMachinePoints(t.Context(), points, upTo); err != nil {
			t.Fatal(err)
		}
	}
	read := func(machine string, since time.Time) string {
		t.Helper()
		points, err := s.MachinePoints(t.Context(), machine, since)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(points)
	}
	write(Base, at("b", 10, 9), at("a", 20, 2), at("a", 10, 99), at("' OR 1=1 --", 10, 1))
	write(Base, at("a", 10, 1))
	if got, want := read("a", Base), fmt.Sprint([]store.MachinePoint{at("a", 10, 1), at("a", 20, 2)}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := read("a", Base.Add(10*time.Minute)), fmt.Sprint([]store.MachinePoint{at("a", 20, 2)}); got != want {
		t.Errorf("since: got %s, want %s", got, want)
	}
	write(Base.Add(10 * time.Minute))
	if got := read("a", Base) + read("b", Base) + read("a\x00", Base); got != fmt.Sprint([]store.MachinePoint{at("a", 20, 2)})+"[][]" {
		t.Errorf("after their time: %s", got)
	}
	for _, bad := range []store.MachinePoint{{Machine: "", At: Base}, {Machine: "a"}} {
		if err := s.PutMachinePoints(t.Context(), []store.MachinePoint{bad}, Base); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
