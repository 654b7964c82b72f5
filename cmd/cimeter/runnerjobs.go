package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/cimeter/cimeter/internal/ci/github"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/kubeapi"
	"github.com/cimeter/cimeter/internal/runnerjobs"
)

// runnerJobs knows the jobs of Actions Runner Controller's runners, where an API
// server is asked for them. Its zero value asks nobody.
type runnerJobs struct {
	client *kubeapi.Client
	table  *runnerjobs.Table
}

func openRunnerJobs(conf config.Kubernetes, log *slog.Logger) (runnerJobs, error) {
	if !conf.RunnerJobs {
		return runnerJobs{}, nil
	}
	o := kubeapi.Options{URL: conf.URL, TokenFile: conf.TokenFile, CAFile: conf.CAFile}
	if conf.URL == "" {
		var err error
		if o, err = kubeapi.InCluster(os.Getenv); err != nil {
			return runnerJobs{}, err
		}
	}
	client, err := kubeapi.New(o)
	if err != nil {
		return runnerJobs{}, err
	}
	return runnerJobs{client: client, table: runnerjobs.New(client, log)}, nil
}

// jobOf returns what github.Pods asks for a runner's job; nil: nobody is asked.
func (r runnerJobs) jobOf() func(namespace, runner string) (github.Ephemeral, bool) {
	if r.table == nil {
		return nil
	}
	return r.table.Job
}

// run asks until ctx ends.
func (r runnerJobs) run(ctx context.Context) error {
	if r.table == nil {
		<-ctx.Done()
		return nil
	}
	defer r.client.Close()
	return r.table.Run(ctx)
}
