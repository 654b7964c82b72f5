package testdocker

import (
	"context"
	"testing"

	"github.com/moby/moby/client"
)

// Connect returns a daemon that somebody else started, inside a container for
// instance, at a socket on this machine. It waits until that answers and loads the
// image with these files. Of a Daemon's methods those that ask the engine work.
func Connect(tb testing.TB, socket string, files map[string]string) *Daemon {
	tb.Helper()
	c, err := client.New(client.WithHost("unix://" + socket))
	if err != nil {
		tb.Fatalf("making a docker client: %v", err)
	}
	d := &Daemon{tb: tb, client: c, done: make(chan struct{})}
	tb.Cleanup(func() { c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := d.waitReady(ctx); err != nil {
		tb.Fatal(err)
	}
	if err := d.importImage(files, nil); err != nil {
		tb.Fatal(err)
	}
	return d
}
