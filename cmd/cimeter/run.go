package main

import "errors"

// runCmd meters one command without an agent.
type runCmd struct {
	Stage   string   `placeholder:"NAME" help:"Name of the stage that the command is."`
	Project string   `env:"CIMETER_PROJECT" placeholder:"P" help:"Project that the build belongs to."`
	Name    string   `placeholder:"NAME" help:"Name of the build; the command's where nothing is said."`
	Summary string   `type:"path" placeholder:"FILE" help:"Write the summary to FILE and not to standard error."`
	JSON    string   `name:"json" type:"path" placeholder:"FILE" help:"Write the record to FILE."`
	Command []string `arg:"" passthrough:"partial" help:"Command to run, after --."`
}

// Run runs the command.
func (c *runCmd) Run(e *env) error { return errors.New("run: not built yet") }
