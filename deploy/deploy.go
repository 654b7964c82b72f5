// Package deploy holds the files that put cimeter on a machine: units of systemd
// and first configurations.
//
// The packages and "cimeter install" write the same ones. It never touches a
// machine. Start with [Roles]. Nothing here changes, so it is safe for
// concurrent use.
package deploy

import _ "embed" // the files below

// Role is what one unit runs.
type Role struct {
	Name   string // of the sub-command: agent or server
	User   string // system user that it runs as, and that user's group
	Home   string // directory of data, which systemd makes
	Docker bool   // it reads Docker's socket
	Unit   File
	Config File // written once, then the operator's
}

// File is one file on a machine.
type File struct {
	Path string // absolute; of a unit, its name only
	Text string
}

// Program is the path of the program in the units.
const Program = "/usr/bin/cimeter"

// ConfigDir is the folder of the configurations.
const ConfigDir = "/etc/cimeter"

var (
	//go:embed systemd/cimeter-agent.service
	agentUnit string
	//go:embed systemd/cimeter-server.service
	serverUnit string
	//go:embed config/agent.yaml
	agentConfig string
	//go:embed config/server.yaml
	serverConfig string
)

// Roles returns what may run on a machine, each by its unit.
func Roles() []Role {
	return []Role{
		{
			Name: "agent", User: "cimeter", Home: "/var/lib/cimeter", Docker: true,
			Unit:   File{"cimeter-agent.service", agentUnit},
			Config: File{ConfigDir + "/agent.yaml", agentConfig},
		},
		{
			Name: "server", User: "cimeter-server", Home: "/var/lib/cimeter-server",
			Unit:   File{"cimeter-server.service", serverUnit},
			Config: File{ConfigDir + "/server.yaml", serverConfig},
		},
	}
}
