package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each decision says whether it holds, and the index has all of them by their titles.
func TestDecisions(t *testing.T) {
	dir := filepath.Join("..", "..", "docs", "adr")
	index, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "0*.md"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`^# (\d+)\. (.+)\n\nStatus: (accepted|overturned by \[)`).FindStringSubmatch(string(text))
		if m == nil {
			t.Errorf("%s: want a number, a title and a status at its beginning", file)
			continue
		}
		if want := "| " + m[1] + " | [" + m[2] + "](" + filepath.Base(file) + ") |"; !strings.Contains(string(index), want) {
			t.Errorf("docs/adr/README.md: no line %s", want)
		}
	}
	if rows := strings.Count(string(index), "\n| ") - 2; rows != len(files) {
		t.Errorf("docs/adr/README.md has %d rows of %d decisions", rows, len(files))
	}
}
