package dashboard_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/cimeter/cimeter/internal/dashboard"
)

var update = flag.Bool("update", false, "write deploy/grafana/cimeter.json anew")

const (
	file  = "../../deploy/grafana/cimeter.json"
	rules = "../../deploy/prometheus/cimeter.rules.yml"
)

// deploy/grafana/cimeter.json is what the catalogue and the rows say.
func TestRender(t *testing.T) {
	want, err := dashboard.Render()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the catalogue says: run go test ./internal/dashboard -update", file)
	}
}

type board struct {
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr, LegendFormat, RefID string }
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

func read(t *testing.T) board {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d board
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Grafana takes what cannot be drawn without a word: two panels of one id or at
// one place, a variable that is not there.
func TestDashboard_canBeDrawn(t *testing.T) {
	d := read(t)
	ids, cells, rows := map[int]string{}, map[[2]int]string{}, 0
	names := map[string]bool{"__rate_interval": true, "datasource": true}
	for _, v := range d.Templating.List {
		names[v.Name] = true
	}
	variable := regexp.MustCompile(`\$\{?([A-Za-z_]+)`)
	for _, p := range d.Panels {
		if was := ids[p.ID]; was != "" || p.Title == "" {
			t.Errorf("%q and %q have the id %d", was, p.Title, p.ID)
		}
		ids[p.ID] = p.Title
		if p.GridPos.X+p.GridPos.W > 24 || p.GridPos.W == 0 || p.GridPos.H == 0 {
			t.Errorf("%q is at %+v: want it within 24 columns", p.Title, p.GridPos)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if cells[at] != "" {
					t.Fatalf("%q lies over %q", p.Title, cells[at])
				}
				cells[at] = p.Title
			}
		}
		if p.Type == "row" {
			rows++
			continue
		}
		if len(p.Targets) == 0 {
			t.Errorf("%q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			for _, m := range variable.FindAllStringSubmatch(target.Expr, -1) {
				if !names[m[1]] {
					t.Errorf("%q: variable %s is not there", p.Title, m[1])
				}
			}
		}
	}
	if rows != 4 || len(d.Panels) < 20 {
		t.Errorf("%d rows, %d panels: want fleet, queue, projects and stages", rows, len(d.Panels))
	}
}

// promtool parses every expression, as rules with the variables filled in.
func TestDashboard_expressions(t *testing.T) {
	fill := strings.NewReplacer("$__rate_interval", "1m", "$job", "cimeter", "$project", "a|b", "$machine", ".*")
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var all []rule
	for _, p := range read(t).Panels {
		for _, target := range p.Targets {
			all = append(all, rule{fmt.Sprintf("panel:p%d:%s", p.ID, strings.ToLower(target.RefID)), fill.Replace(target.Expr)})
		}
	}
	b, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": all}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "panels.yml")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", path)
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v: promtool is of the package prometheus\n%s", strings.Join(args, " "), err, out)
	}
}

type ruleFile struct {
	Groups []struct {
		Rules []struct{ Record, Alert, Expr string }
	}
}

func readRules(t *testing.T) ruleFile {
	t.Helper()
	b, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	var f ruleFile
	if err := yaml.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// Every metric and label that a rule names is in the catalogue.
func TestRules_catalogue(t *testing.T) {
	n := 0
	made := map[string]bool{}
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			n++
			made[r.Record] = true
			for _, name := range dashboard.Recorded.FindAllString(r.Expr, -1) {
				if !made[name] {
					t.Errorf("%s%s: no rule before it makes %s", r.Record, r.Alert, name)
				}
			}
			if err := dashboard.CheckLabels(r.Expr); err != nil {
				t.Errorf("%s%s: %v", r.Record, r.Alert, err)
			}
		}
	}
	if n < 15 {
		t.Errorf("%d rules", n)
	}
}

// The rules are legal, each alert fires when it should and not else, and no
// alert is without such a case.
func TestRules_promtool(t *testing.T) {
	const tests = "../../deploy/prometheus/cimeter.rules_test.yml"
	promtool(t, "check", "rules", rules)
	promtool(t, "test", "rules", tests)
	b, err := os.ReadFile(tests)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			if r.Alert != "" && !regexp.MustCompile(`alertname: `+r.Alert+`\n +exp_alerts:`).Match(b) {
				t.Errorf("%s: no case in which it fires", r.Alert)
			}
		}
	}
}

func TestCheckLabels(t *testing.T) {
	for expr, wrong := range map[string]string{
		`sum by (project) (rate(cimeter_stage_cpu_seconds_total{mode="user"}[5m]))`: "",
		`histogram_quantile(0.5, sum by (le) (cimeter_build_queue_seconds_bucket))`: "",
		`up == 0`:                                            "",
		`rate(cimeter_stage_cpu_total[5m])`:                  "cimeter_stage_cpu_total",
		`cimeter_builds_total_bucket`:                        "cimeter_builds_total_bucket",
		`cimeter_builds_total{branch="main"}`:                "branch",
		`sum by (branch) (cimeter_builds_total)`:             "branch",
		`cimeter_agent_engine_up{machine="cimeter_nothing"}`: "machine",
		`cimeter_queue_builds * on (server) group_left(runner) cimeter_workers{state=""}`: "runner",
	} {
		err := dashboard.CheckLabels(expr)
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v: want %q found", expr, err, wrong)
		}
	}
}
