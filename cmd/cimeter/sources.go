package main

import (
	"context"
	"log/slog"
	"net/url"

	"github.com/cimeter/cimeter/internal/bridge"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/scrape"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

// sourced are the sources of the settings, read.
type sourced struct {
	families []func() []series.Family // for the outputs
	served   []func() []series.Family // for /metrics
	run      func(context.Context) error
}

// newSources returns the sources of the settings.
func newSources(conf config.Config, counts *tally.Table, log *slog.Logger) sourced {
	if len(conf.Sources) == 0 {
		return sourced{run: untilDone}
	}
	var sources []bridge.Source
	for _, s := range conf.Sources {
		sources = append(sources, bridge.Source{Name: s.Name, Page: scrape.New(scrapeOptions(s)), Interval: s.Interval, Serve: s.Serve})
		at := s.URL
		if u, err := url.Parse(s.URL); err == nil {
			u.RawQuery = "" // it may hold a key
			at = u.String()
		}
		log.Info("reading a source", "name", s.Name, "at", at)
	}
	b := bridge.New(sources, counts, log)
	return sourced{[]func() []series.Family{b.Families}, []func() []series.Family{b.Served}, b.Run}
}

func scrapeOptions(s config.Source) scrape.Options {
	o := scrape.Options{
		URL: s.URL, Expvar: s.Expvar, MaxBytes: int(s.MaxBytes), MaxSeries: s.MaxSeries,
		Prefix: s.Prefix, Keep: s.Keep.Regexp, Drop: s.Drop.Regexp, Rename: map[string]string{},
		Labels: []series.Label{{Name: "source", Value: s.Name}},
	}
	for name, value := range s.Labels {
		o.Labels = append(o.Labels, series.Label{Name: name, Value: value})
	}
	for from, to := range s.RenameLabels {
		o.Rename[from] = to
	}
	for _, name := range s.DropLabels {
		o.Rename[name] = ""
	}
	if s.TokenFile != "" {
		o.Token = func() (string, error) {
			token, err := config.ReadSecret("", s.TokenFile, noVariables)
			return token.Reveal(), err
		}
	}
	return o
}
