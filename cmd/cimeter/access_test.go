package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A file of tokens is read again when it has changed, and a bad one takes
// nothing away and is told of once.
func TestTokensFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	at := time.Now().Add(-time.Hour)
	write := func(text string, mode os.FileMode) {
		t.Helper()
		at = at.Add(time.Minute) // more than any file system's grain
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	line := func(name string) string { return fmt.Sprintf("read %s %x\n", name, sha256.Sum256([]byte(name))) }
	var log bytes.Buffer
	f := &tokensFile{path: path, log: slog.New(slog.NewTextHandler(&log, nil))}
	if _, err := f.read(); err == nil {
		t.Error("no file: want an error at the start")
	}
	write(line("a"), 0o600)
	if got, err := f.read(); err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	if _, changed := f.reload(); changed {
		t.Error("read again though nothing has changed")
	}
	write(line("a")+line("b"), 0o600)
	if got, changed := f.reload(); !changed || len(got) != 2 || got[1].Name != "b" {
		t.Errorf("%v, %v: want both", got, changed)
	}
	log.Reset()
	for _, bad := range []func(){
		func() { write("read x\n", 0o600) },
		func() { write(line("a"), 0o644) },
		func() {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		bad()
		for range 3 {
			if got, changed := f.reload(); changed {
				t.Errorf("%v: want the last good list to stay", got)
			}
		}
	}
	if n := strings.Count(log.String(), "cannot be read again"); n != 1 || strings.Contains(log.String(), line("a")[7:20]) {
		t.Errorf("told %d times: want once, without a hash\n%s", n, &log)
	}
	write(line("c"), 0o600)
	if got, changed := f.reload(); !changed || len(got) != 1 || got[0].Name != "c" {
		t.Errorf("%v, %v: want the good file taken again", got, changed)
	}
}
