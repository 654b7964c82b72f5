package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/client"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/summary"
	"github.com/cimeter/cimeter/internal/terminal"
)

// queueCmd is what the CI servers tell.
type queueCmd struct {
	Show   queueShowCmd   `cmd:"" default:"withargs" help:"Show what waits and runs on the CI servers."`
	Cancel queueCancelCmd `cmd:"" help:"Have a build cancelled by its CI server."`
}

// Help is the end of --help.
func (c *queueCmd) Help() string { return queueHelp }

// queueShowCmd shows it.
type queueShowCmd struct {
	liveFlags `embed:""`
}

// Help is the end of --help.
func (c *queueShowCmd) Help() string { return queueHelp }

// Run shows the queue until it is told to end, or once where there is no terminal.
func (c *queueShowCmd) Run(e *env) error {
	from, err := c.client(e)
	if err != nil {
		return err
	}
	if screen, o, ok := c.screen(e, from); ok {
		shown := terminal.NewQueue(o)
		return live(screen, shown, c.Interval, func(ctx context.Context) (func(), error) {
			st, err := from.Queue(ctx)
			return func() { shown.Show(st, time.Now()) }, err
		})
	}
	ctx, stop := untilSignal()
	defer stop()
	st, err := from.Queue(ctx)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	switch c.Format {
	case "json":
		var doc []byte
		doc, err = json.MarshalIndent(st, "", "  ")
		b.Write(append(display.JSON(doc), '\n'))
	case "csv":
		err = queueCSV(&b, st.Builds)
	default:
		b.WriteString(terminal.QueueTable(st, width(e), utf8Locale(e.getenv)))
	}
	if err == nil {
		_, err = e.stdout.Write(b.Bytes())
	}
	return err
}

func queueCSV(b *bytes.Buffer, builds []queue.Build) error {
	w := csv.NewWriter(b)
	_ = w.Write([]string{"key", "server", "status", "project", "name", "tags", "waited_seconds", "ran_seconds", "why", "machine", "worker"})
	text, known := summary.CSVText, summary.CSVKnown[float64]
	for i := range builds {
		v := &builds[i]
		_ = w.Write([]string{text(v.Key), text(v.On), string(v.Status), text(v.Project), text(v.Name), text(strings.Join(v.Tags, " ")), known(v.Waited), known(v.Ran), string(v.Why), text(v.Machine), text(v.Worker)})
	}
	w.Flush()
	return w.Error() // a buffer refuses nothing
}

// queueCancelCmd cancels one build.
type queueCancelCmd struct {
	serverFlags `embed:""`
	ID          string `arg:"" help:"Key of the build, or the end of it after a slash."`
	CancelFile  string `name:"cancel-token-file" type:"path" env:"CIMETER_CANCEL_TOKEN_FILE" placeholder:"FILE" help:"File of a token of the role cancel, which may also be in $CIMETER_CANCEL_TOKEN."`
	Yes         bool   `short:"y" help:"Do not ask whether it is meant."`
}

// Help is the end of --help.
func (c *queueCancelCmd) Help() string { return cancelHelp }

// Run asks once whether it is meant, and then the server, once.
func (c *queueCancelCmd) Run(e *env) error {
	from, err := c.client(e)
	if err != nil {
		return err
	}
	token, err := config.ReadSecret("CIMETER_CANCEL_TOKEN", c.CancelFile, e.getenv)
	if err != nil {
		return err
	}
	if token.IsZero() {
		return fmt.Errorf("no token of the role cancel: want --cancel-token-file or $CIMETER_CANCEL_TOKEN; \"cimeter token --role cancel\" makes one")
	}
	ctx, stop := untilSignal()
	defer stop()
	b, err := waitingBuild(ctx, from, c.ID)
	if err != nil {
		return err
	}
	if !c.Yes {
		meant, err := c.ask(e, b)
		if err != nil {
			return err
		}
		if !meant {
			fmt.Fprintln(e.stdout, "Not cancelled.")
			return exitCode(exitFailure)
		}
	}
	if err := from.Cancel(ctx, b.Key, token.Reveal()); err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "%s was asked to cancel %s.\n", display.ASCII(b.On), display.ASCII(b.Key))
	return nil
}

// ask asks on a terminal; elsewhere nobody can answer.
func (c *queueCancelCmd) ask(e *env, b *queue.Build) (bool, error) {
	in, ok := e.stdin.(*os.File)
	if ok {
		_, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
		ok = err == nil
	}
	if !ok {
		return false, fmt.Errorf("cancel %s: nobody can be asked: want --yes", display.ASCII(b.Key))
	}
	fmt.Fprintf(e.stdout, "Cancel %s (%s, %s, %s)? [y/N] ", display.ASCII(b.Key), display.ASCII(cmp.Or(b.Project, "-")), display.ASCII(cmp.Or(b.Name, "-")), b.Status)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && line == "" {
		return false, nil
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}

// waitingBuild returns the build that waits or runs whose key is id, or else the only
// one whose key ends with /id.
func waitingBuild(ctx context.Context, from *client.Client, id string) (*queue.Build, error) {
	st, err := from.Queue(ctx)
	if err != nil {
		return nil, err
	}
	var found *queue.Build
	for i := range st.Builds {
		b := &st.Builds[i]
		if b.Key == id {
			return b, nil
		}
		if !strings.HasSuffix(b.Key, "/"+id) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("build %q: %s and %s end with it: want more of the key: %w", id, found.Key, b.Key, cimeter.ErrConflict)
		}
		found = b
	}
	if found == nil {
		return nil, fmt.Errorf("build %q: none that waits or runs has a key that ends with it: %w", id, cimeter.ErrNotFound)
	}
	return found, nil
}

const queueHelp = `
What the CI servers tell a server of cimeter: builds that wait for a worker, the longest wait first, with what they wait for; builds that are blocked by something else; builds that run, metered or not; and of each CI server how many there are, and how old that is.

Examples:

  cimeter queue
  cimeter queue --server https://cimeter.example.com --once
  cimeter queue --format json

Exit codes: 0 done; 1 it could not be read; 2 for a wrong command line.`

const cancelHelp = `
The build's own CI server is asked, by the server of cimeter, with the token of its setting ci_servers.cancel_token_file: once, and it is logged there.

Examples:

  cimeter queue cancel gitlab/gitlab.example.com/4242
  cimeter queue cancel 4242 --yes

Exit codes: 0 the CI server took it; 1 it did not, or it was not meant; 2 for a wrong command line.`
