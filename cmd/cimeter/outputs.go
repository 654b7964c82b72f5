package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/export"
	"github.com/cimeter/cimeter/internal/output/statsd"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

// exports are the outputs of the settings, fed. A nil one has none.
type exports struct{ *export.Exporter }

// openExports opens the outputs that the settings choose. Its metrics are those
// of counts, and what sources add.
func openExports(conf config.Config, e *env, counts *tally.Table, log *slog.Logger, sources ...func() []series.Family) (*exports, error) {
	start := time.Now() // the counters are 0 yet
	targets, err := newOutputs(conf, e, start)
	if err != nil {
		return nil, err
	}
	if len(targets) == 0 {
		return nil, nil
	}
	for _, t := range targets {
		log.Info("sending metrics", "output", t.Name, "interval", t.Interval)
	}
	walker := series.NewWalker(counts, start)
	if c := conf.Outputs.OTLP; c.Metrics && c.Traces {
		walker.Exemplars()
	}
	sources = append(sources, walker.Families)
	return &exports{export.New(export.Options{Targets: targets, Sources: sources, Tally: counts}, log)}, nil
}

// newOutputs returns the outputs whose address is set: one case each.
func newOutputs(conf config.Config, e *env, start time.Time) (targets []export.Target, err error) {
	// Many machines send to one receiver: what does not say whose it is, says so.
	whose := []series.Label{{Name: "machine", Value: conf.Machine}}
	if c := conf.Outputs.StatsD; c.Address != "" {
		o, err := statsd.New(statsd.Options{
			Address: c.Address, Name: c.Name, Labels: whose, MaxPacket: int(c.MaxPacket), Started: start,
			CountHistograms: c.Histograms == "counters", WholeNumbers: c.WholeNumber, KeepGauges: c.EndedGauges == "keep",
		})
		if err != nil {
			return nil, fmt.Errorf("outputs.statsd: %w", err)
		}
		targets = append(targets, export.Target{Name: "statsd", Metrics: o, Interval: c.Interval, Close: o.Close})
	}
	if c := conf.Outputs.DogStatsD; c.Address != "" {
		o, err := statsd.NewDog(statsd.DogOptions{
			Address: c.Address, Prefix: c.Prefix, Tags: c.Tags, Labels: whose, MaxPacket: int(c.MaxPacket), Started: start,
			Origin: statsd.Origin{ContainerID: c.ContainerID, ExternalData: c.ExternalData, Cardinality: cardinality(c)},
		})
		if err != nil {
			return nil, fmt.Errorf("outputs.dogstatsd: %w", err)
		}
		targets = append(targets, export.Target{Name: "dogstatsd", Metrics: o, Interval: c.Interval, Close: o.Close})
	}
	for _, http := range []struct {
		url  string
		open func(config.Config, *env) ([]export.Target, error)
	}{{conf.Outputs.OTLP.URL, newOTLP}, {conf.Outputs.RemoteWrite.URL, newRemoteWrite}} {
		if http.url == "" {
			continue
		}
		more, err := http.open(conf, e)
		if err != nil {
			return nil, err
		}
		targets = append(targets, more...)
	}
	return targets, nil
}

func cardinality(c config.DogStatsD) string {
	if c.Cardinality == "default" {
		return ""
	}
	return c.Cardinality
}

// checker is an output that can say whether its receiver is there, without
// sending it any figure.
type checker interface {
	Check(ctx context.Context) (found string, err error)
}

// outputs names the outputs that are set up and what their addresses give.
func (r report) outputs(conf config.Config, e *env) {
	targets, err := newOutputs(conf, e, time.Time{})
	if err != nil {
		r.line("outputs", "cimeter cannot start: "+err.Error())
		return
	}
	if len(targets) == 0 {
		r.line("outputs", "none but /metrics (outputs)")
	}
	for _, t := range targets {
		var found []string
		for _, part := range []any{t.Metrics, t.Records} {
			c, ok := part.(checker)
			if !ok {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), askTime)
			says, err := c.Check(ctx)
			if err != nil {
				says = "not there now: " + err.Error()
			}
			cancel()
			if found = append(found, says); err != nil {
				break // the other part would say the same
			}
		}
		r.line("output "+t.Name, strings.Join(found, ", "))
		if t.Close != nil {
			t.Close()
		}
	}
}

// after returns records that the outputs are given too.
func (x *exports) after(next export.Records) export.Records {
	if x == nil {
		return next
	}
	return x.After(next)
}

// around returns part with the outputs fed while it runs: the last send comes
// when part has returned, so that it has what part counted at its end.
func (x *exports) around(part func(context.Context) error) func(context.Context) error {
	if x == nil {
		return part
	}
	return func(ctx context.Context) error {
		feeding, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		done := make(chan error, 1)
		go func() { done <- x.Run(feeding) }()
		err := part(ctx)
		stop()
		<-done
		return err
	}
}
