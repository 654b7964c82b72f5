package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/scrape"
)

// sources names the programs whose metrics are read, and what they tell now.
func (r report) sources(conf config.Config) {
	for _, s := range conf.Sources {
		ctx, cancel := context.WithTimeout(context.Background(), askTime)
		page, err := scrape.New(scrapeOptions(s)).Scrape(ctx)
		cancel()
		if err != nil {
			r.line("source "+s.Name, "not read now: "+err.Error())
			continue
		}
		series, skipped := 0, 0
		for _, f := range page.Families {
			series += len(f.Points)
		}
		for _, d := range page.Skipped {
			skipped += d.Points
		}
		r.line("source "+s.Name, fmt.Sprintf("ok: %d series of %d families, %d left out", series, len(page.Families), skipped))
	}
}

// discovery says how Prometheus finds this machine.
func (r report) discovery(conf config.Config, e *env) {
	if address := conf.Discover.Consul.Address; address != "" {
		r.line("consul", consulFound(conf, e))
	}
	if file := conf.Discover.File; file != "" {
		found := "ok: " + file
		if st, err := os.Stat(filepath.Dir(file)); err != nil {
			found = "cannot be written: " + err.Error()
		} else if !st.IsDir() || !writable(filepath.Dir(file)) {
			found = "cannot be written: " + filepath.Dir(file) + " is no folder that this user may write to"
		}
		r.line("file of targets", found)
	}
}

func consulFound(conf config.Config, e *env) string {
	d, err := openDiscovery(conf, e, nil, nil)
	if err != nil {
		return "cimeter cannot start: " + err.Error()
	}
	defer d.registry.Close()
	if _, err := config.ReadSecret("CONSUL_HTTP_TOKEN", conf.Discover.Consul.TokenFile, e.getenv); err != nil {
		return "nothing can be registered: token_file: " + err.Error()
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	switch leader, err := d.registry.Leader(ctx); {
	case err != nil:
		return "not there now: " + err.Error()
	case leader == "":
		return d.registry.Address() + " has no leader now: nothing can be registered"
	default:
		return d.registry.Address() + " is there"
	}
}

// debug says whether the debug endpoints may be opened.
func (r report) debug(conf config.Config, e *env) {
	if conf.Debug.Listen == "" {
		return
	}
	token, err := debugToken(conf, e)
	at, lookup := net.ResolveTCPAddr("tcp", conf.Debug.Listen)
	switch {
	case err != nil:
	case lookup != nil:
		err = fmt.Errorf("debug.listen: %w", lookup)
	case !at.IP.IsLoopback() && token.IsZero():
		err = errDebugToken(conf)
	}
	if err != nil {
		r.line("debug", "cimeter cannot start: "+err.Error())
		return
	}
	r.line("debug", "at "+conf.Debug.Listen)
}

// server says whether the server would take an agent's records: it is sent none of them.
func (r report) server(conf config.Config, e *env) {
	if conf.Server.URL == "" {
		return
	}
	sender, err := newSender(conf, e, "")
	if err != nil {
		r.line("server", "cimeter cannot start: "+err.Error())
		return
	}
	defer sender.Close()
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	if _, err := sender.Records(ctx, nil); err != nil {
		r.line("server", "takes nothing now, records wait: "+err.Error())
		return
	}
	r.line("server", "ok: takes records at "+sender.Address())
}

// store says whether a server can read which database is its own.
func (r report) store(conf config.Config) {
	if conf.Store.DatabaseFile == "" {
		return
	}
	if _, err := config.ReadSecret("", conf.Store.DatabaseFile, noVariables); err != nil {
		r.line("store", "a server cannot start: store.database_file: "+err.Error())
		return
	}
	r.line("store", "ok: the database that "+conf.Store.DatabaseFile+" names")
}

func noVariables(string) string { return "" }

// tokens says whether a server can read who may use it.
func (r report) tokens(conf config.Config) {
	if conf.Access.TokensFile == "" {
		return
	}
	known, err := (&tokensFile{path: conf.Access.TokensFile}).read()
	if err != nil {
		r.line("tokens", "a server cannot start: "+err.Error())
		return
	}
	r.line("tokens", fmt.Sprintf("ok: %d", len(known)))
}
