// Command cimeter is the CI meter: it tells what every build of a CI fleet cost,
// stage by stage.
//
// This package owns flags, exit codes and wiring: flags become a
// [config.Config], that becomes the options of a role, and the role runs. It
// holds no logic of its own. Start reading at run; each sub-command is one file.
// Only the role that is started makes goroutines.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/prometheus/common/promslog"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/loglimit"
)

// The exit codes that are cimeter's own; run passes on those of its command.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// exitCode is an error that ends the process with its number and says nothing:
// what there was to say is said.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit %d", int(c)) }

// env is what a sub-command may touch of its surroundings.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	parser         *kong.Kong
	log            logFlags
}

// logFlags are the flags of Prometheus' own programs.
type logFlags struct {
	Level  string `name:"log.level" enum:",debug,info,warn,error" default:"" env:"CIMETER_LOG_LEVEL" placeholder:"LEVEL" help:"Least severe level to log: debug, info, warn or error."`
	Format string `name:"log.format" enum:",logfmt,json" default:"" env:"CIMETER_LOG_FORMAT" placeholder:"FORMAT" help:"Form of a log line: logfmt or json."`
}

// cli is the command line.
type cli struct {
	Log logFlags `embed:""`

	Agent      agentCmd      `cmd:"" group:"meter" help:"Meter the builds on this machine."`
	Up         upCmd         `cmd:"" group:"meter" help:"Agent and server in one process."`
	Server     serverCmd     `cmd:"" group:"meter" help:"Keep and show the builds of many agents."`
	Run        runCmd        `cmd:"" group:"meter" help:"Meter one command, with no agent."`
	Push       pushCmd       `cmd:"" group:"meter" help:"Send records of run to a server."`
	Top        topCmd        `cmd:"" group:"read" help:"Show what runs now."`
	Queue      queueCmd      `cmd:"" group:"read" help:"Show what waits for a worker, or cancel a build."`
	Builds     buildsCmd     `cmd:"" group:"read" help:"List finished builds, newest first."`
	Summary    summaryCmd    `cmd:"" group:"read" help:"Show what one build cost."`
	Compare    compareCmd    `cmd:"" group:"read" help:"Lay two builds side by side."`
	Check      checkCmd      `cmd:"" group:"look" help:"Check the configuration and what this machine lets cimeter meter."`
	Install    installCmd    `cmd:"" group:"look" help:"Put agent or server on this machine, or take it away."`
	Completion completionCmd `cmd:"" group:"look" help:"Print a completion script for a shell."`
	Backfill   backfillCmd   `cmd:"" group:"look" help:"Fill a server's store with what CI servers tell of the past."`
	Store      storeCmd      `cmd:"" group:"look" help:"Migrate a server's store, or back it up."`
	Token      tokenCmd      `cmd:"" group:"look" help:"Make a token for a server."`
	Version    versionCmd    `cmd:"" group:"look" help:"Print the version."`
}

// agentCmd is the agent role; its Run is in agent.go.
type agentCmd struct {
	agentFlags `embed:""`
}

// Help is the end of --help.
func (c *agentCmd) Help() string { return agentHelp }

// agentFlags are the settings that have a flag.
type agentFlags struct {
	Config    string `type:"path" env:"CIMETER_CONFIG" placeholder:"FILE" help:"Configuration file (YAML). Flags win over it."`
	Listen    string `env:"CIMETER_LISTEN" placeholder:"ADDR" help:"Address to serve metrics and API at; :9808 where nothing is said."`
	Data      string `type:"path" env:"CIMETER_DATA" placeholder:"DIR" help:"Directory of the records; /var/lib/cimeter where nothing is said."`
	Machine   string `env:"CIMETER_MACHINE" placeholder:"NAME" help:"Name of this machine; the host's name where nothing is said."`
	WebConfig string `name:"web.config.file" type:"path" env:"CIMETER_WEB_CONFIG_FILE" placeholder:"FILE" help:"TLS and basic auth, in the form of the Prometheus exporter toolkit."`

	Engines engineFlags `embed:""`
	Debug   debugFlags  `embed:""`
}

// load returns the settings of the file with the flags laid over it.
func (c *agentFlags) load(e *env) (config.Config, error) {
	var over []config.Override
	for _, f := range []struct{ path, value, flag string }{
		{"listen", c.Listen, "--listen"},
		{"data", c.Data, "--data"},
		{"machine", c.Machine, "--machine"},
		{"web_config_file", c.WebConfig, "--web.config.file"},
		{"log.level", e.log.Level, "--log.level"},
		{"log.format", e.log.Format, "--log.format"},
	} {
		if f.value != "" {
			over = append(over, config.Override{Path: f.path, Value: f.value, Source: f.flag})
		}
	}
	over = append(over, c.Engines.overrides()...)
	return config.Load(c.Config, append(over, c.Debug.overrides()...)...)
}

// logWindow is the time within which the same fault is logged once.
const logWindow = time.Minute

// logger returns a logger in the manner of Prometheus' own programs, and the
// limit on its repeats: flush that at the end.
func (e *env) logger(c config.Log) (_ *slog.Logger, limit *loglimit.Handler) {
	level, format := promslog.NewLevel(), promslog.NewFormat()
	if err := errors.Join(level.Set(c.Level), format.Set(c.Format)); err != nil {
		panic(err) // config lets nothing else through
	}
	lines := promslog.New(&promslog.Config{Level: level, Format: format, Writer: e.stderr})
	// One of each kind for each server, output and so on: the failure of one must
	// not hide that of another.
	limit = loglimit.New(lines.Handler(), logWindow, "server", "output", "name", "engine", "ci", "registry", "service", "route", "address")
	return slog.New(limit), limit
}

// drainTime bounds how long a role may take to stop after the first signal:
// less than the 10 s that docker stop and half of what most others wait.
const drainTime = 10 * time.Second

// untilSignal returns a context that SIGTERM or SIGINT ends. After that the
// role has drainTime to stop; a second signal ends the process at once. Call
// stop when the role is gone.
func untilSignal() (ctx context.Context, stop func()) { return drainUntilSignal(drainTime) }

func drainUntilSignal(drain time.Duration) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	stopped := make(chan struct{})
	go func() {
		select {
		case <-stopped:
			return
		case <-signals:
		}
		signal.Stop(signals) // before anybody learns of the first: the next has its default effect
		cancel()
		select {
		case <-stopped:
		case <-time.After(drain):
			os.Exit(exitFailure)
		}
	}()
	return ctx, func() {
		close(stopped)
		signal.Stop(signals)
		cancel()
	}
}

// commands returns the command line to parse args by. Run's is one of its own:
// to look at all the others takes a millisecond of each command that it meters.
func commands(args []string) (grammar any, log *logFlags) {
	if len(args) > 0 && args[0] == "run" {
		c := &struct {
			Log logFlags `embed:""`
			Run runCmd   `cmd:"" group:"meter" help:"Meter one command, with no agent."`
		}{}
		return c, &c.Log
	}
	c := &cli{}
	return c, &c.Log
}

// run is the program. It returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	// Kong ends the process after --help; unwind instead, so that tests go on.
	type exit int
	defer func() {
		if r := recover(); r != nil {
			c, ok := r.(exit)
			if !ok {
				panic(r)
			}
			code = int(c)
		}
	}()
	switch { // what people try first
	case len(args) == 0:
		args = []string{"--help"}
	case args[0] == "help":
		args = append(slices.Clone(args[1:]), "--help")
	case args[0] == "--version":
		args = append([]string{"version"}, args[1:]...)
	}
	grammar, log := commands(args)
	parser, err := kong.New(grammar,
		kong.Name("cimeter"),
		kong.Description(description),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(exit(code)) }),
		kong.Help(printHelp),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 100}),
		kong.ExplicitGroups([]kong.Group{
			{Key: "meter", Title: "Meter:"}, {Key: "read", Title: "Read:"}, {Key: "look", Title: "Set up:"}, {Key: "job", Title: "Inside of a job:"},
		}),
	)
	if err != nil {
		panic(err) // a tag of cli is wrong
	}
	ctx, err := parser.Parse(args)
	if err != nil {
		usage(err, stderr)
		return exitUsage
	}
	e := &env{stdin: stdin, stdout: stdout, stderr: stderr, getenv: os.Getenv, parser: parser, log: *log}
	err = ctx.Run(e)
	var status exitCode
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	}
	fmt.Fprintf(stderr, "cimeter: %s\n", strings.ReplaceAll(plain(err), "\n", "\ncimeter: "))
	return exitFailure
}

// plain is what an error says to people: without the word at its end that tells
// programs what kind it is of.
func plain(err error) string {
	s := err.Error()
	for _, kind := range []error{cimeter.ErrInvalid, cimeter.ErrUnavailable} {
		if errors.Is(err, kind) {
			s = strings.TrimSuffix(s, ": "+kind.Error())
		}
	}
	return s
}

// runSummary is how Kong writes the arguments of run; all that follows the
// command is the command's, so flags come before it.
const runSummary, runArguments = "run <command> ... [flags]", "run [flags] [--] <command> ..."

// printHelp prints --help.
func printHelp(o kong.HelpOptions, ctx *kong.Context) error {
	var b bytes.Buffer
	w := ctx.Stdout
	ctx.Stdout = &b
	err := kong.DefaultHelpPrinter(o, ctx)
	ctx.Stdout = w
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, strings.Replace(b.String(), runSummary, runArguments, 1))
	return err
}

// usage prints what was wrong with the command line and how it is meant.
func usage(err error, stderr io.Writer) {
	// Kong lists the empty value, which only stands for "not given".
	fmt.Fprintf(stderr, "cimeter: %s\n", strings.Replace(err.Error(), `one of "",`, "one of ", 1))
	path, summary := "cimeter", "cimeter <command> [flags]"
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if cmd := parse.Context.Selected(); cmd != nil {
			path, summary = "cimeter "+cmd.Path(), "cimeter "+cmd.Summary()
		}
	}
	fmt.Fprintf(stderr, "Usage: %s\nRun \"%s --help\" for more.\n", strings.Replace(summary, runSummary, runArguments, 1), path)
}
