package attrib

import (
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/counter"
)

// StagePod is the stage of what a pod's containers share: its network, its
// sandbox, and what its cgroup counted that none of its containers showed.
const StagePod = "pod"

// NetworkOfPod is why a container of a pod has no network of its own.
const NetworkOfPod = "counted once for its pod, in stage pod"

// podCounters are those of a cgroup that are the sum of those below it, and stay
// when those are removed.
var podCounters = [...]cimeter.Counter{
	cimeter.CPUTotal, cimeter.CPUUser, cimeter.CPUSystem,
	cimeter.IOReadBytes, cimeter.IOWriteBytes, cimeter.IOReadOperations, cimeter.IOWriteOperations,
}

// owed is, by place in podCounters, how much more a pod's cgroup has counted than
// its containers have shown; less than 0 while the pod was read before them.
type owed [len(podCounters)]int64

func (o *owed) add(d *counter.Delta, sign int64) {
	for i, c := range podCounters {
		if v, ok := d.Get(c); ok {
			o[i] += sign * int64(v)
		}
	}
}

// take returns what is owed and has been paid with it.
func (o *owed) take() (d counter.Delta) {
	for i, c := range podCounters {
		if o[i] > 0 {
			d.Set(c, uint64(o[i]))
			o[i] = 0
		}
	}
	return d
}

// OpenPod returns a segment of a pod's own cgroup, whose counters are first at t.
// What its containers are booked for is taken off it: see Within.
func (l *Ledger) OpenPod(id, path string, inode uint64, t time.Time, first *cimeter.Sample) *Segment {
	s := l.Open(id, path, inode, t, false)
	var d counter.Delta
	s.data.Baseline.Advance(first, &d)
	s.data.Baseline.FromBirth = true // a counter that shows up later began at 0
	s.data.Pod = true
	return s
}

// Within says that s is of a container of the pod. It comes before the first sample
// of s.
func (l *Ledger) Within(s, pod *Segment) { s.pod = pod }

// SettlePod books what the pod's cgroup has counted and none of its containers. All
// of them have ended and have been read, and the pod after them: else it would book
// what is theirs. It returns what it found, booked or not, in nanoseconds of CPU time.
func (l *Ledger) SettlePod(s *Segment, sample *cimeter.Sample) (cpu uint64) {
	var rise counter.Delta
	s.data.Baseline.Advance(sample, &rise)
	s.data.Owed.add(&rise, 1)
	rest := s.data.Owed.take()
	s.part.book(&rest, nil, !s.resumed)
	s.resumed = false
	if s.build == nil {
		return rest.Values[cimeter.CPUTotal]
	}
	s.build.Account.Total.Add(&rest) // no rate: nobody knows when it was spent
	if peak, ok := sample.Gauge(cimeter.MemoryPeak); ok {
		s.build.Account.RaisePeak(peak)
	}
	l.attributed += rest.Values[cimeter.CPUTotal]
	return rest.Values[cimeter.CPUTotal]
}

// SetRequested notes what the pod asked for for the segment's container.
func (l *Ledger) SetRequested(s *Segment, r cimeter.Requests) {
	s.data.Limits.Requested, s.part.Limits.Requested = r, r
}
