package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cimeter/cimeter/internal/config"
)

// A setting that nothing reads would be a promise that is not kept.
func TestEverySettingIsRead(t *testing.T) {
	read := map[string]bool{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				read[s.Sel.Name] = true
			}
			return true
		})
	}
	var walk func(path string, typ reflect.Type)
	walk = func(path string, typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			name := path + f.Tag.Get("yaml")
			switch {
			case f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[config.Pattern]():
				walk(name+".", f.Type)
			case !read[f.Name]:
				t.Errorf("%s is not read anywhere in cmd/cimeter", name)
			}
		}
	}
	walk("", reflect.TypeFor[config.Config]())
	walk("agent.rules[].", reflect.TypeFor[config.Rule]())
}
