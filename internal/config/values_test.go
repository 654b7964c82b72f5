package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cimeter/cimeter/internal/config"
)

func TestBytes(t *testing.T) {
	for text, want := range map[string]config.Bytes{
		"0": 0, "512": 512, "64MiB": 64 << 20, "1 GiB": 1 << 30, "10MB": 10e6, "7 B": 7, "2TiB": 2 << 40, "3kB": 3000,
	} {
		var b config.Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%q: got %d, %v; want %d", text, b, err, want)
		}
		var again config.Bytes
		if err := again.UnmarshalText([]byte(b.String())); err != nil || again != b {
			t.Errorf("%q: printed as %q, which reads as %d, %v", text, b, again, err)
		}
	}
	for _, text := range []string{"", "-1", "1.5GiB", "MiB", "9223372036854775807KiB", "1 parsec"} {
		var b config.Bytes
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: got %d, want an error", text, b)
		}
	}
}

func TestSecret_NeverPrints(t *testing.T) {
	const plain = "glrt-hunter2"
	type holder struct{ Token config.Secret }
	s := config.NewSecret(plain)
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+"\n", s)
		fmt.Fprintf(&out, verb+"\n", holder{s})
		fmt.Fprintf(&out, verb+"\n", &holder{s})
	}
	if err := json.NewEncoder(&out).Encode(holder{s}); err != nil {
		t.Fatal(err)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "token", s, "in", holder{s})
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "token", s, "in", holder{s})
	hex := fmt.Sprintf("%x", plain)
	if got := out.String(); strings.Contains(got, "hunter2") || strings.Contains(got, hex) || !strings.Contains(got, "<secret>") {
		t.Errorf("printed:\n%s", got)
	}
	if s.Reveal() != plain || s.IsZero() || !(config.Secret{}).IsZero() {
		t.Error("the secret itself is lost")
	}
}

func TestReadSecret(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	none := func(string) string { return "" }
	variable := func(name string) string { return map[string]string{"TOKEN": "from-env"}[name] }

	for _, c := range []struct {
		name, path, want string
		getenv           func(string) string
	}{
		{"file without its line break", file("a", "s3cret\n", 0o600), "s3cret", none},
		{"variable wins over a file", file("b", "x", 0o600), "from-env", variable},
		{"neither", "", "", none},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := config.ReadSecret("TOKEN", c.path, c.getenv)
			if err != nil || s.Reveal() != c.want {
				t.Errorf("got %q, %v; want %q", s.Reveal(), err, c.want)
			}
		})
	}
	for _, c := range []struct{ name, path, want string }{
		{"world-readable", file("c", "s3cret", 0o604), "mode 0604 lets everybody"},
		{"world-writable", file("d", "s3cret", 0o602), "mode 0602 lets everybody"},
		{"missing", filepath.Join(dir, "none"), "no such file"},
		{"directory", dir, "want a regular file"},
		{"empty", file("e", "\n", 0o600), "empty file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := config.ReadSecret("TOKEN", c.path, none)
			if err == nil || !strings.Contains(err.Error(), c.want) || !s.IsZero() || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
