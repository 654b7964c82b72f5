package main

import (
	"fmt"

	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/export"
	"github.com/cimeter/cimeter/internal/output/otlp"
	"github.com/cimeter/cimeter/internal/output/post"
	"github.com/cimeter/cimeter/internal/output/remotewrite"
)

// secretOf returns what reads the secret of an output anew each time.
func secretOf(e *env, variable, file string) func() (string, error) {
	return func() (string, error) {
		s, err := config.ReadSecret(variable, file, e.getenv)
		return s.Reveal(), err
	}
}

func newOTLP(conf config.Config, e *env) ([]export.Target, error) {
	c := conf.Outputs.OTLP
	to, err := post.New(post.Options{URL: c.URL, Headers: c.Headers, User: c.User, CAFile: c.CAFile, Secret: secretOf(e, "CIMETER_OTLP_TOKEN", c.TokenFile)})
	if err != nil {
		return nil, fmt.Errorf("outputs.otlp: %w", err)
	}
	version := readBuild().Version
	o := otlp.Options{To: to, Version: version, Traced: c.Traces, Resource: export.Labels(c.Resource, map[string]string{
		"service.name": "cimeter", "service.version": version, "service.instance.id": conf.Machine, "host.name": conf.Machine,
	})}
	t := export.Target{Name: "otlp", Interval: c.Interval, AtEnd: true, Close: to.Close}
	if c.Metrics {
		t.Metrics = otlp.New(o)
	}
	if c.Traces {
		t.Records = otlp.NewTraces(o)
	}
	return []export.Target{t}, nil
}

func newRemoteWrite(conf config.Config, e *env) ([]export.Target, error) {
	c := conf.Outputs.RemoteWrite
	to, err := post.New(post.Options{URL: c.URL, Headers: c.Headers, User: c.User, CAFile: c.CAFile, Secret: secretOf(e, "CIMETER_REMOTE_WRITE_TOKEN", c.TokenFile)})
	if err != nil {
		return nil, fmt.Errorf("outputs.remote_write: %w", err)
	}
	o := remotewrite.New(remotewrite.Options{
		To: to, Protocol: remotewrite.Protocol(c.Protocol), MaxBytes: int64(c.MaxBytes), MaxAge: c.MaxAge,
		Labels: export.Labels(c.Labels, map[string]string{"job": "cimeter", "instance": conf.Machine}),
	})
	return []export.Target{{Name: "remote_write", Metrics: o, Interval: c.Interval, AtEnd: true, Close: to.Close}}, nil
}
