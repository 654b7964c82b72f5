package main

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
	"github.com/cimeter/cimeter/internal/summary"
	"github.com/cimeter/cimeter/internal/wrap"
)

// runCmd meters one command without an agent.
type runCmd struct {
	Stage   string   `placeholder:"NAME" help:"Name of the stage that the command is."`
	Project string   `env:"CIMETER_PROJECT" placeholder:"P" help:"Project that the build belongs to."`
	Name    string   `placeholder:"NAME" help:"Name of the build; the command's where nothing is said."`
	Summary string   `type:"path" placeholder:"FILE" help:"Write the summary to FILE and not to standard error; - is standard output."`
	JSON    string   `name:"json" type:"path" placeholder:"FILE" help:"Write the record to FILE; - is standard output."`
	Command []string `arg:"" passthrough:"partial" help:"Command to run, after --."`
}

// Run runs the command, says what it cost, and ends as the command ended.
func (c *runCmd) Run(e *env) error {
	argv := c.Command
	if len(argv) > 0 && argv[0] == "--" {
		argv = argv[1:]
	}
	if len(argv) == 0 {
		fmt.Fprintln(e.stderr, "cimeter: run: no command: want cimeter run [flags] -- COMMAND")
		return exitCode(exitUsage)
	}
	record, text := openOutput(c.JSON), openOutput(c.Summary)
	machine, _ := os.Hostname()
	dir, _ := os.Getwd()
	rep, err := wrap.Run(wrap.Options{
		Command: argv, Env: os.Environ(), Getenv: e.getenv, Dir: dir, Machine: machine, Pid: os.Getpid(),
		Stage: c.Stage, Project: c.Project, Name: c.Name,
		Proc: "/proc", Open: openGroup(),
	})
	if start := (*wrap.StartError)(nil); errors.As(err, &start) {
		fmt.Fprintf(e.stderr, "cimeter: run: %v\n", start)
		return exitCode(start.Code)
	}
	if rep == nil {
		return err
	}
	missed := rep.Missed
	if err != nil {
		missed = append(missed, fmt.Sprintf("the end of the command (%v)", err))
	}
	write := func(out *output, f func(io.Writer) error) {
		if err := out.write(f); err != nil {
			missed = append(missed, fmt.Sprintf("%s (%v)", out.path, err))
		}
	}
	if c.JSON != "" {
		write(record, func(w io.Writer) error { return summary.JSON(w, &rep.Record) })
	}
	print := func(w io.Writer) error { return printRun(w, e.getenv, rep) }
	switch {
	case c.Summary != "":
		write(text, print)
	case !rep.Nested:
		_ = print(e.stderr)
	}
	if len(missed) > 0 && !rep.Nested {
		fmt.Fprintf(e.stderr, "cimeter: run: not measured or not written: %s\n", strings.Join(missed, "; "))
	}
	if err != nil {
		return exitCode(exitFailure)
	}
	if rep.Status.Signaled() {
		wrap.Die(rep.Status.Signal())
		return exitCode(128 + int(rep.Status.Signal()))
	}
	return exitCode(rep.Status.ExitStatus())
}

// printRun prints the summary of a run.
func printRun(w io.Writer, getenv func(string) string, rep *wrap.Report) error {
	b := bufio.NewWriter(w)
	r := rep.Record
	if rep.Left > 0 { // told in better words below
		r.Complete, r.Gaps = true, nil
	}
	err := summary.Text(b, &r, summary.TextOptions{UTF8: utf8Locale(getenv), Width: summary.Columns, Machine: machineLimits()})
	label := "  *"
	if len(r.Stages) > 1 {
		label = "left  "
	}
	if rep.Left == 1 {
		fmt.Fprintln(b, label, "1 process runs on: it was counted until now")
	} else if rep.Left > 1 {
		fmt.Fprintln(b, label, rep.Left, "processes run on: they were counted until now")
	}
	return errors.Join(err, b.Flush())
}

// machineLimits are the processors that this process may run on and the
// machine's memory (sysinfo(2)).
func machineLimits() cimeter.Limits {
	l := cimeter.Limits{CPUCores: cimeter.Some(float64(runtime.NumCPU()))}
	var s syscall.Sysinfo_t
	if syscall.Sysinfo(&s) == nil {
		l.MemoryBytes = cimeter.Some(uint64(s.Totalram) * uint64(s.Unit))
	}
	return l
}

// utf8Locale reports whether the locale's characters are UTF-8 (setlocale(3)).
func utf8Locale(getenv func(string) string) bool {
	l := strings.ToLower(cmp.Or(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG")))
	return strings.Contains(l, "utf-8") || strings.Contains(l, "utf8")
}

// openGroup returns what opens the counters of a cgroup of this host.
func openGroup() func(string) (wrap.Group, cimeter.Limits, error) {
	var host *cgroup.Host
	return func(path string) (wrap.Group, cimeter.Limits, error) {
		var err error
		if host == nil {
			if host, err = cgroup.Open(cgroup.Options{}); err != nil {
				return nil, cimeter.Limits{}, err
			}
		}
		g, err := host.Group(path)
		if err != nil {
			return nil, cimeter.Limits{}, err
		}
		return runGroup{g}, g.Limits(), nil
	}
}

// runGroup is a cgroup as package wrap reads it.
type runGroup struct{ *cgroup.Group }

func (g runGroup) Read(s *cimeter.Sample, full bool) error {
	if full {
		return g.Group.Read(s, cgroup.Full)
	}
	return g.Group.Read(s, cgroup.Fast)
}

// output is a file that is written once, at the end.
type output struct {
	path string
	file *os.File // of a device or a standard stream: opened before the command has it alone
	err  error
}

// openOutput readies path. A plain file is made at the end, so that nobody ever
// sees half of it; what is there and is none (a device, a pipe) is written to,
// and not waited for.
func openOutput(path string) *output {
	o := &output{path: path}
	if path == "" {
		return o
	}
	if path == "-" { // the command has it alone in a moment
		o.path = "standard output"
		var fd int
		if fd, o.err = unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3); o.err == nil {
			o.file = os.NewFile(uintptr(fd), o.path)
		}
		return o
	}
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() && !fi.IsDir() {
		o.file, o.err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0)
	}
	return o
}

func (o *output) write(f func(io.Writer) error) error {
	if o.err != nil {
		return o.err
	}
	if o.file != nil {
		return reason(errors.Join(f(o.file), o.file.Close()))
	}
	// Whoever may read it is for the umask to say, as with a shell's redirection.
	name := filepath.Join(filepath.Dir(o.path), ".cimeter-"+rand.Text())
	tmp, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return reason(err)
	}
	err = errors.Join(f(tmp), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), o.path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return reason(err)
}

// reason is an error without the name of the file: it is named before it, and
// the one that is written to first nobody knows.
func reason(err error) error {
	var path *os.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &link):
		return link.Err
	case errors.As(err, &path):
		return path.Err
	}
	return err
}
