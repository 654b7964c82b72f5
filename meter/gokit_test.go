package meter_test

import (
	"os/exec"
	"testing"
)

// The adapters for go-kit are a module of their own, which the tests of this one
// would not reach.
func TestGoKit(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "test", "./...")
	cmd.Dir = "gokit"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go test in meter/gokit: %v\n%s", err, out)
	}
}
