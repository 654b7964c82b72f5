package storetest

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
)

// What ran beside a build is what the model says: builds of its machine alone, for as
// long as both ran, without its own parts.
func testNeighbours(t *testing.T, s Store) {
	m := filled(t, s, 31, 400, 12*time.Hour)
	maker := NewMaker(32, time.Hour)
	on := func(n int, key string, began, ended time.Duration) store.Put {
		r := maker.Record(5000 + n)
		if key != "" {
			r.Key = key
		}
		r.Machine, r.StartedAt, r.EndedAt = "alone", Base.Add(-40*time.Hour+began), Base.Add(-40*time.Hour+ended)
		r.Usage.WallSeconds = (ended - began).Seconds()
		return store.Put{Record: r, ReceivedAt: Base, Agent: "a"}
	}
	own := on(0, "gitlab/host/7", time.Hour, 2*time.Hour)
	puts := []store.Put{own,
		on(1, "", 30*time.Minute, 90*time.Minute), // half of it
		on(2, "", 90*time.Minute, 25*time.Hour),   // and long after
		on(3, "", 0, time.Hour),                   // ended when it began
		on(4, "", 2*time.Hour, 3*time.Hour),       // began when it ended
		on(5, "gitlab/host/7/pod-1", time.Hour, 2*time.Hour),
		on(6, "gitlab/host/70", 75*time.Minute, 75*time.Minute+36*time.Second), // a hundredth of it
		on(7, "", 30*time.Minute, 30*time.Hour),                                // too long after to be found
	}
	if _, err := s.Put(t.Context(), puts); err != nil {
		t.Fatal(err)
	}
	got, err := s.Neighbours(t.Context(), own.Record)
	if want := 1.01; err != nil || got.Builds != 3 || math.Abs(got.AtOnce-want) > 1e-9 {
		t.Errorf("%+v, %v: want 3 builds, %v at once", got, err, want)
	}
	few := 0
	for _, p := range m.puts[:40] {
		of := p.Record
		var want store.Neighbours
		for _, q := range m.puts {
			if o := q.Record; o.Machine == of.Machine && o.Key != of.Key {
				want.Add(of.StartedAt, of.EndedAt, o.EndedAt.Add(-time.Duration(o.Usage.WallSeconds*1e6)*time.Microsecond), o.EndedAt)
			}
		}
		got, err := s.Neighbours(t.Context(), of)
		if err != nil || got.Builds != want.Builds || math.Abs(got.AtOnce-want.AtOnce) > 1e-6 {
			t.Errorf("beside %s: %+v, %v: want %+v", of.Key, got, err, want)
		}
		few += got.Builds
	}
	if few < 40 {
		t.Errorf("%d builds beside others in all: the test is of nothing", few)
	}
	for _, r := range []*cimeter.Record{{Build: cimeter.Build{Key: "x"}, EndedAt: Base}, {Build: cimeter.Build{Key: "x", Machine: "m"}, StartedAt: Base, EndedAt: Base}} {
		if _, err := s.Neighbours(t.Context(), r); !errors.Is(err, cimeter.ErrNotFound) {
			t.Errorf("of a build without machine or time: %v", err)
		}
	}
}
