package main

import "errors"

// Run starts the agent.
func (c *agentCmd) Run(e *env) error {
	if _, err := c.load(e); err != nil {
		return err
	}
	return errors.New("agent: not built yet")
}
