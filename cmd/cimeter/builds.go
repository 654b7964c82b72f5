package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/cimeter/cimeter/internal/client"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/section"
	"github.com/cimeter/cimeter/internal/summary"
)

// buildsCmd lists finished builds.
type buildsCmd struct {
	serverFlags `embed:""`
	Format      string `enum:"table,json,ndjson,csv" default:"table" help:"Form of the list: table, json, ndjson or csv."`
	JSON        bool   `name:"json" help:"The same as --format json."`
	Limit       *int   `xor:"many" placeholder:"N" help:"List at most this many; 50 where nothing is said."`
	All         bool   `xor:"many" help:"List all of them. However many there are, a page is in memory at once."`
	Sections    bool   `help:"With what a server kept of the sections of their logs: a member of each record in json and ndjson."`

	Project string `placeholder:"P" group:"Only builds:" help:"Of this project."`
	CI      string `name:"ci" placeholder:"CI" group:"Only builds:" help:"Of this kind of CI system, such as gitlab."`
	Name    string `placeholder:"NAME" group:"Only builds:" help:"Of this name."`
	Stage   string `placeholder:"NAME" group:"Only builds:" help:"That have this stage."`
	Runner  string `placeholder:"NAME" group:"Only builds:" help:"Of this runner: its system id, short token or name."`
	Machine string `placeholder:"NAME" group:"Only builds:" help:"Of this machine."`
	Result  string `placeholder:"RESULT" group:"Only builds:" help:"That ended so: success, failed, canceled or skipped."`

	Query    string `placeholder:"FILTER" group:"Of a server, only builds:" help:"That a filter of its pages finds, such as \"verdict:oom cpu>600s\"."`
	Ref      string `placeholder:"REF" group:"Of a server, only builds:" help:"Of this branch or tag."`
	Event    string `placeholder:"EVENT" group:"Of a server, only builds:" help:"That this set off, such as push."`
	Pipeline string `placeholder:"ID" group:"Of a server, only builds:" help:"Of this pipeline."`
	Verdict  string `placeholder:"KIND" group:"Of a server, only builds:" help:"With such a finding: oom, throttled or disputed."`
	Since    string `placeholder:"TIME" group:"Of a server, only builds:" help:"That ended at TIME or later: 7d, 2026-11-30, or 2026-11-30T12:00:00Z."`
	Before   string `placeholder:"TIME" group:"Of a server, only builds:" help:"That ended before TIME."`
	Sort     string `enum:",ended,cpu,memory,wall,io,net,queue" default:"" placeholder:"BY" group:"Order of a server's:" help:"Sort by ended, cpu, memory, wall, io, net or queue."`
	Order    string `enum:",desc,asc" default:"" placeholder:"ORDER" group:"Order of a server's:" help:"desc, the largest first, or asc."`
}

// Help is the end of --help.
func (c *buildsCmd) Help() string { return buildsHelp }

// Validate refuses what lists nothing.
func (c *buildsCmd) Validate() error {
	if c.Limit != nil && *c.Limit < 1 {
		return fmt.Errorf("--limit: %d: want 1 or more", *c.Limit)
	}
	switch c.Result {
	case "", "success", "failed", "canceled", "skipped":
	default:
		return fmt.Errorf("--result: %.40q: want success, failed, canceled or skipped", c.Result)
	}
	var err error
	if c.Format, err = jsonOr(c.JSON, c.Format); err != nil {
		return err
	}
	if c.Sections && c.Format != "json" && c.Format != "ndjson" {
		return fmt.Errorf("--sections: with --format %s: want json or ndjson: a row is a build", c.Format)
	}
	return nil
}

// Run prints the list.
func (c *buildsCmd) Run(e *env) error {
	from, err := c.client(e)
	if err != nil {
		return err
	}
	filter := client.Filter{Project: c.Project, CI: c.CI, Name: c.Name, Stage: c.Stage, Runner: c.Runner, Machine: c.Machine, Result: c.Result,
		Query: c.Query, Ref: c.Ref, Event: c.Event, Pipeline: c.Pipeline, Verdict: c.Verdict, Since: c.Since, Before: c.Before, Sort: c.Sort, Order: c.Order, Sections: c.Sections}
	limit := 50
	switch {
	case c.All:
		limit = math.MaxInt
	case c.Limit != nil:
		limit = *c.Limit
	}
	out := bufio.NewWriterSize(e.stdout, 64<<10)
	var w lister
	switch c.Format {
	case "json":
		w = &jsonList{w: out}
	case "ndjson":
		w = &ndjsonList{w: out}
	case "csv":
		w = &csvList{w: csv.NewWriter(out)}
	default:
		t := &tableList{w: out, utf8: utf8Locale(e.getenv)}
		t.width, _ = columnsOf(e.stdout)
		w = t
	}
	// What was listed before something failed is printed, and the failure told.
	return errors.Join(list(context.Background(), from, filter, limit, w), out.Flush())
}

// lister writes a list of builds; close comes after the last, also when there
// is none.
type lister interface {
	write(section.Divided) error
	close() error
}

func list(ctx context.Context, from *client.Client, f client.Filter, limit int, w lister) error {
	if err := eachDivided(ctx, from, f, limit, w.write); err != nil {
		return err
	}
	return w.close()
}

// jsonList is one array of records.
type jsonList struct {
	w     io.Writer
	wrote bool
}

func (l *jsonList) write(r section.Divided) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	before := ",\n"
	if !l.wrote {
		before = "[\n"
	}
	l.wrote = true
	_, err = l.w.Write(append([]byte(before), display.JSON(b)...))
	return err
}

func (l *jsonList) close() error {
	after := "\n]\n"
	if !l.wrote {
		after = "[]\n"
	}
	_, err := io.WriteString(l.w, after)
	return err
}

// ndjsonList is a record a line.
type ndjsonList struct{ w io.Writer }

func (l *ndjsonList) write(r section.Divided) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = l.w.Write(append(display.JSON(b), '\n'))
	return err
}

func (l *ndjsonList) close() error { return nil }

// csvList is a line a build for a spreadsheet (RFC 4180); what is not known is
// an empty cell. Names say the unit.
type csvList struct {
	w       *csv.Writer
	started bool
}

func (l *csvList) header() error {
	if l.started {
		return nil
	}
	l.started = true
	return l.w.Write(summary.CSVHeader())
}

func (l *csvList) write(r section.Divided) error {
	if err := l.header(); err != nil {
		return err
	}
	return l.w.Write(summary.CSVRow(r.Record))
}

func (l *csvList) close() error {
	if err := l.header(); err != nil {
		return err
	}
	l.w.Flush()
	return l.w.Error()
}
