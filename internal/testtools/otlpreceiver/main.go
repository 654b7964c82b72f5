// Command otlpreceiver is the OpenTelemetry collector's own OTLP receiver with
// nothing behind it: it listens at the first argument and answers, at the
// second, with all that it was sent, as OTLP in JSON, one request a line.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(listen, show string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	err := confmap.NewFromStringMap(map[string]any{
		"protocols": map[string]any{"http": map[string]any{"endpoint": listen}},
	}).Unmarshal(config)
	if err != nil {
		return err
	}
	metrics, traces := new(consumertest.MetricsSink), new(consumertest.TracesSink)
	settings := receivertest.NewNopSettings(component.MustNewType("otlp"))
	m, err := factory.CreateMetrics(ctx, settings, config, metrics)
	if err != nil {
		return err
	}
	t, err := factory.CreateTraces(ctx, settings, config, traces) // the same receiver: they share their listener
	if err != nil {
		return err
	}
	for _, c := range []component.Component{m, t} {
		if err := c.Start(ctx, componenttest.NewNopHost()); err != nil {
			return err
		}
		defer c.Shutdown(context.Background())
	}
	server := &http.Server{Addr: show, Handler: handler(metrics, traces)}
	go func() { <-ctx.Done(); server.Close() }()
	return server.ListenAndServe()
}

func handler(metrics *consumertest.MetricsSink, traces *consumertest.TracesSink) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		for _, m := range metrics.AllMetrics() {
			b, err := new(pmetric.JSONMarshaler).MarshalMetrics(m)
			line(w, b, err)
		}
	})
	mux.HandleFunc("/traces", func(w http.ResponseWriter, _ *http.Request) {
		for _, t := range traces.AllTraces() {
			b, err := new(ptrace.JSONMarshaler).MarshalTraces(t)
			line(w, b, err)
		}
	})
	return mux
}

func line(w http.ResponseWriter, b []byte, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintf(w, "%s\n", b)
}
