// Package bench measures what the agent itself costs, on a real Docker Engine
// with up to 300 running containers, and prints it as ratios to a bare reading
// loop (bench/floor) that runs in the same minutes: see docs/overhead.md.
//
// It has benchmarks only, and owns what they start: a daemon (package
// testdocker), its containers, agents, the floor. It never changes what it
// measures but for one number: allocations are counted in an agent that is
// built with one more file, testdata/probe.go. Start with BenchmarkAgent; its
// parts run one after the other, for they measure the same machine.
package bench
