package server_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/wire"
)

var boot = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// beatOf is the heartbeat of a machine whose agent started at boot, after that
// many seconds: builds have 1.5 cores, the rest 0.25, cimeter 0.01.
func beatOf(s float64) wire.Heartbeat {
	return wire.Heartbeat{
		Agent: "a", Machine: "ci-7", IntervalSeconds: 5,
		Host: &wire.Host{
			BootedAt: boot, StartedAt: boot, ReadAt: boot.Add(time.Duration(s * 1e9)),
			CPUSeconds: &wire.HostCPU{Builds: 1.5 * s, Other: 0.25 * s, Cimeter: 0.01 * s}, MemoryBytes: &wire.HostMemory{Total: 100, Available: cimeter.Some[uint64](60)},
			IOBytes: &cimeter.ReadWrite[uint64]{Read: uint64(10 * s), Write: uint64(30 * s)}, PressureSeconds: &cimeter.PressureSeconds{CPUSome: cimeter.Some(0.5 * s), IOSome: cimeter.Some(0.0)},
		},
		Running: []wire.Running{{Key: "gitlab/x/1", CPUSeconds: cimeter.Some(0.75 * s)}, {Key: fmt.Sprintf("gitlab/x/%g", s), CPUSeconds: cimeter.Some(9.0)}},
	}
}

func only(t *testing.T, r *rig) httpapi.Agent {
	t.Helper()
	all := r.Agents()
	if len(all) != 1 {
		t.Fatalf("%d agents: want 1", len(all))
	}
	return all[0]
}

func TestServer_rates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.Heartbeat(beatOf(100))
		if a := only(t, r); a.Now == nil || a.Now.CPUCores != nil || a.Now.MemoryUsedBytes != cimeter.Some[uint64](40) || a.Builds[0].CPUCores.Known {
			t.Errorf("after one heartbeat %+v, builds %+v: want no rate yet", a.Now, a.Builds)
		}
		// The way took 3 s longer: the agent's clock counts.
		<-time.After(8 * time.Second)
		r.Heartbeat(beatOf(105))
		a := only(t, r)
		n := a.Now
		if n.CPUCores == nil || n.CPUCores.Builds != 1.5 || n.CPUCores.Other != 0.25 || math.Abs(n.CPUCores.Cimeter-0.01) > 1e-9 || n.IOBytesPerSecond.Value != 40 {
			t.Errorf("%+v, CPU %+v", n, n.CPUCores)
		}
		if n.NetworkBytesPerSecond.Known || n.Pressure.Memory.Known || n.Pressure.CPU != cimeter.Some(0.5) || n.Pressure.IO != cimeter.Some(0.0) {
			t.Errorf("%+v, pressure %+v: want what was not told absent, and a known zero", n, n.Pressure)
		}
		if b := a.Builds; b[0].CPUCores != cimeter.Some(0.75) || b[1].CPUCores.Known || len(b[0].Minute) != 1 || b[0].Minute[0] != cimeter.Some[int64](750) {
			t.Errorf("builds %+v: want 0.75 cores of the first, nothing of the one that is new", b)
		}
		// A counter that fell tells nothing; the others do.
		<-time.After(5 * time.Second)
		fell := beatOf(110)
		fell.Host.IOBytes.Read, fell.Running[0].CPUSeconds = 1, cimeter.Some(1.0)
		r.Heartbeat(fell)
		if a := only(t, r); a.Now.IOBytesPerSecond.Known || a.Now.CPUCores == nil || a.Builds[0].CPUCores.Known {
			t.Errorf("after counters fell %+v, %+v: want no rate of those", a.Now, a.Builds[0])
		}
		// The agent starts again: its counters began anew, no rate is negative or huge.
		again := beatOf(2)
		again.Host.StartedAt, again.Host.ReadAt = boot.Add(time.Hour), boot.Add(time.Hour)
		r.Heartbeat(again)
		if a := only(t, r); a.Now.CPUCores != nil || a.Now.IOBytesPerSecond.Known || a.Builds[0].CPUCores.Known {
			t.Errorf("after a restart %+v, %+v: want no rates", a.Now, a.Builds[0])
		}
		// An agent of the version before tells none.
		old := beatOf(3)
		old.Host = nil
		r.Heartbeat(old)
		if a := only(t, r); a.Now != nil || a.Host != nil || len(a.Running) != 2 {
			t.Errorf("%+v: want no figures", a)
		}
	})
}

// History is bounded, however long an agent tells, and what a page was given
// does not change under it.
func TestServer_history(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		var early httpapi.Agent
		for i := range 400 {
			r.Heartbeat(beatOf(100 + 5*float64(i)))
			<-time.After(5 * time.Second)
			if i == 20 {
				early = only(t, r)
				early.History = append([]httpapi.HostPoint(nil), early.History...)
			}
		}
		a := only(t, r)
		if len(a.History) != 30 || len(a.Builds[0].Minute) != 12 {
			t.Errorf("%d points, %d steps of a build: want 30 and 12", len(a.History), len(a.Builds[0].Minute))
		}
		for i := 1; i < len(a.History); i++ {
			if p := a.History[i]; p.At-a.History[i-1].At != 20 || p.Builds != 1.5 || p.MemoryUsed != 40 || p.Pressure != 0.5 || p.Network == p.Network {
				t.Errorf("point %d: %+v, %d s after the one before", i, p, p.At-a.History[i-1].At)
			}
		}
		if now := time.Now().Unix(); now-a.History[29].At > 25 {
			t.Errorf("the newest point is %d s old", now-a.History[29].At)
		}
		if len(early.History) < 4 || early.History[1].Builds != 1.5 {
			t.Errorf("early: %+v", early.History)
		}
	})
}

// Silent for three heartbeats is away, and comes back with the next; after a
// day it is forgotten.
func TestServer_silent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.Heartbeat(beatOf(100))
		<-time.After(14 * time.Second)
		if only(t, r).Away {
			t.Error("away after 14 s: want three heartbeats of 5 s")
		}
		<-time.After(3 * time.Second)
		if a := only(t, r); !a.Away || a.Now == nil {
			t.Errorf("after 17 s: %+v: want it away, with what it said last", a)
		}
		r.Heartbeat(beatOf(117))
		if only(t, r).Away {
			t.Error("away though it has just come back")
		}
		<-time.After(24*time.Hour + time.Minute)
		synctest.Wait()
		if all := r.Agents(); len(all) != 0 {
			t.Errorf("after a day: %+v: want none", all)
		}
	})
}
