package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cimeter/cimeter/deploy"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/install"
)

// installCmd puts a role on this machine, or takes it away.
type installCmd struct {
	Role      string `arg:"" optional:"" enum:"agent,server" default:"agent" help:"What to install: agent or server; ${default} where nothing is said."`
	Root      string `type:"path" placeholder:"DIR" help:"Folder that is the machine's root, to prepare an image; / where nothing is said."`
	Uninstall bool   `help:"Take it away: what is as it was written. Data, edited files and the user stay."`
}

// Help is the end of --help.
func (c *installCmd) Help() string { return installHelp }

// Run writes the files and says what it did, and what is to be done next.
func (c *installCmd) Run(e *env) error {
	o := install.Options{Root: c.Root}
	for _, r := range deploy.Roles() {
		if r.Name == c.Role {
			o.Role = r
		}
	}
	if c.Uninstall {
		done, err := install.Uninstall(o)
		tellSteps(e.stdout, done)
		if err != nil {
			return err
		}
		if len(done) == 0 {
			fmt.Fprintf(e.stdout, "nothing of cimeter %s is installed here\n", c.Role)
			return nil
		}
		fmt.Fprintf(e.stdout, afterUninstall, strings.TrimSuffix(o.Role.Unit.Path, ".service"), o.Role.Home, o.Role.User)
		return nil
	}
	var err error
	if o.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	done, err := install.Install(o)
	tellSteps(e.stdout, done)
	if err != nil {
		return err
	}
	port := "9808"
	if c.Role == "server" {
		port = "9809"
	}
	fmt.Fprintf(e.stdout, afterInstall, o.Role.Config.Path, strings.TrimSuffix(o.Role.Unit.Path, ".service"), port)
	return nil
}

func tellSteps(w io.Writer, done []install.Step) {
	for _, s := range done {
		fmt.Fprintf(w, "%-10s %s\n", s.Done, display.Clean(s.What))
	}
}

const afterInstall = `next:
  cimeter check --config %s
  systemctl daemon-reload
  systemctl enable %[2]s
  systemctl restart %[2]s
  curl http://127.0.0.1:%[3]s/metrics
`

const afterUninstall = `next:
  systemctl stop %[1]s
  systemctl daemon-reload
and, to leave nothing:
  rm -r %[2]s
  userdel %[3]s
`

const installHelp = `
It writes this program to /usr/local/bin/cimeter, a unit of systemd with the least rights that work, and a first configuration in /etc/cimeter, and makes a system user, whom it puts into the group docker where there is one. It says what it did and what is next, and starts nothing.

A file that was edited stays; what would replace it is put beside it, with a name that ends in .new. Run it again to upgrade. Where the package of your distribution is installed, use that instead.

Examples:

  cimeter install
  cimeter install server
  cimeter install --root /mnt/image
  cimeter install agent --uninstall

Exit codes: 0 done; 1 something could not be written, or /usr/local/bin/cimeter is not from here; 2 for a wrong command line.`
