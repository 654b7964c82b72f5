// Package citest loads recorded runs of CI runners for the tests of the packages
// beside it, and compares results with golden files. It is imported by tests only.
package citest

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
)

var update = flag.Bool("update", false, "write golden files")

// Event is one event of a container in a recorded run.
type Event struct {
	At       time.Time
	Action   string // create, start, die, destroy
	ID       string
	ExitCode cimeter.Opt[int] // of die
}

// Run is a recorded run.
type Run struct {
	Events []Event
	// Created holds the containers in order of creation, with what the daemon's
	// events tell of them: no environment, no network.
	Created []*cimeter.Container
	// Inspected holds those that lived long enough to be inspected, by id. Env holds
	// only variables of the allow-list that Load was given.
	Inspected map[string]*cimeter.Container
}

// Load reads events.jsonl and inspect.json of a folder.
func Load(t testing.TB, dir string, variables []string) *Run {
	t.Helper()
	r := &Run{Inspected: make(map[string]*cimeter.Container)}
	for line := range bytes.Lines(read(t, filepath.Join(dir, "events.jsonl"))) {
		var e struct {
			Action string
			Actor  struct {
				ID         string
				Attributes map[string]string
			}
			TimeNano int64
		}
		decode(t, line, &e)
		ev := Event{At: time.Unix(0, e.TimeNano), Action: e.Action, ID: e.Actor.ID}
		if code, ok := e.Actor.Attributes["exitCode"]; ok {
			n, err := strconv.Atoi(code)
			if err != nil {
				t.Fatalf("exit code %q of %s: want a number", code, ev.ID)
			}
			ev.ExitCode = cimeter.Some(n)
		}
		r.Events = append(r.Events, ev)
		if e.Action == "create" {
			c := &cimeter.Container{ID: e.Actor.ID, Name: e.Actor.Attributes["name"], Image: e.Actor.Attributes["image"], Labels: e.Actor.Attributes}
			delete(c.Labels, "name")
			delete(c.Labels, "image")
			r.Created = append(r.Created, c)
		}
	}
	var inspected []struct {
		ID, Name string
		Config   struct {
			Image  string
			Labels map[string]string
			Env    []string
		}
		HostConfig      struct{ NetworkMode string }
		NetworkSettings struct{ Networks map[string]struct{} }
	}
	decode(t, read(t, filepath.Join(dir, "inspect.json")), &inspected)
	for _, in := range inspected {
		c := &cimeter.Container{ID: in.ID, Name: strings.TrimPrefix(in.Name, "/"), Image: in.Config.Image, Labels: in.Config.Labels,
			Env: Allow(in.Config.Env, variables), NetworkMode: in.HostConfig.NetworkMode}
		for name := range in.NetworkSettings.Networks {
			c.Networks = append(c.Networks, name)
		}
		sort.Strings(c.Networks)
		r.Inspected[in.ID] = c
	}
	return r
}

// Allow returns the variables of env (NAME=value) that are on the list.
func Allow(env, variables []string) map[string]string {
	allowed := make(map[string]string)
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		for _, v := range variables {
			if v == name {
				allowed[name] = value
			}
		}
	}
	return allowed
}

// Identified is one container in a golden file: what is told of it by events
// alone, and once it was inspected.
type Identified struct {
	Name      string
	Event     cimeter.Identity
	Inspected *cimeter.Identity `json:",omitempty"`
}

// Identify applies identify to each container of the run.
func (r *Run) Identify(t testing.TB, identify func(*cimeter.Container) (cimeter.Identity, bool)) []Identified {
	t.Helper()
	var all []Identified
	for _, c := range r.Created {
		id, ok := identify(c)
		if !ok {
			t.Errorf("%s: not identified by its events", c.Name)
		}
		one := Identified{Name: c.Name, Event: id}
		if c := r.Inspected[c.ID]; c != nil {
			id, ok := identify(c)
			if !ok {
				t.Errorf("%s: not identified when inspected", c.Name)
			}
			one.Inspected = &id
		}
		all = append(all, one)
	}
	return all
}

// Golden compares got, as indented JSON, with a file; go test -update writes it.
func Golden(t testing.TB, file string, got any) {
	t.Helper()
	b, err := json.MarshalIndent(got, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, '\n')
	if *update {
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := read(t, file); !bytes.Equal(b, want) {
		t.Errorf("%s differs; go test -update rewrites it. got\n%s\nwant\n%s", file, b, want)
	}
}

func read(t testing.TB, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decode(t testing.TB, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%v in %.100s", err, b)
	}
}
