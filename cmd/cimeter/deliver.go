package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/push"
	"github.com/cimeter/cimeter/internal/wire"
)

// pushCmd sends records to a server: those of "cimeter run --json", which has no
// agent that would.
type pushCmd struct {
	Server    string   `env:"CIMETER_SERVER" default:"http://127.0.0.1:9808" placeholder:"URL" help:"Server to send to; default ${default}."`
	TokenFile string   `type:"path" env:"CIMETER_TOKEN_FILE" placeholder:"FILE" help:"File of a token of the role push, which may also be in $CIMETER_TOKEN."`
	CAFile    string   `name:"ca-file" type:"path" placeholder:"FILE" help:"PEM of the authorities that may sign the server's certificate; the system's where nothing is said."`
	Files     []string `arg:"" type:"path" name:"file" help:"Records as JSON, such as \"cimeter run --json\" writes."`
}

// Help is the end of --help.
func (c *pushCmd) Help() string { return pushHelp }

// Run sends each file's record and says where it is to be seen.
func (c *pushCmd) Run(e *env) error {
	ctx, stop := untilSignal()
	defer stop()
	way, err := push.NewSender(push.SenderOptions{URL: c.Server, CAFile: c.CAFile, Token: func() (string, error) {
		token, err := config.ReadSecret("CIMETER_TOKEN", c.TokenFile, e.getenv)
		return token.Reveal(), err
	}})
	if err != nil {
		return err
	}
	defer way.Close()
	for _, name := range c.Files {
		if err := deliver(ctx, way, name, e.stdout); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// deliver sends one record. That it is there already is as good.
func deliver(ctx context.Context, way *push.Sender, name string, out io.Writer) error {
	line, err := readRecord(name)
	if err != nil {
		return err
	}
	results, err := way.Records(ctx, [][]byte{line})
	if err != nil {
		return err
	}
	if r := results[0]; r.Status == wire.Refused {
		return fmt.Errorf("refused by %s: %s", way.Address(), display.Fit(r.Reason, 300, "…"))
	}
	_, err = fmt.Fprintf(out, "%s/builds/%s\n", way.Address(), display.Clean(results[0].Key))
	return err
}

// readRecord returns a file's record as one line, as it will be sent.
func readRecord(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4*wire.MaxLineBytes)) // indented, it is longer than it is sent
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, b); err != nil {
		return nil, fmt.Errorf("want one record as JSON: %w", err)
	}
	if _, err := wire.DecodeRecord(line.Bytes()); err != nil {
		return nil, err
	}
	return line.Bytes(), nil
}

const pushHelp = `
A build that "cimeter run" metered has no agent to send its record. This sends it: the pages and the API of the server have the build then. It prints the address of each build's page. A record that is there already stays as it is. There is one try; exit code 1 leaves it to you when to try again.

Examples:

  cimeter run --json build.json -- make && cimeter push build.json
  CIMETER_TOKEN=cmt_... cimeter push --server https://cimeter.example.com build.json

Exit codes: 0 all are there; 1 a file is no record, or the server could not be reached or refused it; 2 for a wrong command line.`
