package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/client"
	"github.com/cimeter/cimeter/internal/section"
	"github.com/cimeter/cimeter/internal/summary"
)

// summaryCmd shows one build.
type summaryCmd struct {
	serverFlags `embed:""`
	jobFlags    `embed:""`
	ID          string `arg:"" optional:"" help:"Key of the build, or what only its key ends with, such as the job's number. Without one it is the build that this runs in."`
	JSON        bool   `name:"json" xor:"form" help:"Print the record as JSON."`
	Markdown    bool   `xor:"form" help:"Print a table for a merge request."`
	Short       bool   `xor:"form" help:"Print one line."`
	Logfmt      bool   `xor:"form" help:"Print one line of logfmt."`
}

// Help is the end of --help.
func (c *summaryCmd) Help() string { return summaryHelp }

// Run prints the summary.
func (c *summaryCmd) Run(e *env) error {
	if c.ID == "" {
		return c.runInJob(e)
	}
	if c.writes() {
		fmt.Fprintln(e.stderr, "cimeter: summary: a build and a report: want reports from inside of a job only")
		return exitCode(exitUsage)
	}
	from, err := c.client(e)
	if err != nil {
		return err
	}
	r, err := find(context.Background(), from, c.ID)
	if err != nil {
		return err
	}
	if !c.JSON {
		if printed, err := c.form(e, r); printed {
			return err
		}
	}
	o := summary.TextOptions{UTF8: utf8Locale(e.getenv), Width: summary.Columns}
	if parts, err := from.Sections(context.Background(), r.Key); err == nil { // an agent, or an older server, has none
		o.Sections = &parts
	}
	if c.JSON {
		return summary.JSONDivided(e.stdout, section.Divided{Record: r, Sections: o.Sections})
	}
	if on, err := from.Machines(context.Background(), r.Key); err == nil { // the same
		o.Machines = on
	}
	if r.Metered != cimeter.Some(false) {
		o.Usual = usualOf(from, r)
	}
	return summary.Text(e.stdout, r, o)
}

// usualSought is how many builds of a job are looked at for usualBuilds that ended
// before the one that is shown.
const usualSought = 100

// usualOf is what the job's last builds before r that succeeded cost; nil where they are
// not to be had, which costs the summary a line.
func usualOf(from *client.Client, r *cimeter.Record) *summary.Usual {
	if r.Project == "" || r.Name == "" {
		return nil
	}
	all, _, err := from.Builds(context.Background(), client.Filter{CI: r.CI, Project: r.Project, Name: r.Name, Result: "success", Limit: usualSought})
	if err != nil {
		return nil
	}
	before := slices.DeleteFunc(ofServer(all, r.Server), func(b *cimeter.Record) bool { return b.Key == r.Key || !b.EndedAt.Before(r.EndedAt) })
	return summary.NewHistory(before[:min(len(before), usualBuilds)]).Usual(r)
}

// form prints the form that was asked for; false: none was.
func (c *summaryCmd) form(e *env, r *cimeter.Record) (printed bool, err error) {
	switch {
	case c.JSON:
		return true, summary.JSON(e.stdout, r)
	case c.Markdown:
		return true, summary.Markdown(e.stdout, r)
	case c.Short:
		_, err = fmt.Fprintln(e.stdout, summary.ShortLog(r))
	case c.Logfmt:
		_, err = fmt.Fprintln(e.stdout, summary.Logfmt(r))
	default:
		return false, nil
	}
	return true, err
}

// jobFlags are those of a summary inside of a job.
type jobFlags struct {
	Socket      string        `group:"job" env:"CIMETER_SOCKET" placeholder:"PATH" help:"Socket of the agent; /run/cimeter/job.sock where nothing is said."`
	Timeout     time.Duration `group:"job" default:"300ms" help:"Longest to wait for the agent."`
	Failed      string        `group:"job" env:"CIMETER_SUMMARY_FAILED" placeholder:"never|short|full" help:"What to print in the log of a failed job, whose last lines tell why: nothing (never, where nothing is said), one line (short) or all of it (full)."`
	Status      string        `group:"job" placeholder:"STATUS" help:"How the job stands: success, failure or cancelled. The CI system's variables tell where nothing is said."`
	Quiet       bool          `group:"job" help:"Print no text, write reports only."`
	Strict      bool          `group:"job" help:"Exit with 1 and say why when there is no summary. Else that is silent and 0."`
	Metrics     string        `group:"job" name:"gitlab-metrics" type:"path" placeholder:"FILE" help:"Write the figures for artifacts:reports:metrics."`
	Annotations string        `group:"job" name:"gitlab-annotations" type:"path" placeholder:"FILE" help:"Write the link to the build's page for artifacts:reports:annotations."`
	GitHub      bool          `group:"job" name:"github" help:"Append a table to the file of $$GITHUB_STEP_SUMMARY (GitHub, Gitea)."`
	Card        bool          `group:"job" name:"drone-card" help:"Give the step of Drone a card."`
	CardSchema  string        `group:"job" name:"drone-card-schema" placeholder:"URL" default:"https://raw.githubusercontent.com/cimeter/cimeter/main/docs/drone-card.json" help:"Address of the card's template, which the reader's browser gets."`
	Buildkite   bool          `group:"job" name:"buildkite" help:"Make an annotation, by buildkite-agent where there is one; else print it."`
}

// writes reports whether a report was asked for.
func (f *jobFlags) writes() bool {
	return f.Metrics != "" || f.Annotations != "" || f.GitHub || f.Card || f.Buildkite
}
