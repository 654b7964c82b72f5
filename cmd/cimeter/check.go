package main

import (
	"fmt"

	"github.com/cimeter/cimeter/internal/config"
)

// checkCmd checks the configuration and the machine.
type checkCmd struct {
	Config string `type:"path" env:"CIMETER_CONFIG" placeholder:"FILE" help:"Configuration file to check."`
}

// Help is the end of --help.
func (c *checkCmd) Help() string { return checkHelp }

// Run prints every problem and ends with 1 when there is one.
func (c *checkCmd) Run(e *env) error {
	if _, err := config.Load(c.Config); err != nil {
		fmt.Fprintln(e.stdout, err)
		return exitCode(exitFailure)
	}
	fmt.Fprintln(e.stdout, "configuration: ok")
	return nil
}
