package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/cimeter/cimeter/internal/cgroup"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/process"
)

// checkCmd checks the configuration and the machine.
type checkCmd struct {
	agentFlags `embed:""`
}

// Help is the end of --help.
func (c *checkCmd) Help() string { return checkHelp }

// askTime bounds each question that check asks of a daemon.
const askTime = 3 * time.Second

// Run prints every problem of the configuration and ends with 1 when there is
// one. Else it goes on to the machine.
func (c *checkCmd) Run(e *env) error {
	conf, err := c.load(e)
	if err == nil {
		_, err = newIdentifiers(conf.Agent, runnerJobs{})
	}
	if err != nil {
		fmt.Fprintln(e.stdout, err)
		return exitCode(exitFailure)
	}
	r := report{tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)}
	if c.Config == "" {
		r.line("configuration", "ok: no file, all defaults")
	} else {
		r.line("configuration", "ok: "+c.Config)
	}
	r.line("machine", conf.Machine)
	r.cgroups(&conf.Agent)
	r.engines(&conf.Agent)
	r.jobLists(conf.Agent.GitLabRunners)
	r.records(conf.Data)
	r.server(conf, e)
	r.store(conf)
	r.outputs(conf, e)
	r.sources(conf)
	r.discovery(conf, e)
	r.debug(conf, e)
	r.tokens(conf)
	r.ciServers(conf, e)
	r.capabilities(conf.Agent.Processes)
	return r.w.Flush()
}

// report is a table of what was found: a subject and a finding a line.
type report struct{ w *tabwriter.Writer }

func (r report) line(subject, finding string) {
	for i, l := range strings.Split(finding, "\n") {
		if i > 0 {
			subject = ""
		}
		fmt.Fprintf(r.w, "%s\t%s\n", subject, display.Clean(l))
	}
}

func (r report) cgroups(a *config.Agent) {
	host, err := cgroup.Open(cgroup.Options{Root: a.CgroupRoot, Proc: a.ProcRoot, Sys: a.SysRoot})
	if err != nil {
		r.line("cgroups", "nothing can be metered: "+err.Error())
		return
	}
	defer host.Close()
	r.line("cgroups", host.Layout()+", containers are watched below "+host.WatchDir())
	switch err := host.BlockIO(); {
	case err == nil:
		r.line("disk", "ok")
	case a.WakeBlockIO && writable(host.WatchDir()):
		r.line("disk", "not counted yet; cimeter agent wakes it (agent.wake_block_io): "+err.Error())
	default:
		r.line("disk", "not metered: "+err.Error())
	}
	if err := host.Pressure(); err != nil {
		r.line("pressure", "not metered: "+err.Error())
	} else {
		r.line("pressure", "ok")
	}
	if writable(host.WatchDir()) {
		r.line("cimeter run", "in a cgroup of its own")
	} else {
		r.line("cimeter run", "by the process tree, unless a cgroup v2 subtree is delegated to it: no memory peak, no disk bytes of other users' processes")
	}
}

// versioned is a container engine that tells its version.
type versioned interface {
	Version(ctx context.Context) (string, error)
}

func (r report) engines(a *config.Agent) {
	e, err := openEngines(a, nil)
	if err != nil {
		r.line("engines", err.Error())
		return
	}
	defer e.Close()
	if len(e.list) == 0 {
		r.line("engines", "none: no container is known, nothing of containers is metered by the agent")
	}
	for _, one := range e.list {
		ctx, cancel := context.WithTimeout(context.Background(), askTime)
		v, err := one.Engine.(versioned).Version(ctx)
		cancel()
		if err != nil {
			r.line(one.Name, "no answer; cimeter agent waits for it: "+plain(err))
			continue
		}
		r.line(one.Name, v)
	}
}

func (r report) jobLists(urls []string) {
	if len(urls) == 0 {
		r.line("job lists", "none: stages of GitLab jobs are told by command lines and order (agent.gitlab_runners)")
	}
	for _, u := range urls {
		l := gitlab.JobList{URL: u}
		ctx, cancel := context.WithTimeout(context.Background(), askTime)
		jobs, err := l.Fetch(ctx, nil)
		cancel()
		if err != nil {
			r.line("job list", plain(err))
			continue
		}
		r.line("job list", fmt.Sprintf("%s: %d jobs now", u, len(jobs)))
	}
}

func (r report) records(dir string) {
	switch st, err := os.Stat(dir); {
	case os.IsNotExist(err):
		r.line("records", dir+" is made at the first start")
	case err != nil:
		r.line("records", err.Error())
	case !st.IsDir():
		r.line("records", dir+" is not a directory: cimeter agent cannot start")
	case !writable(dir):
		r.line("records", dir+" cannot be written by this user: cimeter agent cannot start")
	case st.Mode().Perm()&0o077 != 0:
		r.line("records", fmt.Sprintf("%s has mode %#o: want 0700, jobs may read it", dir, st.Mode().Perm()))
	default:
		r.line("records", "ok: "+dir)
	}
}

// costs says what each capability that this process lacks costs it: it as user
// of check, so run check as the agent's. Counters of cgroups, networks and
// command lines need none.
var costs = [...]struct {
	need   process.Capabilities
	shells bool // only where builds are looked for that run in no container
	costs  string
}{
	{process.SysPtrace | process.DACReadSearch, true, "no build of another user that runs in no container (agent.processes)"},
	{process.SysPtrace | process.DACReadSearch, false, "no disk bytes of other users' processes, where cimeter run has no cgroup of its own"},
	{process.NetAdmin, true, "no events of processes: builds that run in no container are looked for once in an interval, and short processes may be missed (agent.processes)"},
	{process.SysNice, false, "no nice value of -10, unless whoever starts the agent gives it, as its unit does: last readings may come too late on a busy machine (missed_end)"},
}

func (r report) capabilities(processes string) {
	own, err := process.OwnCapabilities()
	if err != nil {
		r.line("capabilities", err.Error())
		return
	}
	missing := false
	for _, c := range costs {
		if c.shells && processes == "off" || c.need == process.NetAdmin && processes == "scan" || own.Has(c.need) {
			continue
		}
		missing = true
		r.line("capabilities", "without "+(c.need&^own).String()+": "+c.costs)
	}
	if !missing {
		r.line("capabilities", "all that open something to cimeter")
	}
}

// writable reports whether this process may write into dir.
func writable(dir string) bool {
	const w = 2 // W_OK of access(2)
	return syscall.Access(dir, w) == nil
}
