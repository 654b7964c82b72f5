package tally_test

import (
	"fmt"
	"testing"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/tally"
)

// Without room the project is folded, and nothing is lost.
func TestTable_Distribution(t *testing.T) {
	table := tally.New(tally.Options{Budget: 2000})
	for n := range 500 {
		table.Distribution(catalog.JobQueue, "s", fmt.Sprint("group/", n), "success").Observe(float64(n), tally.Exemplar{})
	}
	all := table.Distributions(catalog.JobQueue)
	sum, folded := 0.0, false
	for _, d := range all {
		sum += d.Histogram().Sum()
		folded = folded || d.Labels()[1] == tally.Other && d.Labels()[0] == "s"
	}
	if sum != 499*500/2 || !folded || len(all) > 2000/15 || len(all) < 20 {
		t.Errorf("%d series sum to %g, folded: %t", len(all), sum, folded)
	}
	if a, b := table.Distribution(catalog.JobQueue, "s", "group/0", "success"), all[0]; a != b {
		t.Error("another cell for the same labels")
	}
}
