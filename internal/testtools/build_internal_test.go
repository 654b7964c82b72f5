package testtools

import (
	"maps"
	"slices"
	"testing"
)

// TestTools builds every tool that the cache lacks. `make test` runs it before
// all others: on a new machine that takes longer than a package's tests may.
func TestTools(t *testing.T) {
	for _, tool := range slices.Sorted(maps.Keys(recipes())) {
		t.Run(string(tool), func(t *testing.T) { Path(t, tool) })
	}
}
