package main

import (
	"context"
	"fmt"

	"github.com/cimeter/cimeter/internal/summary"
)

// summaryCmd shows one build.
type summaryCmd struct {
	serverFlags `embed:""`
	ID          string `arg:"" help:"Key of the build, or what only its key ends with, such as the job's number."`
	JSON        bool   `name:"json" xor:"form" help:"Print the record as JSON."`
	Markdown    bool   `xor:"form" help:"Print a table for a merge request."`
	Short       bool   `xor:"form" help:"Print one line."`
	Logfmt      bool   `xor:"form" help:"Print one line of logfmt."`
}

// Help is the end of --help.
func (c *summaryCmd) Help() string { return summaryHelp }

// Run prints the summary.
func (c *summaryCmd) Run(e *env) error {
	from, err := c.client(e)
	if err != nil {
		return err
	}
	r, err := find(context.Background(), from, c.ID)
	if err != nil {
		return err
	}
	switch {
	case c.JSON:
		return summary.JSON(e.stdout, r)
	case c.Markdown:
		return summary.Markdown(e.stdout, r)
	case c.Short:
		_, err = fmt.Fprintln(e.stdout, summary.Short(r))
	case c.Logfmt:
		_, err = fmt.Fprintln(e.stdout, summary.Logfmt(r))
	default:
		err = summary.Text(e.stdout, r, summary.TextOptions{UTF8: utf8Locale(e.getenv), Width: summary.Columns})
	}
	return err
}
