package expvar

import (
	"runtime/debug"
	"runtime/metrics"
)

// names are the metrics of the runtime that memory is made of, in the order of
// the constants below.
func names() [numSamples]string {
	return [numSamples]string{
		heapObjects: "/memory/classes/heap/objects:bytes", heapUnused: "/memory/classes/heap/unused:bytes",
		heapFree: "/memory/classes/heap/free:bytes", heapReleased: "/memory/classes/heap/released:bytes",
		heapStacks: "/memory/classes/heap/stacks:bytes", osStacks: "/memory/classes/os-stacks:bytes",
		mspanInuse: "/memory/classes/metadata/mspan/inuse:bytes", mspanFree: "/memory/classes/metadata/mspan/free:bytes",
		mcacheInuse: "/memory/classes/metadata/mcache/inuse:bytes", mcacheFree: "/memory/classes/metadata/mcache/free:bytes",
		profiling: "/memory/classes/profiling/buckets:bytes", gcMetadata: "/memory/classes/metadata/other:bytes",
		other: "/memory/classes/other:bytes", total: "/memory/classes/total:bytes",
		allocBytes: "/gc/heap/allocs:bytes", allocObjects: "/gc/heap/allocs:objects", freeObjects: "/gc/heap/frees:objects",
		tinyAllocs: "/gc/heap/tiny/allocs:objects", liveObjects: "/gc/heap/objects:objects", goal: "/gc/heap/goal:bytes",
		cycles: "/gc/cycles/total:gc-cycles", forced: "/gc/cycles/forced:gc-cycles",
	}
}

const (
	heapObjects = iota
	heapUnused
	heapFree
	heapReleased
	heapStacks
	osStacks
	mspanInuse
	mspanFree
	mcacheInuse
	mcacheFree
	profiling
	gcMetadata
	other
	total
	allocBytes
	allocObjects
	freeObjects
	tinyAllocs
	liveObjects
	goal
	cycles
	forced
	numSamples
)

// pauses is how many pauses runtime.MemStats keeps, in a ring.
const pauses = 256

// memstats has the members of runtime.MemStats that can be had without stopping
// the world, in its units: bytes, objects, nanoseconds. Left out are Lookups, which
// the runtime keeps at 0, BySize and GCCPUFraction.
type memstats struct {
	Alloc, TotalAlloc, Sys, Mallocs, Frees                                         uint64
	HeapAlloc, HeapSys, HeapIdle, HeapInuse, HeapReleased, HeapObjects             uint64
	StackInuse, StackSys, MSpanInuse, MSpanSys, MCacheInuse, MCacheSys             uint64
	BuckHashSys, GCSys, OtherSys, NextGC, LastGC, PauseTotalNs, NumGC, NumForcedGC uint64
	PauseNs, PauseEnd                                                              [pauses]uint64
	EnableGC                                                                       bool
}

func memory() memstats {
	var samples [numSamples]metrics.Sample
	for i, n := range names() {
		samples[i].Name = n
	}
	metrics.Read(samples[:])
	var v [numSamples]uint64
	for i, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			v[i] = s.Value.Uint64()
		}
	}
	m := memstats{
		Alloc: v[heapObjects], TotalAlloc: v[allocBytes], Sys: v[total],
		Mallocs: v[allocObjects] + v[tinyAllocs], Frees: v[freeObjects] + v[tinyAllocs],
		HeapAlloc: v[heapObjects], HeapSys: v[heapObjects] + v[heapUnused] + v[heapFree] + v[heapReleased],
		HeapIdle: v[heapFree] + v[heapReleased], HeapInuse: v[heapObjects] + v[heapUnused],
		HeapReleased: v[heapReleased], HeapObjects: v[liveObjects],
		StackInuse: v[heapStacks], StackSys: v[heapStacks] + v[osStacks],
		MSpanInuse: v[mspanInuse], MSpanSys: v[mspanInuse] + v[mspanFree],
		MCacheInuse: v[mcacheInuse], MCacheSys: v[mcacheInuse] + v[mcacheFree],
		BuckHashSys: v[profiling], GCSys: v[gcMetadata], OtherSys: v[other], NextGC: v[goal],
		NumGC: v[cycles], NumForcedGC: v[forced], EnableGC: true,
	}
	// The collector's log is copied under the lock of the heap, not with the
	// world stopped. It gives the latest pause first; the ring has it at
	// (NumGC+255)%256.
	var gc debug.GCStats
	debug.ReadGCStats(&gc)
	m.NumGC, m.PauseTotalNs = uint64(gc.NumGC), uint64(gc.PauseTotal)
	if gc.NumGC > 0 {
		m.LastGC = uint64(gc.LastGC.UnixNano())
	}
	for i, p := range gc.Pause[:min(len(gc.Pause), pauses)] {
		at := (uint64(gc.NumGC) + 2*pauses - 1 - uint64(i)) % pauses
		m.PauseNs[at] = uint64(p)
		m.PauseEnd[at] = uint64(gc.PauseEnd[i].UnixNano())
	}
	return m
}
