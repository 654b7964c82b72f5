package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/sqlite"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"cimeter": main, "stuck": stuck, "panicking": panicking})
}

// Each file of testdata/script is one user's story, told to the real main.
// testscript passes no variable of ours on.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:  filepath.Join("testdata", "script"),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "makestore": makeStore},
		Setup: func(e *testscript.Env) error {
			e.Setenv("COLUMNS", "100")
			e.Setenv("SERVER", fakeAgent(e, fakeRecords(), asIs))
			e.Setenv("MANY", fakeAgent(e, manyRecords(), asIs))
			e.Setenv("HISTORY", fakeAgent(e, historyRecords(), asIs))
			e.Setenv("STORE", realServer(e, "store.db", severalBuilds()))
			e.Setenv("SPREAD", realServer(e, "spread.db", onTwoMachines()))
			e.Setenv("FLEET", fakeFleet(e))
			e.Setenv("QUEUE", fakeQueue(e))
			e.Setenv("CLOSED", fakeAgent(e, fakeRecords(), basicAuth))
			return nil
		},
	})
}

// exits runs a command that must end with a code: exits 2 cimeter --colour.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code command [args...]")
	}
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%s: %v", args[1], err)
	}
	if want, err := strconv.Atoi(args[0]); err != nil || code != want {
		ts.Fatalf("%s: exit code %d, want %s", args[1], code, args[0])
	}
}

// makeStore makes the store of a server with one build in it, and leaves it
// open as a server does: makestore DATA.
func makeStore(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: makestore DATA")
	}
	dir := filepath.Join(ts.MkAbs(args[0]), "store")
	ts.Check(os.MkdirAll(dir, 0o700))
	s, err := sqlite.Open(context.Background(), sqlite.Options{Path: filepath.Join(dir, "cimeter.db"), Migrate: true})
	ts.Check(err)
	ts.Defer(func() { s.Close() })
	_, err = s.Put(context.Background(), []store.Put{{Agent: "a", Record: finished(1), ReceivedAt: finished(1).EndedAt}})
	ts.Check(err)
}

// severalBuilds are five, of the branch main.
func severalBuilds() (records []*cimeter.Record) {
	for i := range 5 {
		r := finished(i)
		r.Ref = "main"
		records = append(records, r)
	}
	return records
}

// onTwoMachines is a build and, of another, what two machines did.
func onTwoMachines() []*cimeter.Record {
	records := []*cimeter.Record{finished(1), finished(2), finished(32)}
	for i, r := range records[1:] {
		r.Key, r.CI, r.Server, r.Machine = "jenkins/ci.example.com/app/17", "jenkins", "ci.example.com", fmt.Sprintf("node-%d", i+1)
		r.Usage.CPUSeconds.Total = cimeter.Some([]float64{3.5, 40}[i])
	}
	return records
}

// realServer starts the API of a server on a real store of records.
func realServer(e *testscript.Env, file string, records []*cimeter.Record) string {
	kept, err := sqlite.Open(context.Background(), sqlite.Options{Path: filepath.Join(e.WorkDir, file), Migrate: true})
	if err != nil {
		e.T().Fatal(err)
	}
	e.Defer(func() { kept.Close() })
	var batch []store.Put
	for _, r := range records {
		batch = append(batch, store.Put{Record: r, ReceivedAt: r.EndedAt})
	}
	if _, err := kept.Put(context.Background(), batch); err != nil {
		e.T().Fatal(err)
	}
	s := httptest.NewServer(httpapi.New(httpapi.Options{Query: kept}))
	e.Defer(s.Close)
	return s.URL
}
