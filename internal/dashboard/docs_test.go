package dashboard_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/cimeter/cimeter/internal/dashboard"
)

var (
	promql   = regexp.MustCompile("(?ms)^```promql\n# (doc:[a-z_]+)\n(.*?)^```$")
	anyBlock = regexp.MustCompile("(?m)^```promql$")
)

// Each expression of docs/beside-cadvisor.md gives what it should on series of
// the other exporters' shape.
func TestBesideCadvisor(t *testing.T) {
	text, err := os.ReadFile("../../docs/beside-cadvisor.md")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := os.ReadFile("testdata/beside_cadvisor_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	var rules []map[string]string
	for _, m := range promql.FindAllStringSubmatch(string(text), -1) {
		if err := dashboard.CheckLabels(m[2]); err != nil && !strings.Contains(err.Error(), "nothing in it has the label") {
			t.Errorf("%s: %v", m[1], err) // labels of other exporters are not ours to know
		}
		if !regexp.MustCompile(`expr: .*` + m[1] + `\b`).Match(cases) {
			t.Errorf("%s: no case", m[1])
		}
		rules = append(rules, map[string]string{"record": m[1], "expr": m[2]})
	}
	if n := len(anyBlock.FindAll(text, -1)); n != len(rules) || n < 8 {
		t.Fatalf("%d blocks, %d of them with a name: want at least 8 and all", n, len(rules))
	}
	doc, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "doc", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, b := range map[string][]byte{"doc.yml": doc, "test.yml": cases} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	promtool(t, "test", "rules", filepath.Join(dir, "test.yml"))
}
