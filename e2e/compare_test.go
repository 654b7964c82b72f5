package e2e_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
)

// wanted is what the record of a build must say of one stage.
type wanted struct {
	Stage   string
	Attempt int // 0 is 1
	CPU     time.Duration
	Truth   truth
	// Memory is set when the stage takes and returns enough memory for its
	// peak to be over when burn reads it.
	Memory bool
	// Network is set when the stage's traffic is over when burn reads it.
	Network bool
	// Disk is set when block IO is counted and the stage reads and writes only
	// past the page cache.
	Disk bool
}

// coldReads are bytes that the kernel may read for a stage besides what that
// asks for: pages of its program and of the file system that are not cached.
const coldReads = 256 << 10

// stageOf finds a stage of a record.
func stageOf(r *cimeter.Record, name string, attempt int) *cimeter.Stage {
	i := slices.IndexFunc(r.Stages, func(s cimeter.Stage) bool { return s.Name == name && s.Attempt == max(attempt, 1) })
	if i < 0 {
		return nil
	}
	return &r.Stages[i]
}

// check compares a record's stages with what burn knows of them.
func check(t *testing.T, r *cimeter.Record, all []wanted) {
	t.Helper()
	for _, w := range all {
		s := stageOf(r, w.Stage, w.Attempt)
		if s == nil {
			t.Errorf("%s: no stage %s (attempt %d) in %v", r.Key, w.Stage, max(w.Attempt, 1), stageNames(r))
			continue
		}
		checkCPU(t, r.Key+" "+w.Stage, s.Usage.CPUSeconds.Total, w.CPU)
		if w.Memory {
			if s.Usage.MemoryBytes == nil || !s.Usage.MemoryBytes.Peak.Known {
				t.Errorf("%s %s: no memory peak, want %d", r.Key, w.Stage, w.Truth.MemoryPeak)
			} else if got := s.Usage.MemoryBytes.Peak.Value; got != uint64(w.Truth.MemoryPeak) {
				t.Errorf("%s %s: memory peak %d, the kernel's is %d", r.Key, w.Stage, got, w.Truth.MemoryPeak)
			}
		}
		if w.Network {
			if n := s.Usage.NetworkBytes; n == nil {
				t.Errorf("%s %s: no network bytes, want %d and %d", r.Key, w.Stage, w.Truth.NetworkReceive, w.Truth.NetworkTransmit)
			} else if n.Receive != uint64(w.Truth.NetworkReceive) || n.Transmit != uint64(w.Truth.NetworkTransmit) {
				t.Errorf("%s %s: network received %d, sent %d, want %d and %d", r.Key, w.Stage,
					n.Receive, n.Transmit, w.Truth.NetworkReceive, w.Truth.NetworkTransmit)
			}
		}
		if w.Disk {
			if b := s.Usage.IOBytes; b == nil {
				t.Errorf("%s %s: no IO bytes, want %d read, %d written", r.Key, w.Stage, w.Truth.ReadBytes, w.Truth.WriteBytes)
			} else if read, write := uint64(w.Truth.ReadBytes), uint64(w.Truth.WriteBytes); b.Read < read || b.Read > max(read, uint64(w.Truth.KernelRead))+coldReads ||
				b.Write != write && b.Write != uint64(w.Truth.KernelWrite) {
				t.Errorf("%s %s: read %d, wrote %d bytes, want %d and %d; the kernel had booked %d and %d", r.Key, w.Stage, b.Read, b.Write, read, write, w.Truth.KernelRead, w.Truth.KernelWrite)
			} else if b.Write != write {
				t.Logf("%s %s: wrote %d bytes, as the kernel says, and asked for %d", r.Key, w.Stage, b.Write, write)
			}
		}
	}
}

// checkCPU compares CPU time: within 1 % or 10 ms of the truth.
func checkCPU(t *testing.T, what string, got cimeter.Opt[float64], want time.Duration) {
	t.Helper()
	if !got.Known {
		t.Errorf("%s: no CPU time, want %v", what, want)
		return
	}
	g := time.Duration(got.Value * float64(time.Second))
	tolerance := max(want/100, 10*time.Millisecond)
	if diff := g - want; time.Duration(math.Abs(float64(diff))) > tolerance {
		t.Errorf("%s: CPU %v, want %v within %v", what, g, want, tolerance)
	}
}

// checkOrder compares the names of a record's stages, those alongside left
// out, with what ran.
func checkOrder(t *testing.T, r *cimeter.Record, want ...string) {
	t.Helper()
	var got []string
	for _, s := range r.Stages {
		if !s.Alongside {
			got = append(got, s.Name)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: stages %q, want %q", r.Key, got, want)
	}
}

func stageNames(r *cimeter.Record) []string {
	var names []string
	for _, s := range r.Stages {
		names = append(names, s.Name)
	}
	return names
}

// checkComplete fails when a record claims a hole where none was.
func checkComplete(t *testing.T, r *cimeter.Record) {
	t.Helper()
	if !r.Complete || len(r.Gaps) > 0 {
		t.Errorf("%s: complete=%v with gaps %+v, want a complete record", r.Key, r.Complete, r.Gaps)
	}
}

// checkSum compares the build's CPU time with the sum over its stages: every
// second is counted once.
func checkSum(t *testing.T, r *cimeter.Record) {
	t.Helper()
	var sum float64
	for _, s := range r.Stages {
		sum += s.Usage.CPUSeconds.Total.Value
	}
	if got := r.Usage.CPUSeconds.Total.Value; math.Abs(got-sum) > 1e-6*max(sum, 1) {
		t.Errorf("%s: CPU %v s, its stages sum up to %v s", r.Key, got, sum)
	}
}

// account is the fate of every build of a run, after all is quiet.
type account struct {
	want map[string]time.Duration // CPU time by build key, from the kernel
}

// quiet waits until these builds have their records, or the agent has nothing
// left that could become one, and returns the keys of all records.
func (a *agent) quiet(want map[string]time.Duration) (keys []string) {
	a.t.Helper()
	var last float64
	var listed, idle time.Time // when, and since when nothing runs
	a.eventually("the agent is done", func() (err error) {
		// This comes first: a build that ends in between is seen next time.
		left := a.metric("cimeter_builds_running") + a.metric("cimeter_agent_records_pending")
		if left > 0 && left == last && time.Since(listed) < time.Second {
			return fmt.Errorf("%v builds run or wait for the disk", left) // listing is dear
		}
		last, listed = left, time.Now()
		if keys, err = a.keys(); err != nil {
			return err
		}
		for key := range want {
			if slices.Contains(keys, key) {
				continue
			}
			if left > 0 {
				idle = time.Time{}
				return fmt.Errorf("no record of %s, %v builds run or wait for the disk", key, left)
			}
			// An agent that was held up may not have got to it.
			if idle.IsZero() {
				idle = time.Now()
			}
			if time.Since(idle) < 15*time.Second {
				return fmt.Errorf("no record of %s yet", key)
			}
		}
		return nil
	})
	return keys
}

// settle compares the agent's records with the truth: nothing lost, nothing
// twice, nothing wrong without being marked.
func (c *account) settle(t *testing.T, a *agent) {
	t.Helper()
	keys := a.quiet(c.want)
	slices.Sort(keys)
	var lost, wrong, unmarked int
	duplicates := len(keys) - len(slices.Compact(slices.Clone(keys)))
	for key, want := range c.want {
		if !slices.Contains(keys, key) {
			lost++
			t.Errorf("%s: lost", key)
			continue
		}
		r, err := a.record(key)
		if err != nil {
			t.Fatal(err)
		}
		got := time.Duration(r.Usage.CPUSeconds.Total.Value * float64(time.Second))
		tolerance := max(want/100, 10*time.Millisecond)
		switch {
		case got > want+tolerance:
			wrong++
			t.Errorf("%s: CPU %v, more than the %v it used", key, got, want)
		case got < want-tolerance && r.Complete:
			unmarked++
			t.Errorf("%s: CPU %v of %v, and no gap is marked", key, got, want)
		}
	}
	if duplicates > 0 {
		t.Errorf("%d builds have more than one record", duplicates)
	}
	t.Logf("account: %d builds, lost %d, duplicate %d, wrong %d, unmarked %d", len(c.want), lost, duplicates, wrong, unmarked)
}
