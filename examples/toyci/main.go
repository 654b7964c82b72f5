// Command toyci is a toy CI server: a queue, a few workers, and builds that sleep.
// It shows how a CI server tells about itself with package meter.
//
//	go run ./examples/toyci -listen 127.0.0.1:8000
//	curl -d 'repo=octocat/hello&branch=main&commit=7e4d' http://127.0.0.1:8000/builds
//	curl http://127.0.0.1:8000/metrics http://127.0.0.1:8000/debug/vars
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/cimeter/cimeter/meter"
	"github.com/cimeter/cimeter/meter/otlp"
)

// build is a build in the queue.
type build struct {
	job    meter.Job
	queued time.Time
	fails  bool
}

// server is the CI server.
type server struct {
	meter *meter.Meter
	queue chan build
	work  time.Duration // how long a build takes
}

func newServer(m *meter.Meter, work time.Duration) *server {
	return &server{meter: m, queue: make(chan build, 1000), work: work}
}

// worker takes builds until ctx ends.
func (s *server) worker(ctx context.Context) {
	w := s.meter.Workers().Join()
	defer w.Leave()
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-s.queue:
			s.meter.Queue().Dequeued()
			s.run(ctx, w, b)
		}
	}
}

func (s *server) run(ctx context.Context, w *meter.Worker, b build) {
	w.Start(b.job)
	defer w.Done()
	builds := s.meter.Builds(meter.Labels{Project: b.job.Repo})
	started := time.Now()
	builds.Queued(started.Sub(b.queued))
	builds.Started()
	result := meter.Success
	if b.fails {
		result = meter.Failed
	}
	select {
	case <-ctx.Done():
		result = meter.Canceled
	case <-time.After(s.work):
	}
	builds.Finished(result, time.Since(started))
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.meter.Handler())
	mux.Handle("GET /debug/vars", s.meter.Vars())
	mux.HandleFunc("POST /builds", func(w http.ResponseWriter, r *http.Request) {
		job := meter.Job{Repo: r.FormValue("repo"), Branch: r.FormValue("branch"), Commit: r.FormValue("commit")}
		s.meter.Queue().Enqueued()
		select {
		case s.queue <- build{job, time.Now(), r.FormValue("fails") != ""}:
			w.WriteHeader(http.StatusAccepted)
		default:
			s.meter.Queue().Dequeued()
			http.Error(w, "the queue is full", http.StatusServiceUnavailable)
		}
	})
	return mux
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("toyci", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8000", "address")
	workers := flags.Int("workers", 2, "how many")
	work := flags.Duration("work", time.Second, "how long a build takes")
	statsd := flags.String("statsd", "", "HOST:PORT of a StatsD server")
	collector := flags.String("otlp", "", "http://HOST:PORT of a receiver of OTLP")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var outputs []meter.Output
	if *statsd != "" {
		outputs = append(outputs, meter.StatsD(*statsd, time.Second))
	}
	if *collector != "" {
		outputs = append(outputs, otlp.New(otlp.Options{URL: *collector, Interval: time.Second}))
	}
	s := newServer(meter.New(meter.Options{CI: "toy", Server: "toyci", Outputs: outputs}), *work)
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "listening on", l.Addr())
	for range *workers {
		go s.worker(ctx)
	}
	web := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = web.Serve(l) }() // it ends when it is closed
	err = s.meter.Run(ctx, nil)
	_ = web.Close() // nothing of it is needed any more
	return err
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "toyci:", err)
		os.Exit(1)
	}
}
