package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

// versionCmd prints what this binary was built from.
type versionCmd struct {
	JSON bool `help:"Print as JSON."`
}

// build says what this binary was built from, as far as the Go tool noted it.
type build struct {
	Version  string `json:"version"`            // tag, or pseudo-version of the commit
	Revision string `json:"revision,omitempty"` // commit
	Time     string `json:"time,omitempty"`     // of the commit, RFC 3339
	Modified bool   `json:"modified,omitempty"` // built from a changed checkout
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuild() build {
	b := build{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// Help is the end of --help.
func (c *versionCmd) Help() string { return versionHelp }

// Run prints it.
func (c *versionCmd) Run(e *env) error {
	b := readBuild()
	if c.JSON {
		return json.NewEncoder(e.stdout).Encode(b)
	}
	fmt.Fprintf(e.stdout, "cimeter %s (%s, %s)\n", b.Version, b.Go, b.Platform)
	if b.Revision != "" {
		fmt.Fprintf(e.stdout, "commit %s of %s\n", b.Revision, b.Time)
	}
	return nil
}
