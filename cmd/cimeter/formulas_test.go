package main

import (
	"bytes"
	"encoding/csv"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/terminal"
)

// What runs and what waits is told without formulas, whoever named it (T6).
func TestRunningCSV_formulas(t *testing.T) {
	const s = "=HYPERLINK(1)"
	for what, c := range map[string]struct {
		write func(b *bytes.Buffer) error
		names int
	}{
		"running": {func(b *bytes.Buffer) error {
			return runningCSV(b, []terminal.Running{{Key: s, Project: s, Name: s, Stage: s, Machine: s, Runner: s}})
		}, 6},
		"queue": {func(b *bytes.Buffer) error {
			build := queue.Build{On: s, Job: cimeter.Job{Build: cimeter.Build{Key: s, Project: s, Name: s, Machine: s}, Tags: []string{s}, Worker: s}}
			return queueCSV(b, []queue.Build{build})
		}, 7},
	} {
		var b bytes.Buffer
		if err := c.write(&b); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&b).ReadAll()
		if err != nil || len(rows) != 2 {
			t.Fatalf("%s: %q, %v", what, rows, err)
		}
		names := 0
		for i, cell := range rows[1] {
			if cell == s {
				t.Errorf("%s: %s is a formula", what, rows[0][i])
			}
			if cell == "'"+s {
				names++
			}
		}
		if names != c.names {
			t.Errorf("%s: %d names in %q: want %d", what, names, rows[1], c.names)
		}
	}
}
