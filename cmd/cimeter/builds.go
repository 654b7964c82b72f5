package main

import "errors"

// serverFlag is where records are read from.
type serverFlag struct {
	Server string `env:"CIMETER_SERVER" default:"http://127.0.0.1:9808" placeholder:"URL" help:"Agent to ask; default ${default}."`
}

// buildsCmd lists finished builds.
type buildsCmd struct {
	serverFlag `embed:""`
	Format     string `enum:"table,json,ndjson,csv" default:"table" help:"Form of the list: table, json, ndjson or csv."`
	Limit      int    `default:"50" help:"List at most this many."`
}

// Help is the end of --help.
func (c *buildsCmd) Help() string { return buildsHelp }

// Run prints the list.
func (c *buildsCmd) Run(e *env) error { return errors.New("builds: not built yet") }

// summaryCmd shows one build.
type summaryCmd struct {
	serverFlag `embed:""`
	ID         string `arg:"" help:"Key of the build, or what only its key ends with, such as the job's number."`
	JSON       bool   `xor:"form" help:"Print the record as JSON."`
	Markdown   bool   `xor:"form" help:"Print a table for a merge request."`
	Short      bool   `xor:"form" help:"Print one line."`
	Logfmt     bool   `xor:"form" help:"Print one line of logfmt for each stage."`
}

// Help is the end of --help.
func (c *summaryCmd) Help() string { return summaryHelp }

// Run prints the summary.
func (c *summaryCmd) Run(e *env) error { return errors.New("summary: not built yet") }
