package ci_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

func TestFirst(t *testing.T) {
	named := func(name string) ci.Identifier {
		return func(c *cimeter.Container) (cimeter.Identity, bool) {
			return cimeter.Identity{Group: name}, strings.HasPrefix(c.Name, name)
		}
	}
	first := ci.First(named("ab"), named("a"), named(""))
	for name, want := range map[string]string{"abc": "ab", "ac": "a", "x": ""} {
		if id, ok := first(&cimeter.Container{Name: name}); !ok || id.Group != want {
			t.Errorf("%s: %+v, %v, want %q", name, id, ok, want)
		}
	}
	if id, ok := ci.First(named("a"))(&cimeter.Container{Name: "x"}); ok || id != (cimeter.Identity{}) {
		t.Errorf("nobody knows x, got %+v", id)
	}
	if _, ok := ci.First()(&cimeter.Container{}); ok {
		t.Error("no identifier knows a container")
	}
}

// An environment may hold 128 KiB in one variable; a record may not.
func TestFirstBounds(t *testing.T) {
	long := strings.Repeat("a", 511) + "\u00fc" + strings.Repeat("b", 1<<17)
	as := func(key string) ci.Identifier {
		return func(*cimeter.Container) (cimeter.Identity, bool) {
			return cimeter.Identity{Build: cimeter.Build{Key: key, Name: long, URL: "https://h/" + long}, Stage: long}, true
		}
	}
	id, ok := ci.First(as(long), as("ci/1"))(&cimeter.Container{})
	if !ok || id.Build.Key != "ci/1" {
		t.Fatalf("key %.20q, %v, want the one of a bounded length", id.Build.Key, ok)
	}
	if want := strings.Repeat("a", 511); id.Build.Name != want || id.Stage != want || id.Build.URL != "" {
		t.Errorf("name of %d bytes, stage of %d, URL of %d, want 511, 511, none", len(id.Build.Name), len(id.Stage), len(id.Build.URL))
	}
	if _, ok := ci.First(as(long))(&cimeter.Container{}); ok {
		t.Error("a container with an endless key is somebody's")
	}
}

func TestVariables(t *testing.T) {
	got := ci.Variables([]string{"A", "B"}, nil, []string{"B", "C", "A"})
	if want := []string{"A", "B", "C"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestURLs(t *testing.T) {
	for in, want := range map[string][2]string{
		"https://Example.com:8443/a/b":           {"example.com:8443", "https://Example.com:8443/a/b"},
		"http://user:pw@example.com/a?t=x#y":     {"example.com", "http://example.com/a"},
		"http://example.com":                     {"example.com", "http://example.com"},
		":////1":                                 {"", ""},
		"javascript:alert(1)":                    {"", ""},
		"ftp://example.com/a":                    {"", ""},
		"https://":                               {"", ""},
		"//example.com/a":                        {"", ""},
		"":                                       {"", ""},
		"https://example.com/a\nb":               {"", ""},
		"https://example.com/%zz":                {"", ""},
		"https://example.com/gr%C3%BC%C3%9Fe/-/": {"example.com", "https://example.com/gr%C3%BC%C3%9Fe/-/"},
	} {
		if got := [2]string{ci.ServerOf(in), ci.PageOf(in)}; got != want {
			t.Errorf("%q: server and page %q, want %q", in, got, want)
		}
	}
}

func TestImageName(t *testing.T) {
	for in, want := range map[string]string{
		"postgres": "postgres", "postgres:15": "postgres", "docker.io/library/postgres:15": "postgres", "r.example.com:5000/a/b:1": "b",
		"a/b@sha256:00": "b", "b:1@sha256:00": "b", "sha256:aeb6": "sha256", "": "",
	} {
		if got := ci.ImageName(in); got != want {
			t.Errorf("ImageName(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestDigits(t *testing.T) {
	for in, want := range map[string]bool{"0": true, "4242": true, "": false, "-1": false, "1e3": false, "١": false,
		"9999999999999999999": true, "99999999999999999999": false} {
		if got := ci.IsDecimal(in); got != want {
			t.Errorf("IsDecimal(%q) = %v", in, got)
		}
	}
	for in, want := range map[string]bool{"00ff": true, "00fF": false, "00f": false, "00fff": false, "00fg": false} {
		if got := ci.IsHex(in, 4); got != want {
			t.Errorf("IsHex(%q, 4) = %v", in, got)
		}
	}
}

func TestDisagree(t *testing.T) {
	if d := ci.Disagree("id", "label", "1", "name", "2"); d != `id: label says "1", name says "2"` {
		t.Errorf("got %q", d)
	}
	for _, said := range [][2]string{{"1", "1"}, {"", "1"}, {"1", ""}} {
		if d := ci.Disagree("id", "label", said[0], "name", said[1]); d != "" {
			t.Errorf("%q do not disagree, got %q", said, d)
		}
	}
	long := ci.Disagree("id", "label", strings.Repeat("\x00", 10000), "name", "a\n")
	if len(long) > 500 || strings.ContainsAny(long, "\x00\n") {
		t.Errorf("not one short line: %q", long)
	}
	if d := ci.FirstDoubt("", "b", "c"); d != "b" {
		t.Errorf("FirstDoubt: %q", d)
	}
}

func TestNetwork(t *testing.T) {
	match := func(name string) bool { return strings.HasPrefix(name, "job") }
	for _, tt := range []struct {
		c    cimeter.Container
		want string
	}{
		{cimeter.Container{NetworkMode: "default", Networks: []string{"bridge", "job_1"}}, "job_1"},
		{cimeter.Container{NetworkMode: "job_2"}, "job_2"},
		{cimeter.Container{NetworkMode: "host", Networks: []string{"host"}}, ""},
		{cimeter.Container{}, ""},
	} {
		if got := ci.Network(&tt.c, match); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.c, got, tt.want)
		}
	}
}

func TestIsRuntime(t *testing.T) {
	for line, want := range map[string]bool{
		"runc\x00init\x00": true, "/usr/bin/runc\x00init\x00": true, "/proc/self/exe\x00init\x00": true, "crun\x00--systemd-cgroup\x00create\x00": true,
		"": true, "runc\x00list\x00": false, "init\x00": false, "/bin/sh\x00-c\x00runc init\x00": false, "exe\x00": false,
	} {
		if got := ci.IsRuntime([]byte(line)); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}
