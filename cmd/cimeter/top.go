package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/client"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/summary"
	"github.com/cimeter/cimeter/internal/terminal"
)

// topCmd shows what runs now.
type topCmd struct {
	serverFlags `embed:""`
	Once        bool          `help:"Print the table once, as plain text, also on a terminal."`
	Format      string        `enum:"table,json,csv" default:"table" help:"Form of what is printed once: table, json or csv; the others than table imply --once."`
	Interval    time.Duration `default:"2s" placeholder:"TIME" help:"Time between two readings, 250ms or more; default ${default}."`
	Color       string        `enum:"auto,never" default:"auto" help:"auto, or never; NO_COLOR does the same."`
}

// Help is the end of --help.
func (c *topCmd) Help() string { return topHelp }

// Validate refuses an interval that would be all that the agent does.
func (c *topCmd) Validate() error {
	if c.Interval < 250*time.Millisecond || c.Interval > time.Hour {
		return fmt.Errorf("--interval: %s: want 250ms to 1h", c.Interval)
	}
	return nil
}

// Run shows the table until it is told to end, or once where there is no
// terminal.
func (c *topCmd) Run(e *env) error {
	from, err := c.client(e)
	if err != nil {
		return err
	}
	in, isFile := e.stdin.(*os.File)
	out, isFile2 := e.stdout.(*os.File)
	if !c.Once && c.Format == "table" && isFile && isFile2 && e.getenv("TERM") != "dumb" {
		if screen, err := openScreen(in, out); err == nil {
			o := terminal.Options{Source: from.Address(), UTF8: utf8Locale(e.getenv), Color: c.Color == "auto" && e.getenv("NO_COLOR") == ""}
			top := terminal.NewTop(o)
			return live(screen, top, c.Interval, func(ctx context.Context) (func(), error) {
				rows, note, err := c.read(ctx, from)
				return func() { top.Show(rows, note, time.Now()) }, err
			})
		}
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
		width, convErr := strconv.Atoi(e.getenv("COLUMNS"))
		if convErr != nil || width < 1 {
			width = 160 // of a pipe or a file: all figures, but for what only names
		}
		b.WriteString(terminal.Table(rows, width, utf8Locale(e.getenv)))
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

// minFrame is the least time between two frames: four a second.
const minFrame = 250 * time.Millisecond

// view is what is shown live.
type view interface {
	Press(k terminal.Key) (quit bool)
	Fail(why string, now time.Time)
	Frame(width, height int, now time.Time) string
}

// live shows a view until a key or a signal ends it. One goroutine reads the keys
// and one asks; only this one draws, and shows what read gives.
func live(s *screen, v view, interval time.Duration, read func(context.Context) (show func(), err error)) (err error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGCONT)
	defer signal.Stop(signals)
	if err := s.begin(); err != nil {
		return fmt.Errorf("set up the terminal: %w", err)
	}
	defer func() { err = errors.Join(err, s.restore()) }() // also when this panics
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	type answer struct {
		show func()
		err  error
	}
	answers := make(chan answer)
	go func() {
		for {
			show, err := read(ctx)
			select {
			case answers <- answer{show, err}:
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(interval):
			case <-ctx.Done():
				return
			}
		}
	}()
	keys := make(chan []terminal.Key)
	go s.readKeys(ctx, keys) // ends with the process: nothing else ends a read of a terminal

	draw := func() error {
		width, height := s.size()
		return s.write(v.Frame(width, height, time.Now()))
	}
	second := time.NewTicker(time.Second) // ages are shown
	defer second.Stop()
	last := time.Now()
	if err := draw(); err != nil {
		return err
	}
	var due <-chan time.Time
	for {
		select {
		case a := <-answers:
			if a.err != nil {
				v.Fail(a.err.Error(), time.Now())
			} else {
				a.show()
			}
		case pressed, ok := <-keys:
			if !ok {
				return nil // the terminal is gone
			}
			for _, k := range pressed {
				if v.Press(k) {
					return nil
				}
			}
		case sig := <-signals:
			switch sig {
			case syscall.SIGWINCH:
			case syscall.SIGCONT: // whoever stopped it used the terminal
				if err := s.begin(); err != nil {
					return err
				}
			default:
				return exitCode(128 + int(sig.(syscall.Signal)))
			}
		case <-second.C:
		case <-due:
			due = nil
			last = time.Now()
			if err := draw(); err != nil {
				return err
			}
			continue
		}
		if due == nil {
			due = time.After(max(0, minFrame-time.Since(last)))
		}
	}
}

// screen is the terminal while it shows the table.
type screen struct {
	in, out *os.File
	before  *unix.Termios // as it was
}

// openScreen fails when one of the two is no terminal.
func openScreen(in, out *os.File) (*screen, error) {
	before, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	if _, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS); err != nil {
		return nil, err
	}
	return &screen{in, out, before}, nil
}

// begin takes the terminal: each key at once, unseen (termios(3), "raw mode").
func (s *screen) begin() error {
	raw := *s.before
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(s.in.Fd()), unix.TCSETS, &raw); err != nil {
		return err
	}
	return s.write(terminal.Begin)
}

// restore gives the terminal back as it was.
func (s *screen) restore() error {
	return errors.Join(s.write(terminal.Restore), unix.IoctlSetTermios(int(s.in.Fd()), unix.TCSETS, s.before))
}

func (s *screen) write(text string) error {
	_, err := s.out.WriteString(text)
	return err
}

// size is that of the terminal, 80 by 24 where it does not tell.
func (s *screen) size() (width, height int) {
	w, err := unix.IoctlGetWinsize(int(s.out.Fd()), unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 || w.Row == 0 {
		return 80, 24
	}
	return int(w.Col), int(w.Row)
}

// readKeys sends what is pressed until the terminal is gone; then it closes keys.
func (s *screen) readKeys(ctx context.Context, keys chan<- []terminal.Key) {
	defer close(keys)
	b := make([]byte, 256)
	for {
		n, err := s.in.Read(b)
		if n > 0 {
			select {
			case keys <- terminal.Keys(b[:n]):
			case <-ctx.Done():
				return
			}
		}
		if err != nil || n == 0 {
			return
		}
	}
}
