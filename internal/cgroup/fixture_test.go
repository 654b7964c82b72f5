package cgroup_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
)

const id = "4f1c0d9be2a7538664f1c0d9be2a7538664f1c0d9be2a7538664f1c0d9be2a75"

// fixture is one host's kernel files, unpacked from a txtar archive: cgroup,
// proc and sys in dir.
type fixture struct {
	t   testing.TB
	dir string
}

func unpack(t testing.TB, name string) fixture {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{t, t.TempDir()}
	var file, content string
	for l := range strings.Lines(string(b) + "--  --\n") {
		if !strings.HasPrefix(l, "-- ") || !strings.HasSuffix(l, " --\n") {
			content += l
			continue
		}
		if file != "" {
			f.write(file, content)
		}
		file, content = strings.TrimSpace(l[3:len(l)-3]), ""
	}
	return f
}

func (f fixture) write(name, content string) {
	f.t.Helper()
	p := filepath.Join(f.dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f fixture) remove(name string) {
	f.t.Helper()
	if err := os.RemoveAll(filepath.Join(f.dir, name)); err != nil {
		f.t.Fatal(err)
	}
}

func (f fixture) options() cgroup.Options {
	return cgroup.Options{Root: f.dir + "/cgroup", Proc: f.dir + "/proc", Sys: f.dir + "/sys"}
}

func (f fixture) open() *cgroup.Host {
	f.t.Helper()
	h, err := cgroup.Open(f.options())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(h.Close)
	return h
}

func group(t testing.TB, h *cgroup.Host, path string) *cgroup.Group {
	t.Helper()
	g, err := h.Group(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

var counterNames = [cimeter.NumCounters]string{
	"cpu total", "cpu user", "cpu system", "cpu periods", "cpu throttled periods", "cpu throttled",
	"io read bytes", "io write bytes", "io reads", "io writes", "net receive", "net transmit",
	"cpu some", "cpu full", "memory some", "memory full", "io some", "io full", "oom kills", "oom kills nested",
}

var gaugeNames = [cimeter.NumGauges]string{
	"memory", "memory peak", "working set", "anon", "file", "kernel", "swap", "processes",
}

// dump writes all readings that s has, one a line.
func dump(s *cimeter.Sample) string {
	var b strings.Builder
	for c := range cimeter.NumCounters {
		if v, ok := s.Counter(c); ok {
			fmt.Fprintf(&b, "%s %d\n", counterNames[c], v)
		}
	}
	for g := range cimeter.NumGauges {
		if v, ok := s.Gauge(g); ok {
			fmt.Fprintf(&b, "%s %d\n", gaugeNames[g], v)
		}
	}
	return b.String()
}
