package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/jobsocket"
	"github.com/cimeter/cimeter/internal/summary"
)

// Bounds of a summary inside of a job.
const (
	maxStepSummary = 64 << 10         // of the megabyte that GitHub takes of a step
	annotateTime   = 10 * time.Second // of buildkite-agent, which asks its server
)

// runInJob prints the summary of the build that this process is a part of. It
// never fails the job: without an agent, or when it is late, there is nothing.
func (c *summaryCmd) runInJob(e *env) error {
	err := c.inJob(e)
	if err != nil && c.Strict {
		return err
	}
	return nil
}

func (c *summaryCmd) inJob(e *env) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	a, err := jobsocket.Ask(ctx, cmp.Or(c.Socket, jobsocket.DefaultPath))
	if err != nil {
		return err
	}
	err = c.print(e, a)
	// Reports are for other places than the log: they are written whatever the
	// job's result is. One that fails keeps no other back.
	return errors.Join(err, c.report(e, a))
}

// print writes to the job's log, as far as a failed job wants it.
func (c *summaryCmd) print(e *env, a *jobsocket.Answer) error {
	if c.Quiet {
		return nil
	}
	if printed, err := c.form(e, a.Record); printed {
		return err
	}
	if jobFailed(c.jobFlags.Status, e.getenv, a.Record) {
		switch c.Failed {
		case "full":
		case "short":
			_, err := fmt.Fprintln(e.stdout, summary.ShortLog(a.Record))
			return err
		case "", "never":
			return nil
		default: // a job may set the variable as it likes: that fails no job either
			return fmt.Errorf("--failed %.40q: want never, short or full", c.Failed)
		}
	}
	return summary.Log(e.stdout, a.Record, summary.LogOptions{
		TextOptions: summary.TextOptions{
			UTF8: utf8Locale(e.getenv), Width: summary.Columns, Machine: a.Machine, Usual: a.Usual, URL: a.URL,
		},
		Section: e.getenv("GITLAB_CI") != "", At: time.Now(),
	})
}

// jobFailed reports whether a job failed or was canceled: by what the caller
// says, the variables that a CI system sets for what runs after a failure, or
// the exit codes that the agent saw.
func jobFailed(status string, getenv func(string) string, r *cimeter.Record) bool {
	for _, s := range []string{
		status, getenv("CI_JOB_STATUS"), getenv("DRONE_STAGE_STATUS"), getenv("DRONE_BUILD_STATUS"), getenv("CI_PIPELINE_STATUS"),
	} {
		switch strings.ToLower(s) {
		case "failed", "failure", "error", "killed", "canceled", "cancelled":
			return true
		case "success":
			return false
		}
	}
	if code := getenv("BUILDKITE_COMMAND_EXIT_STATUS"); code != "" {
		return code != "0"
	}
	type last struct{ attempt, code int }
	stages := map[string]last{}
	for i := range r.Stages {
		s := &r.Stages[i]
		if s.Alongside || !s.ExitCode.Known || s.Name == "after_script" || s.Attempt < stages[s.Name].attempt {
			continue
		}
		stages[s.Name] = last{s.Attempt, s.ExitCode.Value}
	}
	for _, s := range stages {
		if s.code != 0 {
			return true
		}
	}
	return false
}

// report writes the reports that were asked for.
func (c *summaryCmd) report(e *env, a *jobsocket.Answer) error {
	var errs []error
	if c.Metrics != "" {
		errs = append(errs, writeReport(c.Metrics, os.O_TRUNC, func(w io.Writer) error { return summary.OpenMetrics(w, a.Record) }))
	}
	if c.Annotations != "" {
		errs = append(errs, writeReport(c.Annotations, os.O_TRUNC, func(w io.Writer) error { return summary.Annotations(w, a.URL) }))
	}
	if c.GitHub {
		errs = append(errs, stepSummary(e.getenv("GITHUB_STEP_SUMMARY"), a))
	}
	if c.Card {
		errs = append(errs, droneCard(e, a, c.CardSchema))
	}
	if c.Buildkite {
		errs = append(errs, annotate(e, a))
	}
	return errors.Join(errs...)
}

// writeReport writes a file in one piece.
func writeReport(path string, how int, f func(io.Writer) error) error {
	var b bytes.Buffer
	if err := f(&b); err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|how, 0o644)
	if err != nil {
		return err
	}
	_, err = out.Write(b.Bytes())
	return errors.Join(err, out.Close())
}

// markdownPage writes a build as markdown, with the link to its page.
func markdownPage(w io.Writer, a *jobsocket.Answer) error {
	if err := summary.Markdown(w, a.Record); err != nil {
		return err
	}
	if s := a.Usual.Line(); s != "" {
		if _, err := fmt.Fprintf(w, "\n%s.\n", s); err != nil { // of figures and words of ours alone
			return err
		}
	}
	if a.URL == "" {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n[More of this build](<%s>)\n", a.URL)
	return err
}

// stepSummary appends to the page of a job of GitHub or Gitea.
func stepSummary(path string, a *jobsocket.Answer) error {
	if path == "" {
		return errors.New("GITHUB_STEP_SUMMARY is not set: want it from the runner")
	}
	return writeReport(path, os.O_APPEND, func(w io.Writer) error {
		var b bytes.Buffer
		if err := markdownPage(&b, a); err != nil {
			return err
		}
		if b.Len() > maxStepSummary {
			return fmt.Errorf("the summary has %d bytes: want at most %d", b.Len(), maxStepSummary)
		}
		_, err := w.Write(b.Bytes())
		return err
	})
}

// droneCard gives a step its card: in the file that Drone names, or through the
// log.
func droneCard(e *env, a *jobsocket.Answer, schema string) error {
	card, err := summary.DroneCard(a.Record, a.Usual, a.URL, schema)
	if err != nil {
		return err
	}
	path := e.getenv("DRONE_CARD_PATH")
	if path == "" || path == "/dev/stdout" {
		_, err = e.stdout.Write(summary.InLog(card))
		return err
	}
	return writeReport(path, os.O_TRUNC, func(w io.Writer) error { _, err := w.Write(card); return err })
}

// annotate makes an annotation of Buildkite.
func annotate(e *env, a *jobsocket.Answer) error {
	var b bytes.Buffer
	if err := markdownPage(&b, a); err != nil {
		return err
	}
	program, err := exec.LookPath("buildkite-agent")
	if err != nil {
		_, err = e.stdout.Write(b.Bytes())
		return err
	}
	style := "info"
	if summary.Wrong(a.Record) != "" {
		style = "warning"
	}
	ctx, cancel := context.WithTimeout(context.Background(), annotateTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "annotate", "--style", style, "--context", "cimeter", "--append") // the text goes to its standard input
	cmd.Stdin = &b
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("buildkite-agent annotate: %w: %.200q", err, out)
	}
	return nil
}
