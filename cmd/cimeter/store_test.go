package main

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/cimeter/cimeter/internal/storetest"
)

// A new database gets its schema, and another time nothing happens to it.
func TestStoreMigrate_Postgres(t *testing.T) {
	server, err := storetest.StartPostgres()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	url := server.Database(t)
	for _, want := range []string{`^database: version \d+, was 0\n$`, `^database: version \d+, up to date\n$`} {
		cmd := exec.Command("cimeter", "store", "migrate")
		cmd.Env = append(os.Environ(), "CIMETER_DATABASE="+url)
		out, err := cmd.CombinedOutput()
		if err != nil || !regexp.MustCompile(want).Match(out) {
			t.Errorf("%v, %s: want %s", err, out, want)
		}
	}
}
