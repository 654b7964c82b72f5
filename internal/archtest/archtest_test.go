package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/moby/client"
)

const (
	module = "github.com/cimeter/cimeter"
	root   = "../.."
)

var update = flag.Bool("update", false, "write docs/dependencies.txt")

// listed is what the Go tool says of a package.
type listed struct {
	ImportPath string
	Dir        string
	Doc        string
	GoFiles    []string
	Imports    []string
	Module     *struct{ Path string }
	Standard   bool
}

// rel is the path of a package of ours from the root of the module.
func (p listed) rel() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

func list(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Doc,GoFiles,Imports,Module,Standard"}, args...)...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	// The binary's own settings, so that the list is the same on every machine.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var ps []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return ps
		case err != nil:
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
}

func TestLayers(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range list(t, "./...") {
		if len(p.GoFiles) == 0 {
			continue // tests only
		}
		seen[p.rel()] = true
		r, ok := layers[p.rel()]
		if !ok {
			t.Errorf("%s: no row in layers: say which layer it is and what it may import", p.rel())
			continue
		}
		for _, imp := range p.Imports {
			if why := refused(p.rel(), r, imp); why != "" {
				t.Errorf("%s imports %s: %s", p.ImportPath, imp, why)
			}
		}
	}
	for name, r := range layers {
		if !seen[name] {
			t.Errorf("layers has a row for %q, which does not exist", name)
		}
		if (len(r.theirs) > 0) != (r.whyTheir != "") {
			t.Errorf("layers: %s: want a reason for what it takes of others", name)
		}
		for _, o := range r.ours {
			if l, below := layers[o]; !below || !pointsDown(r.layer, l.layer) {
				t.Errorf("layers: %s may import %s: arrows point down only", name, o)
			}
		}
	}
}

// pointsDown reports whether a package of layer from may import one of layer to.
func pointsDown(from, to layer) bool {
	switch from {
	case pure:
		return to == pure
	case adapter:
		return to == pure || to == support
	case role:
		return to == pure || to == adapter || to == support
	case library:
		return to != forTests && to != wiring && to != library
	case wiring:
		return to != forTests && to != wiring
	case forTests:
		return to != wiring
	}
	return false
}

// refused says why package name may not import imp; "" is that it may.
func refused(name string, r row, imp string) string {
	switch {
	case imp == module:
		return ""
	case strings.HasPrefix(imp, module+"/"):
		ours := strings.TrimPrefix(imp, module+"/")
		below, ok := layers[ours]
		switch {
		case !ok:
			return "it has no row in layers"
		case r.layer == wiring && pointsDown(wiring, below.layer):
			return ""
		case below.layer == forTests:
			return "it is for tests"
		case r.layer == adapter && below.layer == adapter:
			return "adapters never know each other: a role joins them"
		case !slices.Contains(r.ours, ours):
			return "its row in layers does not name it"
		}
		return ""
	case strings.Contains(strings.SplitN(imp, "/", 2)[0], "."):
		for _, m := range r.theirs {
			if imp == m || strings.HasPrefix(imp, m+"/") {
				return ""
			}
		}
		return "its row in layers does not name a module of others that holds it"
	}
	return refusedStandard(r, imp)
}

func refusedStandard(r row, imp string) string {
	quiet := r.layer < role
	if (imp == "log" || imp == "log/slog") && !r.mayLog && quiet {
		return "only roles and the wiring log; everything below returns errors"
	}
	if imp == "testing" && r.layer != forTests {
		return "the binary has no test code"
	}
	return ""
}

// parsed calls each for every Go file of the packages of ours, tests left out.
func parsed(t *testing.T, each func(p listed, path string, fset *token.FileSet, f *ast.File)) {
	t.Helper()
	fset := token.NewFileSet()
	for _, p := range list(t, "./...") {
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			f, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			each(p, path, fset, f)
		}
	}
}

func TestEveryPackageHasOneDocComment(t *testing.T) {
	docs := map[string][]string{}
	text := map[string]string{}
	parsed(t, func(p listed, path string, _ *token.FileSet, f *ast.File) {
		docs[p.ImportPath] = append(docs[p.ImportPath], nil...)
		if f.Doc != nil {
			docs[p.ImportPath] = append(docs[p.ImportPath], filepath.Base(path))
			text[p.ImportPath] = f.Doc.Text()
		}
	})
	for pkg, files := range docs {
		start := "Package " + pkg[strings.LastIndex(pkg, "/")+1:] + " "
		switch rel := strings.TrimPrefix(pkg, module+"/"); {
		case strings.HasPrefix(rel, "cmd/"), layers[rel].layer == forTests && strings.HasPrefix(text[pkg], "Command "):
			start = "Command "
		}
		if len(files) != 1 {
			t.Errorf("%s: %d doc comments (%s): want one, which says what it owns, what it never does, where to start and what is concurrent", pkg, len(files), strings.Join(files, ", "))
		} else if !strings.HasPrefix(text[pkg], start) {
			t.Errorf("%s: doc comment starts %.40q: want %q", pkg, text[pkg], start)
		}
	}
}

func TestPurePackagesTouchNothingOutside(t *testing.T) {
	// net/url and net/netip are values.
	outside := []string{"os", "os/exec", "os/signal", "io/fs", "net", "net/http", "syscall", "log", "log/slog", "unsafe"}
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
	parsed(t, func(p listed, path string, fset *token.FileSet, f *ast.File) {
		if r, ok := layers[p.rel()]; !ok || r.layer > pure {
			return
		}
		for _, i := range f.Imports {
			imp, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(outside, imp) && !slices.Contains(layers[p.rel()].outside, filepath.Base(path)) {
				t.Errorf("%s: imports %s: domain and pure packages do no input or output", fset.Position(i.Pos()), imp)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: goroutine in a pure package: only roles own them", fset.Position(n.Pos()))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, n.Sel.Name) {
					t.Errorf("%s: time.%s in a pure package: time is a parameter", fset.Position(n.Pos()), n.Sel.Name)
				}
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "fmt" && strings.HasPrefix(n.Sel.Name, "Print") {
					t.Errorf("%s: fmt.%s in a pure package", fset.Position(n.Pos()), n.Sel.Name)
				}
			}
			return true
		})
	})
}

// The environment is an argument from the wiring on, so that a test has its own.
func TestOnlyTheWiringReadsTheEnvironment(t *testing.T) {
	parsed(t, func(p listed, path string, fset *token.FileSet, f *ast.File) {
		if l := layers[p.rel()].layer; l == wiring || l == forTests {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				x, ok := s.X.(*ast.Ident)
				if ok && x.Name == "os" && slices.Contains([]string{"Getenv", "LookupEnv", "Environ"}, s.Sel.Name) {
					t.Errorf("%s: os.%s outside cmd/cimeter", fset.Position(s.Pos()), s.Sel.Name)
				}
			}
			return true
		})
	})
}

func TestNothingRegistersItself(t *testing.T) {
	parsed(t, func(p listed, path string, fset *token.FileSet, f *ast.File) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: init function: cmd/cimeter wires, nothing registers itself", fset.Position(fn.Pos()))
			}
		}
		for _, i := range f.Imports {
			if i.Name != nil && i.Name.Name == "_" && i.Path.Value != `"embed"` {
				t.Errorf("%s: blank import: cmd/cimeter wires, nothing registers itself", fset.Position(i.Pos()))
			}
		}
	})
}

// Threat T12: a hole in the agent must not be a way to run something through
// the Docker socket. Package docker calls nothing that writes.
func TestDockerIsOnlyRead(t *testing.T) {
	allowed := []string{"ServerVersion", "Ping", "Events", "ContainerInspect", "ContainerList", "ImageInspect", "Close", "DaemonHost"}
	methods := map[string]bool{}
	for typ, i := reflect.TypeFor[*client.Client](), 0; i < typ.NumMethod(); i++ {
		methods[typ.Method(i).Name] = true
	}
	if !methods["ContainerCreate"] || !methods["ExecCreate"] {
		t.Fatalf("the client's methods are not what this test thinks: %v", methods)
	}
	calls := map[string]bool{}
	parsed(t, func(p listed, path string, fset *token.FileSet, f *ast.File) {
		for _, i := range f.Imports {
			imp, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(imp, "github.com/moby/moby/") && p.rel() != "internal/docker" && layers[p.rel()].layer != forTests {
				t.Errorf("%s: imports %s: only internal/docker knows Docker", fset.Position(i.Pos()), imp)
			}
		}
		if p.rel() != "internal/docker" {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && methods[s.Sel.Name] {
				calls[s.Sel.Name] = true
				if !slices.Contains(allowed, s.Sel.Name) {
					t.Errorf("%s: %s of the Docker client: want only %s", fset.Position(s.Pos()), s.Sel.Name, strings.Join(allowed, ", "))
				}
			}
			return true
		})
	})
	for _, m := range []string{"Events", "ContainerInspect", "ContainerList"} {
		if !calls[m] {
			t.Errorf("%s is not called in internal/docker: this test looks in the wrong place", m)
		}
	}
}

// What is in the shipped binary is committed, so that its growth shows in review.
func TestDependenciesAreListed(t *testing.T) {
	packages := map[string][]string{}
	for _, p := range list(t, "-deps", "./cmd/cimeter") {
		if !p.Standard && p.Module != nil && p.Module.Path != module {
			packages[p.Module.Path] = append(packages[p.Module.Path], strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/"))
		}
	}
	var modules []string
	for m := range packages {
		modules = append(modules, m)
	}
	slices.Sort(modules)
	var b strings.Builder
	b.WriteString("# Modules of others in the binary, each with its packages. go test ./internal/archtest -update writes this file.\n")
	for _, m := range modules {
		slices.Sort(packages[m])
		b.WriteString(m + "\n")
		for _, p := range packages[m] {
			if p == "" {
				p = "."
			}
			b.WriteString("\t" + p + "\n")
		}
	}
	path := filepath.Join(root, "docs", "dependencies.txt")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Errorf("%s is not what the binary is built from; if the change is meant, run go test ./internal/archtest -update\n%s",
			path, difference(string(got), b.String()))
	}
}

// difference lists the lines that only one of two texts has.
func difference(old, new string) string {
	a, b := strings.Split(old, "\n"), strings.Split(new, "\n")
	var out strings.Builder
	for _, l := range a {
		if !slices.Contains(b, l) {
			out.WriteString("- " + l + "\n")
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			out.WriteString("+ " + l + "\n")
		}
	}
	return out.String()
}

func TestFilesAreShort(t *testing.T) {
	long := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		most := maxLines
		if strings.HasSuffix(path, "_test.go") {
			most = maxTestLines
		}
		if n := bytes.Count(b, []byte("\n")); n > most {
			long[rel] = true
			if longFiles[rel] == "" {
				t.Errorf("%s: %d lines: want at most %d, or a reason in longFiles", rel, n, most)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for rel := range longFiles {
		if !long[rel] {
			t.Errorf("longFiles: %s is not long any more", rel)
		}
	}
}
