package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
)

// tokenCmd makes a token for a server's file of tokens.
type tokenCmd struct {
	Role   string `enum:"read,push,cancel" required:"" help:"What it is good for: read, push for agents, or cancel for cimeter queue cancel."`
	Name   string `required:"" help:"Who has it: a name without spaces; the user where it is given as a password."`
	Tokens string `type:"path" env:"CIMETER_TOKENS_FILE" placeholder:"FILE" required:"" help:"File of tokens to add it to; made with mode 0600 where it is missing."`
}

// Help is the end of --help.
func (c *tokenCmd) Help() string { return tokenHelp }

// Validate refuses a name that a file of tokens cannot hold.
func (c *tokenCmd) Validate() error {
	if words := strings.Fields(c.Name); len(words) != 1 || words[0] != c.Name || strings.HasPrefix(c.Name, "#") {
		return fmt.Errorf("--name: %.64q: want one word that does not begin with #", c.Name)
	}
	return nil
}

// tokenPrefix lets scanners for leaked secrets know a token.
const tokenPrefix = "cmt_"

// Run adds the token's hash to the file, then prints the token.
func (c *tokenCmd) Run(e *env) error {
	raw := make([]byte, 32)
	rand.Read(raw) // never fails
	token := tokenPrefix + base64.RawURLEncoding.EncodeToString(raw)
	line := fmt.Sprintf("%s %s %x\n", c.Role, c.Name, sha256.Sum256([]byte(token)))
	f, err := os.OpenFile(c.Tokens, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("add token: %w", err)
	}
	_, err = f.WriteString(line)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("add token: %w", err)
	}
	fmt.Fprintln(e.stdout, token)
	return nil
}

const tokenHelp = `
The token is printed once; the file keeps its SHA-256 only. A server that runs reads the file again within a second.

Examples:

  cimeter token --role push --name agents --tokens /etc/cimeter/tokens > agent-token
  cimeter token --role read --name grafana --tokens /etc/cimeter/tokens

Exit codes: 0 done; 1 the file could not be written; 2 for a wrong command line.`
