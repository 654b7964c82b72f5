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
// DogStatsD.
type Output struct {
	name     string
	interval time.Duration
	open     func(started time.Time) (export.Output, func(), error)
}

// StatsD sends over UDP to a plain StatsD server at HOST:PORT, each interval (0 is
// 10 s). Labels are folded into the names.
func StatsD(address string, interval time.Duration) Output {
	return Output{"statsd", interval, func(started time.Time) (export.Output, func(), error) {
		o, err := statsd.New(statsd.Options{Address: address, Name: "${name}.${labels}", Started: started})
		if err != nil {
			return nil, nil, err
		}
		return o, o.Close, nil
	}}
}

// DogStatsD sends, with tags, to a Datadog agent at HOST:PORT, unix:///PATH or
// unixstream:///PATH, each interval (0 is 10 s).
func DogStatsD(address string, interval time.Duration) Output {
	return Output{"dogstatsd", interval, func(started time.Time) (export.Output, func(), error) {
		o, err := statsd.NewDog(statsd.DogOptions{Address: address, Started: started})
		if err != nil {
			return nil, nil, err
		}
		return o, o.Close, nil
	}}
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
	var targets []export.Target
	for _, o := range m.o.Outputs {
		send, closer, err := o.open(m.start)
		if err != nil {
			for _, t := range targets {
				t.Close()
			}
			return err
		}
		targets = append(targets, export.Target{Name: o.name, Metrics: send, Interval: o.interval, Close: closer})
	}
	return export.New(export.Options{Targets: targets, Sources: []func() []series.Family{m.walker()}, Tally: m.table}, log).Run(ctx)
}
