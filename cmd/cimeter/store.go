package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/store/postgres"
	"github.com/cimeter/cimeter/internal/store/sqlite"
)

// storeCmd works on a server's store from outside of the server.
type storeCmd struct {
	Migrate storeMigrateCmd `cmd:"" help:"Bring a store's schema up to date."`
	Backup  storeBackupCmd  `cmd:"" help:"Write a copy of a store, while a server uses it."`
	Check   storeCheckCmd   `cmd:"" help:"Tell whether a store, or a copy of one, is whole."`
}

// Help is the end of --help.
func (c *storeCmd) Help() string { return storeHelp }

// storeFlags say which store.
type storeFlags struct {
	Config   string `type:"path" env:"CIMETER_CONFIG" placeholder:"FILE" help:"Configuration file (YAML) of the server. Flags win over it."`
	Data     string `type:"path" env:"CIMETER_DATA" placeholder:"DIR" help:"Directory of the server's data; /var/lib/cimeter where nothing is said."`
	Database string `env:"CIMETER_DATABASE" placeholder:"URL" help:"PostgreSQL of the server, postgres://USER@HOST/DATABASE. Give a password by the variable, not by the flag."`
}

// place is the store: a file, or a database when there is an address.
func (f *storeFlags) place() (file string, address config.Secret, err error) {
	var over []config.Override
	if f.Data != "" {
		over = append(over, config.Override{Path: "data", Value: f.Data, Source: "--data"})
	}
	conf, err := config.Load(f.Config, over...)
	if err != nil {
		return "", address, err
	}
	if address = config.NewSecret(f.Database); address.IsZero() {
		address, err = config.ReadSecret("", conf.Store.DatabaseFile, noVariables)
	}
	return filepath.Join(conf.Data, "store", "cimeter.db"), address, err
}

// storeMigrateCmd brings a store's schema up to date.
type storeMigrateCmd struct {
	storeFlags `embed:""`
}

// Help is the end of --help.
func (c *storeMigrateCmd) Help() string { return storeMigrateHelp }

// Run migrates and tells from which version to which.
func (c *storeMigrateCmd) Run(e *env) error {
	file, address, err := c.place()
	if err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	name, version, migrate := file, sqlite.Version, sqlite.Migrate
	if !address.IsZero() {
		name, version, migrate = "database", postgres.Version, postgres.Migrate
		file = address.Reveal()
	}
	found, want, err := version(ctx, file)
	if err != nil {
		return err
	}
	if err := migrate(ctx, file); err != nil {
		return err
	}
	if found == want {
		_, err = fmt.Fprintf(e.stdout, "%s: version %d, up to date\n", name, found)
	} else {
		_, err = fmt.Fprintf(e.stdout, "%s: version %d, was %d\n", name, want, found)
	}
	return err
}

// storeBackupCmd copies a store.
type storeBackupCmd struct {
	storeFlags `embed:""`
	File       string `arg:"" type:"path" help:"File to write; it must not be there."`
}

// Help is the end of --help.
func (c *storeBackupCmd) Help() string { return storeBackupHelp }

// Run writes the copy and tells its size.
func (c *storeBackupCmd) Run(e *env) error {
	file, address, err := c.place()
	if err != nil {
		return err
	}
	if !address.IsZero() {
		return fmt.Errorf("backup of a PostgreSQL store: want pg_dump, which takes a database at one instant while it is used: %w", cimeter.ErrUnsupported)
	}
	ctx, stop := untilSignal()
	defer stop()
	syscall.Umask(0o077) // only its owner may read it, as the store itself
	if err := sqlite.Backup(ctx, file, c.File); err != nil {
		return err
	}
	info, err := os.Stat(c.File)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.stdout, "%s: %.1f MiB\n", c.File, float64(info.Size())/(1<<20))
	return err
}

// storeCheckCmd reads all of a store.
type storeCheckCmd struct {
	storeFlags `embed:""`
	File       string `arg:"" optional:"" type:"path" help:"A copy that backup wrote; without it the server's store is checked."`
}

// Help is the end of --help.
func (c *storeCheckCmd) Help() string { return storeCheckHelp }

// Run reads and tells how many builds there are.
func (c *storeCheckCmd) Run(e *env) error {
	file := c.File
	if file == "" {
		var address config.Secret
		var err error
		if file, address, err = c.place(); err != nil {
			return err
		}
		if !address.IsZero() {
			return fmt.Errorf("check of a PostgreSQL store: want pg_amcheck, which knows its own files: %w", cimeter.ErrUnsupported)
		}
	}
	ctx, stop := untilSignal()
	defer stop()
	n, err := sqlite.Verify(ctx, file)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.stdout, "%s: whole, %d builds\n", file, n)
	return err
}
