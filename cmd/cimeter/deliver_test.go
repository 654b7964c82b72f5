package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What "cimeter run" metered is on the server's pages after a push, once.
func TestPush(t *testing.T) {
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	pushing, reading := newToken(t, tokens, "push"), newToken(t, tokens, "read")
	p := startDaemon(t, "server", "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"), "--tokens", tokens)
	file := filepath.Join(dir, "build.json")
	if st, stderr := runProgram(t, nil, "--project", "group/app", "--json", file, "--", "true"); st != 0 {
		t.Fatalf("wait status %#x: %s", uint32(st), stderr)
	}
	key := runRecord(t, file).Key
	send := func(token, file string) (string, error) {
		cmd := exec.Command("cimeter", "push", "--server", p.base, file)
		cmd.Env = append(os.Environ(), "CIMETER_TOKEN="+token)
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), "cmt_") {
			t.Errorf("a token is in %q", out)
		}
		return string(out), err
	}
	for range 2 { // the second is a duplicate, which is as good
		if out, err := send(pushing, file); err != nil || out != p.base+"/builds/"+key+"\n" {
			t.Fatalf("%v, %q: want the address of %s", err, out, key)
		}
	}
	p.get("/builds/"+key, reading, "group/app")
	p.get("/api/v1/summary", reading, `"builds":1,`)
	if out, err := send(reading, file); err == nil || !strings.Contains(out, "403") {
		t.Errorf("with a token to read: %v, %q", err, out)
	}
	junk := filepath.Join(dir, "junk.json")
	if err := os.WriteFile(junk, []byte(`{"key":"x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := send(pushing, junk); err == nil || !strings.HasPrefix(out, "cimeter: "+junk+": ") {
		t.Errorf("no record: %v, %q", err, out)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
