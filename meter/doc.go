// Package meter is for authors of CI servers and runners: typed instruments for a
// queue, its workers and its builds, told to any monitoring system.
//
//	m := meter.New(meter.Options{CI: "toy", Server: "ci.example.com"})
//	queue, builds := m.Queue(), m.Builds(meter.Labels{Project: "group/app"})
//	http.Handle("/metrics", m.Handler())
//
//	queue.Enqueued()
//	...
//	queue.Dequeued()
//	builds.Started()
//	...
//	builds.Finished(meter.Success, took)
//
// The names are those of cimeter's own catalogue (docs/metrics.md), so its
// dashboards and alerts work for a server that uses this package. What the
// catalogue does not have is made by [Meter.Counter], [Meter.Gauge] and
// [Meter.Histogram]; code written against go-kit's metrics keeps working with
// package meter/gokit.
//
// Without a meter nothing is counted: all methods of a nil *Meter, and of the nil
// instruments that it returns, do nothing. So a library can take a *Meter and its
// users need not have one.
//
// Instruments may be used by many goroutines; none of their methods waits for a
// reader, and none but those that say so allocates. The package depends on the
// standard library only (packages meter/otlp and meter/remotewrite, two more
// outputs, take some more), registers nothing globally, and starts goroutines in
// [Meter.Run] alone. Start with [New].
package meter
