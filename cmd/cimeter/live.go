package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter/internal/client"
	"github.com/cimeter/cimeter/internal/terminal"
)

// liveFlags are those of a table that is shown live on a terminal and once
// elsewhere.
type liveFlags struct {
	serverFlags `embed:""`
	Once        bool          `help:"Print the table once, as plain text, also on a terminal."`
	Format      string        `enum:"table,json,csv" default:"table" help:"Form of what is printed once: table, json or csv; the others than table imply --once."`
	JSON        bool          `name:"json" help:"The same as --format json."`
	Interval    time.Duration `default:"2s" placeholder:"TIME" help:"Time between two readings, 250ms or more; default ${default}."`
	Color       string        `enum:"auto,never" default:"auto" help:"auto, or never; NO_COLOR does the same."`
}

// Validate refuses an interval that would be all that who is asked does.
func (c *liveFlags) Validate() error {
	if c.Interval < 250*time.Millisecond || c.Interval > time.Hour {
		return fmt.Errorf("--interval: %s: want 250ms to 1h", c.Interval)
	}
	var err error
	c.Format, err = jsonOr(c.JSON, c.Format)
	return err
}

// jsonOr is the form that --json and --format ask for.
func jsonOr(json bool, format string) (string, error) {
	switch {
	case !json:
		return format, nil
	case format == "table" || format == "json": // table is what nothing said means too
		return "json", nil
	}
	return "", fmt.Errorf("--json: with --format %s: want one of the two", format)
}

// screen opens the terminal to show from's table live. ok is false where it is to
// be printed once: it was asked for, or there is no terminal.
func (c *liveFlags) screen(e *env, from *client.Client) (s *screen, o terminal.Options, ok bool) {
	in, isFile := e.stdin.(*os.File)
	out, isFile2 := e.stdout.(*os.File)
	if c.Once || c.Format != "table" || !isFile || !isFile2 || dumb(e) {
		return nil, o, false
	}
	s, err := openScreen(in, out)
	o = terminal.Options{Source: from.Address(), UTF8: utf8Locale(e.getenv), Color: c.Color == "auto" && e.getenv("NO_COLOR") == ""}
	return s, o, err == nil
}

// dumb reports that the terminal is one that obeys no escapes, or tells not what it is.
func dumb(e *env) bool {
	term := e.getenv("TERM")
	return term == "" || term == "dumb"
}

// width is how many columns a table has that is printed once: those of the terminal
// that it is printed on; of a pipe or a file, so many that all figures fit.
func width(e *env) int {
	if n, ok := columnsOf(e.stdout); ok {
		return n
	}
	if n, err := strconv.Atoi(e.getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	return 160
}

// columnsOf is the width of a terminal; false: it is none, or does not tell.
func columnsOf(out io.Writer) (n int, ok bool) {
	f, ok := out.(*os.File)
	if !ok {
		return 0, false
	}
	w, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 {
		return 0, false
	}
	return int(w.Col), true
}

// minFrame is the least time between two frames: four a second.
const minFrame = 250 * time.Millisecond

// view is what is shown live.
type view interface {
	Press(k terminal.Key) (quit bool)
	Fail(why string, now time.Time)
	Frame(width, height int, now time.Time) string
}

// crash is what a goroutine panicked with, and where.
type crash struct {
	cause any
	stack []byte
}

// caught runs f. A panic of it goes to crashed: here it would end the process with
// the terminal as it is.
func caught(crashed chan<- crash, f func()) {
	defer func() {
		if cause := recover(); cause != nil {
			crashed <- crash{cause, debug.Stack()}
		}
	}()
	f()
}

// live shows a view until a key or a signal ends it. One goroutine reads the keys
// and one asks; only this one draws, and shows what read gives. Whichever of them
// panics, the terminal is given back before the process says so and ends.
func live(s *screen, v view, interval time.Duration, read func(context.Context) (show func(), err error)) (err error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGCONT)
	defer signal.Stop(signals)
	defer func() { err = errors.Join(err, s.restore()) }() // also when this panics
	if err := s.begin(); err != nil {
		return fmt.Errorf("set up the terminal: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	type answer struct {
		show func()
		err  error
	}
	crashed := make(chan crash, 2) // one of each goroutine
	answers := make(chan answer)
	go caught(crashed, func() {
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
	})
	keys := make(chan []terminal.Key)
	go caught(crashed, func() { s.readKeys(ctx, keys) }) // ends with the process: nothing else ends a read of a terminal

	var last time.Time
	draw := func() error {
		last = time.Now()
		width, height := s.size()
		return s.write(v.Frame(width, height, last))
	}
	second := time.NewTicker(time.Second) // ages are shown
	defer second.Stop()
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
		case c := <-crashed:
			panic(fmt.Sprintf("%v\n\n%s", c.cause, c.stack))
		case <-second.C:
		case <-due:
			due = nil
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
	before  *unix.Termios               // as it was
	keys    func([]byte) []terminal.Key // reads what was typed
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
	return &screen{in, out, before, terminal.Keys}, nil
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
	b := make([]byte, 256)
	for {
		n, err := s.in.Read(b)
		if n > 0 {
			select {
			case keys <- s.keys(b[:n]):
			case <-ctx.Done():
				return
			}
		}
		if err != nil || n == 0 {
			close(keys) // not deferred: a panic is no end of the terminal
			return
		}
	}
}
