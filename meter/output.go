package meter

import (
	"context"
	"log/slog"
	"time"

	"github.com/cimeter/cimeter/internal/export"
	"github.com/cimeter/cimeter/internal/output/statsd"
	"github.com/cimeter/cimeter/internal/series"
)

// Output is somewhere that Run sends everything to. Make one with StatsD or
// DogStatsD, with package meter/otlp or with package meter/remotewrite.
type Output = export.Opening

// StatsD sends over UDP to a plain StatsD server at HOST:PORT, each interval (0 is
// 10 s). Labels are folded into the names.
func StatsD(address string, interval time.Duration) Output {
	return export.Later("statsd", interval, func(w export.Whose) (export.Output, func(), error) {
		o, err := statsd.New(statsd.Options{Address: address, Name: "${name}.${labels}", Started: w.Started})
		if err != nil {
			return nil, nil, err
		}
		return o, o.Close, nil
	})
}

// DogStatsD sends, with tags, to a Datadog agent at HOST:PORT, unix:///PATH or
// unixstream:///PATH, each interval (0 is 10 s).
func DogStatsD(address string, interval time.Duration) Output {
	return export.Later("dogstatsd", interval, func(w export.Whose) (export.Output, func(), error) {
		o, err := statsd.NewDog(statsd.DogOptions{Address: address, Started: w.Started})
		if err != nil {
			return nil, nil, err
		}
		return o, o.Close, nil
	})
}

// Run sends everything to the outputs until ctx ends, then once more, for at most
// 2 s, and returns nil. A receiver that is away holds up nobody: what it did not
// take is told by cimeter_output_dropped_total. An error says that an
// output cannot be made. What goes wrong later is logged to log; nil drops it. Call it
// once; without outputs, or of a nil meter, it waits for ctx.
func (m *Meter) Run(ctx context.Context, log *slog.Logger) error {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if m == nil || len(m.o.Outputs) == 0 {
		<-ctx.Done()
		return nil
	}
	whose := export.Whose{CI: m.o.CI, Server: m.o.Server, Machine: m.o.Machine, Started: m.start}
	var targets []export.Target
	for _, o := range m.o.Outputs {
		target, err := o.Open(whose)
		if err != nil {
			for _, t := range targets {
				t.Close()
			}
			return err
		}
		targets = append(targets, target)
	}
	return export.New(export.Options{Targets: targets, Sources: []func() []series.Family{m.walker()}, Tally: m.table}, log).Run(ctx)
}
