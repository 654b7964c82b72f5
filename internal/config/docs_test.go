package config

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/config.md")

// docs/config.md is rendered from the tags of Config and cannot fall behind.
func TestReferenceIsUpToDate(t *testing.T) {
	const path = "../../docs/config.md"
	want := reference()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the tags of Config say: run go test ./internal/config -update", path)
	}
}

func TestEverySettingIsDocumented(t *testing.T) {
	var walk func(t *testing.T, path string, v reflect.Type)
	walk = func(t *testing.T, path string, v reflect.Type) {
		for i := range v.NumField() {
			f := v.Field(i)
			name := path + f.Tag.Get("yaml")
			if f.Tag.Get("yaml") == "" || !strings.HasSuffix(f.Tag.Get("doc"), ".") {
				t.Errorf("%s %s: want a yaml name and a doc of sentences", path, f.Name)
			}
			if min, max := f.Tag.Get("min"), f.Tag.Get("max"); min != "" && number(min, f.Type) >= number(max, f.Type) {
				t.Errorf("%s: min %s is not below max %s", name, min, max)
			}
			if isMapping(f.Type) {
				walk(t, name+".", f.Type)
			}
		}
	}
	walk(t, "", reflect.TypeFor[Config]())
	walk(t, "agent.rules[].", reflect.TypeFor[Rule]())
	walk(t, "ci_servers[].", reflect.TypeFor[CIServer]())
}

func isMapping(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != reflect.TypeFor[Pattern]()
}

func reference() string {
	var b strings.Builder
	b.WriteString(`# Configuration

<!-- Rendered from the tags of internal/config.Config by "go test ./internal/config -update"; do not edit. -->

One YAML file, given by ` + "`--config`" + ` or ` + "`CIMETER_CONFIG`" + `. Everything in it is optional; flags and variables win over it.
` + "`cimeter check --config FILE`" + ` names everything that is wrong with a file at once.

Durations are written as 10s or 5m; sizes as 64MiB or 1GB; lists as YAML lists or with commas between.
There is no place for a secret in this file: secrets come from the environment or from files that not everybody may read.

`)
	table(&b, "", reflect.ValueOf(Default()))
	b.WriteString("## sources\n\n")
	rows(&b, reflect.ValueOf(Source{}))
	b.WriteString("\n## ci_servers\n\n")
	rows(&b, reflect.ValueOf(CIServer{}))
	b.WriteString("\n## ci_servers.notes\n\n")
	rows(&b, reflect.ValueOf(CINotes{}))
	b.WriteString("\n## agent.rules\n\n")
	rows(&b, reflect.ValueOf(Rule{}))
	b.WriteString("\nThe fields that `set` may give: `" + strings.Join(setFields[:], "`, `") + "`." + `

Patterns are regular expressions in Go's syntax and match anywhere in a value unless they are anchored with ^ and $.
Labels, names and images are written by whoever wrote the build: take a build's identity from what the runner sets.

` + "```yaml" + `
agent:
  rules:
    - name: jenkins docker plugin
      match:
        env:
          JOB_NAME: '^(?P<project>.+)$'
          BUILD_NUMBER: '^(?P<number>\d+)$'
      set:
        ci: jenkins
        project: ${project}
        number: ${number}
` + "```\n")
	return b.String()
}

func table(b *strings.Builder, path string, v reflect.Value) {
	if path != "" {
		fmt.Fprintf(b, "## %s\n\n", path)
	}
	if slices.ContainsFunc(reflect.VisibleFields(v.Type()), func(f reflect.StructField) bool { return !isMapping(f.Type) }) {
		rows(b, v)
	} else {
		b.WriteString("Each of these is a mapping of its own: see below.\n")
	}
	b.WriteString("\n")
	for i := range v.NumField() {
		if f := v.Type().Field(i); isMapping(f.Type) {
			table(b, strings.TrimPrefix(path+"."+f.Tag.Get("yaml"), "."), v.Field(i))
		}
	}
}

func rows(b *strings.Builder, v reflect.Value) {
	b.WriteString("| setting | default | accepted | what it is |\n| --- | --- | --- | --- |\n")
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		if isMapping(f.Type) && f.Type != reflect.TypeFor[Match]() {
			continue // has a table of its own
		}
		if f.Type == reflect.TypeFor[Match]() {
			for j := range f.Type.NumField() {
				m := f.Type.Field(j)
				kind := "a regular expression"
				if m.Type.Kind() == reflect.Map {
					kind = "a mapping to regular expressions"
				}
				fmt.Fprintf(b, "| `match.%s` | | %s | %s |\n", m.Tag.Get("yaml"), kind, m.Tag.Get("doc"))
			}
			continue
		}
		accepted := kindWanted(value, f.Tag)
		switch {
		case value.Kind() == reflect.Map:
			accepted = "a mapping of fields"
		case f.Tag.Get("check") == "webconfig":
			accepted = "a path"
		}
		shown := fmt.Sprint(value.Interface())
		switch {
		case f.Tag.Get("auto") != "" && value.IsZero():
			shown = "auto"
		case value.Kind() == reflect.Slice, value.Kind() == reflect.Map, shown == "":
			shown = ""
		}
		if shown != "" {
			shown = "`" + shown + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", f.Tag.Get("yaml"), shown, accepted, f.Tag.Get("doc"))
	}
}
