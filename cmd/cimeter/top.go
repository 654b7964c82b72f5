package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/client"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/summary"
	"github.com/cimeter/cimeter/internal/terminal"
)

// topCmd shows what runs now.
type topCmd struct {
	liveFlags `embed:""`
}

// Help is the end of --help.
func (c *topCmd) Help() string { return topHelp }

// Run shows the table until it is told to end, or once where there is no
// terminal.
func (c *topCmd) Run(e *env) error {
	from, err := c.client(e)
	if err != nil {
		return err
	}
	if screen, o, ok := c.screen(e, from); ok {
		top := terminal.NewTop(o)
		return live(screen, top, c.Interval, func(ctx context.Context) (func(), error) {
			rows, note, err := c.read(ctx, from)
			return func() { top.Show(rows, note, time.Now()) }, err
		})
	}
	return c.once(e, from)
}

// read asks once.
func (c *topCmd) read(ctx context.Context, from *client.Client) (rows []terminal.Running, note string, err error) {
	builds, machines, err := from.Running(ctx)
	if err != nil {
		return nil, "", err
	}
	now := time.Now()
	for i := range builds {
		b := &builds[i]
		r := terminal.Running{
			Key: b.Key, Project: b.Project, Name: b.Name, Number: b.Number, Stage: b.Stage, Machine: b.Machine, URL: b.URL, Runner: runnerName(b.Runner),
			ReadAt: b.ReadAt, CPUSeconds: b.CPUSeconds, DiskBytes: floating(b.DiskBytes), NetBytes: floating(b.NetworkBytes), MemoryBytes: floating(b.MemoryBytes),
			CoresLimit: b.Cores, MemoryLimit: floating(b.MemoryLimit), Away: b.Away,
		}
		if !b.StartedAt.IsZero() {
			r.Elapsed = max(0, now.Sub(b.StartedAt))
		}
		rows = append(rows, r)
	}
	if machines.Away > 0 {
		note = fmt.Sprintf("%d of %d machines away", machines.Away, machines.All)
	}
	return rows, note, nil
}

func floating(o cimeter.Opt[uint64]) cimeter.Opt[float64] {
	return cimeter.Opt[float64]{Value: float64(o.Value), Known: o.Known}
}

func runnerName(r cimeter.Runner) string {
	if r.Name != "" {
		return r.Name
	}
	return r.Key()
}

// once prints the table. It reads twice, an interval apart, so that there are
// rates; when nothing runs once is enough.
func (c *topCmd) once(e *env, from *client.Client) error {
	var rates terminal.Rates
	ctx, stop := untilSignal()
	defer stop()
	rows, _, err := c.read(ctx, from)
	if err != nil {
		return err
	}
	if rates.Fill(rows); len(rows) > 0 {
		select {
		case <-ctx.Done():
			return exitCode(exitFailure)
		case <-time.After(c.Interval):
		}
		if rows, _, err = c.read(ctx, from); err != nil {
			return err
		}
		rates.Fill(rows)
	}
	var b bytes.Buffer
	switch c.Format {
	case "json":
		err = runningJSON(&b, rows)
	case "csv":
		err = runningCSV(&b, rows)
	default:
		b.WriteString(terminal.Table(rows, width(e), utf8Locale(e.getenv)))
	}
	if err == nil {
		_, err = e.stdout.Write(b.Bytes())
	}
	return err
}

// runningRow is a build of the list in JSON. Names say the unit.
type runningRow struct {
	Key         string               `json:"key"`
	Project     string               `json:"project,omitempty"`
	Name        string               `json:"name,omitempty"`
	Stage       string               `json:"stage,omitempty"`
	Machine     string               `json:"machine,omitempty"`
	Runner      string               `json:"runner,omitempty"`
	Seconds     float64              `json:"elapsed_seconds"`
	Cores       cimeter.Opt[float64] `json:"cpu_cores,omitzero"`
	CPUSeconds  cimeter.Opt[float64] `json:"cpu_seconds,omitzero"`
	Memory      cimeter.Opt[float64] `json:"memory_bytes,omitzero"`
	Disk        cimeter.Opt[float64] `json:"io_bytes_per_second,omitzero"`
	Network     cimeter.Opt[float64] `json:"network_bytes_per_second,omitzero"`
	CoresLimit  cimeter.Opt[float64] `json:"limit_cpu_cores,omitzero"`
	MemoryLimit cimeter.Opt[float64] `json:"limit_memory_bytes,omitzero"`
	Away        bool                 `json:"away,omitempty"`
}

func rowsOf(rows []terminal.Running) []runningRow {
	all := []runningRow{}
	for _, r := range rows {
		all = append(all, runningRow{r.Key, r.Project, r.Name, r.Stage, r.Machine, r.Runner, r.Elapsed.Seconds(), r.Cores, r.CPUSeconds, r.MemoryBytes,
			r.DiskRate, r.NetRate, r.CoresLimit, r.MemoryLimit, r.Away})
	}
	return all
}

func runningJSON(b *bytes.Buffer, rows []terminal.Running) error {
	doc, err := json.MarshalIndent(map[string]any{"builds": rowsOf(rows)}, "", "  ")
	b.Write(append(display.JSON(doc), '\n'))
	return err
}

func runningCSV(b *bytes.Buffer, rows []terminal.Running) error {
	w := csv.NewWriter(b)
	_ = w.Write([]string{"key", "project", "name", "stage", "machine", "runner", "elapsed_seconds", "cpu_cores", "cpu_seconds", "memory_bytes",
		"io_bytes_per_second", "network_bytes_per_second", "limit_cpu_cores", "limit_memory_bytes", "away"})
	text, known := summary.CSVText, summary.CSVKnown[float64]
	for _, r := range rowsOf(rows) {
		_ = w.Write([]string{text(r.Key), text(r.Project), text(r.Name), text(r.Stage), text(r.Machine), text(r.Runner), known(cimeter.Some(r.Seconds)), known(r.Cores),
			known(r.CPUSeconds), known(r.Memory), known(r.Disk), known(r.Network), known(r.CoresLimit), known(r.MemoryLimit), strconv.FormatBool(r.Away)})
	}
	w.Flush()
	return w.Error() // a buffer refuses nothing
}
