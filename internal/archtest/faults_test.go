package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// docs/faults.md names tests that are there, and has a row for each fault and threat.
func TestFaults(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs/faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{}
	rows := map[string]bool{}
	row := regexp.MustCompile(`(?m)^\| ([FT]\d+) \|.*$`)
	name := regexp.MustCompile("`([a-z0-9/]+) ((?:Test|Fuzz)\\w+)`")
	for _, m := range row.FindAllStringSubmatch(string(b), -1) {
		rows[m[1]] = true
		tests := name.FindAllStringSubmatch(m[0], -1)
		if len(tests) == 0 {
			t.Errorf("%s: want a test", m[1])
		}
		for _, test := range tests {
			dir := test[1]
			if sources[dir] == "" {
				files, _ := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
				for _, f := range files {
					text, err := os.ReadFile(f)
					if err != nil {
						t.Fatal(err)
					}
					sources[dir] += string(text)
				}
			}
			if !strings.Contains(sources[dir], "\nfunc "+test[2]+"(") {
				t.Errorf("%s: %s has no %s", m[1], dir, test[2])
			}
		}
	}
	// T27 is of receivers of jobs' metrics, of which there are none.
	for kind, n := range map[string]int{"F": 44, "T": 30} {
		for i := range n {
			if f := kind + strconv.Itoa(i+1); !rows[f] && f != "T27" {
				t.Errorf("%s: want a row", f)
			}
		}
	}
	for _, threat := range []string{"T2", "T3", "T4", "T5", "T8", "T12", "T14", "T15", "T30"} { // to the agent
		if !rows[threat] {
			t.Errorf("%s: want a row", threat)
		}
	}
}
