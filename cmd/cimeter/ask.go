package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/client"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/section"
)

// serverFlags say which agent or server is asked, and as whom. A password or token is
// never on the command line, where every job on the machine could read it.
type serverFlags struct {
	Server       string `env:"CIMETER_SERVER" default:"http://127.0.0.1:9808" placeholder:"URL" help:"Agent or server to ask; default ${default}."`
	User         string `env:"CIMETER_USER" placeholder:"NAME" help:"User of its basic auth; the password is in $CIMETER_PASSWORD or --password-file."`
	PasswordFile string `type:"path" env:"CIMETER_PASSWORD_FILE" placeholder:"FILE" help:"File of the password; not everybody may read it."`
	TokenFile    string `type:"path" env:"CIMETER_TOKEN_FILE" placeholder:"FILE" help:"File of a bearer token, which may also be in $CIMETER_TOKEN."`
}

func (f *serverFlags) client(e *env) (*client.Client, error) {
	password, err := config.ReadSecret("CIMETER_PASSWORD", f.PasswordFile, e.getenv)
	if err != nil {
		return nil, fmt.Errorf("--password-file: %w", err)
	}
	token, err := config.ReadSecret("CIMETER_TOKEN", f.TokenFile, e.getenv)
	if err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	return client.New(client.Options{URL: f.Server, User: f.User, Password: password.Reveal(), Token: token.Reveal()})
}

// Bounds of asking for lists.
const (
	pageSize   = 100  // some megabytes with the largest traces
	mostLooked = 2000 // newest builds among which the end of a key is looked for
)

// each calls fn for the newest builds that f wants, at most limit, until fn
// fails. Pages are asked for one after the other, so that memory is bounded.
func each(ctx context.Context, c *client.Client, f client.Filter, limit int, fn func(*cimeter.Record) error) error {
	return eachDivided(ctx, c, f, limit, func(d section.Divided) error { return fn(d.Record) })
}

// eachDivided is each with the sections that the filter asks for.
func eachDivided(ctx context.Context, c *client.Client, f client.Filter, limit int, fn func(section.Divided) error) error {
	for limit > 0 {
		f.Limit = min(pageSize, limit)
		page, next, err := c.Divided(ctx, f)
		if err != nil {
			return err
		}
		for _, r := range page[:min(len(page), limit)] {
			if err := fn(r); err != nil {
				return err
			}
		}
		limit -= len(page)
		if next == "" || next == f.Cursor {
			return nil
		}
		f.Cursor = next
	}
	return nil
}

// find returns the build whose key is id, or else the only one among the newest
// whose key ends with /id.
func find(ctx context.Context, c *client.Client, id string) (*cimeter.Record, error) {
	if strings.Contains(id, "/") {
		r, err := c.Build(ctx, id)
		if err == nil || !errors.Is(err, cimeter.ErrNotFound) {
			return r, err
		}
	}
	var found *cimeter.Record
	err := each(ctx, c, client.Filter{}, mostLooked, func(r *cimeter.Record) error {
		if !strings.HasSuffix(r.Key, "/"+id) {
			return nil
		}
		if found != nil {
			return fmt.Errorf("build %q: %s and %s end with it: want more of the key: %w", id, found.Key, r.Key, cimeter.ErrConflict)
		}
		found = r
		return nil
	})
	if err == nil && found == nil {
		err = fmt.Errorf("build %q: none of the newest %d builds of %s has a key that ends with it: %w", id, mostLooked, c.Address(), cimeter.ErrNotFound)
	}
	return found, err
}

// named is s, or a dash for what is not known.
func named(s string) string { return cmp.Or(s, "-") }
