package e2e_test

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestClockSet sets the machine's clock forward and back while a build runs:
// nothing lasts less than nothing, the order stays, the CPU time is right. It
// does so only inside the guest (TestInGuest runs it there): anywhere else the
// clock is everybody's.
func TestClockSet(t *testing.T) {
	if os.Getenv(binFolder) == "" {
		t.Log("left to the guest: it sets the machine's clock")
		return
	}
	for _, c := range []struct {
		name string
		by   time.Duration
	}{{"AnHourForward", time.Hour}, {"AnHourBack", -time.Hour}, {"TenYearsForward", 10 * 365 * 24 * time.Hour}, {"TenYearsBack", -10 * 365 * 24 * time.Hour}} {
		t.Run(c.name, func(t *testing.T) {
			b := newBare(t)
			a := startAgent(t, b, bareConfig())
			a.watchCounters()
			s := b.build(1)
			begun := time.Now()
			if err := s.step("before", "cpu=0.05", "sleep=0.5"); err != nil {
				t.Fatal(err)
			}
			during, err := s.begin("during", "cpu=0.05", "sleep=2", "cpu=0.05")
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Second) // the fault comes in the middle
			shift(t, c.by)
			defer shift(t, -c.by)
			if err := during.end(); err != nil {
				t.Fatal(err)
			}
			if err := s.step("after", "cpu=0.05", "sleep=0.5"); err != nil {
				t.Fatal(err)
			}
			took := time.Since(begun) // by the monotonic clock
			s.remove()
			r := s.check(t, a, 3)
			checkOrder(t, &r, "before", "during", "after")
			if r.EndedAt.Before(r.StartedAt) || r.Usage.WallSeconds < 0 || r.Usage.WallSeconds > 2*took.Seconds() {
				t.Errorf("from %s to %s, %v s, want about %v", r.StartedAt, r.EndedAt, r.Usage.WallSeconds, took)
			}
			for _, g := range r.Stages {
				if g.EndedAt.Before(g.StartedAt) || g.Usage.WallSeconds < 0 || g.Usage.WallSeconds > 2*took.Seconds() {
					t.Errorf("%s from %s to %s, %v s", g.Name, g.StartedAt, g.EndedAt, g.Usage.WallSeconds)
				}
			}
		})
	}
}

// shift sets the machine's clock by d.
func shift(t *testing.T, d time.Duration) {
	t.Helper()
	tv := unix.NsecToTimeval(time.Now().Add(d).UnixNano())
	if err := unix.Settimeofday(&tv); err != nil {
		t.Fatalf("setting the clock: %v", err)
	}
}
