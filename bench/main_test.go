package bench_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// programs are what the benchmarks run, built once.
type programs struct{ agent, probed, floor, burn string }

// buildPrograms builds static programs of this module into a folder that goes
// with b. probed is the agent with testdata/probe.go as one file more.
func buildPrograms(b *testing.B) programs {
	b.Helper()
	dir := b.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		b.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(root, "cmd/cimeter/zz_probe.go"): filepath.Join(root, "bench/testdata/probe.go"),
	}})
	if err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		b.Fatal(err)
	}
	build := func(name, pkg string, args ...string) string {
		path := filepath.Join(dir, name)
		cmd := exec.Command("go", append(append([]string{"build", "-trimpath", "-o", path}, args...), pkg)...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("building %s: %v\n%s", pkg, err, out)
		}
		return path
	}
	return programs{
		agent: build("cimeter", "./cmd/cimeter"), probed: build("cimeter-probed", "./cmd/cimeter", "-overlay", file),
		floor: build("floor", "./bench/floor"), burn: build("burn", "./e2e/burn"),
	}
}

// table collects what was measured against what is required.
type table struct{ rows []row }

type row struct{ what, required, measured, verdict string }

// bound adds a figure that must not exceed its bound.
func (t *table) bound(what string, limit, got float64, unit, detail string) {
	t.add(what, fmt.Sprintf("<= %g%s", limit, unit), fmt.Sprintf("%.3g%s", got, unit), got <= limit, detail)
}

func (t *table) add(what, required, measured string, met bool, detail string) {
	verdict := "met"
	if !met {
		verdict = "MISSED"
	}
	if detail != "" {
		measured += " (" + detail + ")"
	}
	t.rows = append(t.rows, row{what, required, measured, verdict})
}

// note adds a figure that nothing is required of.
func (t *table) note(what, measured string) { t.rows = append(t.rows, row{what, "-", measured, ""}) }

func (t *table) print(load string) {
	fmt.Printf("\n%-46s %-12s %-8s %s\n", "what the agent costs ("+load+")", "required", "", "measured")
	for _, r := range t.rows {
		fmt.Printf("%-46s %-12s %-8s %s\n", r.what, r.required, r.verdict, r.measured)
	}
}
