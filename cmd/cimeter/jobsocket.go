package main

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/agent"
	"github.com/cimeter/cimeter/internal/client"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/jobsocket"
	"github.com/cimeter/cimeter/internal/outbound"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/tally"
)

// openJobSocket returns what answers jobs by the settings; nothing where they
// name no socket.
func openJobSocket(conf config.Config, a *agent.Agent, last jobsocket.History, counts *tally.Table, log *slog.Logger) (func(context.Context) error, error) {
	c := conf.Agent.Socket
	if c.Path == "" {
		return untilDone, nil
	}
	mode, err := strconv.ParseUint(c.Mode, 8, 32)
	if err != nil {
		panic(err) // config lets nothing else through
	}
	l, err := jobsocket.Listen(c.Path, os.FileMode(mode))
	if err != nil {
		return nil, err
	}
	s := jobsocket.New(jobsocket.Options{
		Hold: func(pid int) (jobsocket.Caller, error) {
			c, err := a.Hold(pid)
			if err != nil {
				return nil, err
			}
			return c, nil
		},
		History: last, Machine: machineLimits(), Pages: cmp.Or(c.Pages, conf.Server.URL), Tally: counts,
	}, log)
	log.Info("answering jobs", "socket", c.Path)
	return func(ctx context.Context) error { return s.Serve(ctx, l) }, nil
}

// serverHistory asks the server of the settings for a job's last builds; nil
// where they name none. It is asked seldom: what is opened for it is closed.
func serverHistory(conf config.Config, e *env) jobsocket.History {
	if conf.Server.URL == "" {
		return nil
	}
	variable, file := "CIMETER_SERVER_TOKEN", conf.Server.TokenFile
	if conf.Agent.Socket.HistoryFile != "" {
		variable, file = "", conf.Agent.Socket.HistoryFile
	}
	return func(ctx context.Context, of *cimeter.Build, limit int) ([]*cimeter.Record, error) {
		token, err := config.ReadSecret(variable, file, e.getenv)
		if err != nil {
			return nil, err
		}
		transport, err := outbound.Transport(outbound.Options{CAFile: conf.Server.CAFile, Dial: historyTime, Answer: historyTime})
		if err != nil {
			return nil, err
		}
		defer transport.CloseIdleConnections()
		c, err := client.New(client.Options{URL: conf.Server.URL, Token: token.Reveal(), Transport: transport})
		if err != nil {
			return nil, err
		}
		records, _, err := c.Builds(ctx, client.Filter{CI: of.CI, Project: of.Project, Name: of.Name, Result: "success", Limit: limit})
		return ofServer(records, of.Server), err
	}
}

// historyTime bounds the steps of asking a server.
const historyTime = 5 * time.Second

// ownHistory asks the store in this process for a job's last builds.
func ownHistory(kept builds) jobsocket.History {
	return func(ctx context.Context, of *cimeter.Build, limit int) ([]*cimeter.Record, error) {
		page, err := kept.List(ctx, store.Query{Limit: limit, Filter: filter.Filter{
			filter.Is(filter.CI, of.CI), filter.Is(filter.Project, of.Project), filter.Is(filter.Job, of.Name), filter.Is(filter.Result, "success"),
		}})
		return ofServer(page.Records, of.Server), err
	}
}

// ofServer leaves the builds of one CI server.
func ofServer(records []*cimeter.Record, server string) []*cimeter.Record {
	return slices.DeleteFunc(records, func(r *cimeter.Record) bool { return r.Server != server })
}
