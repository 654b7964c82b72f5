package deploy_test

import (
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cimeter/cimeter/internal/testtools"
)

// A release that is built from another folder at another time is the same bytes;
// its program is static and says what it was built from; its list of modules
// has each one that is in the program; its checksums are right. arm64 takes
// minutes to compile: it is left to make release.
func TestRelease(t *testing.T) {
	require(t, "git", "dpkg-deb", "rpmbuild")
	// That packages are reproducible is another test's.
	a, b := release(t, "TZ=Asia/Tokyo"), release(t, "TZ=UTC", "LC_ALL=C", "PACKAGES=")
	names := func(dir string) (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	want := []string{
		"SHA256SUMS", "cimeter-1.2.3-1.x86_64.rpm", "cimeter-1.2.3-linux-amd64.cdx.json", "cimeter-1.2.3-linux-amd64.tar.gz", "cimeter_1.2.3_amd64.deb",
	}
	if !slices.Equal(names(a), want) {
		t.Fatalf("a release has %v: want %v", names(a), want)
	}
	for _, name := range want[2:4] {
		if readFile(t, filepath.Join(a, name)) != readFile(t, filepath.Join(b, name)) {
			t.Errorf("two builds of %s differ", name)
		}
	}
	sums := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = a
	if n := strings.Count(output(t, sums), ": OK\n"); n != 4 {
		t.Errorf("%d checksums: want 4", n)
	}

	// Who took one file only checks it as docs/install.md says.
	taken := t.TempDir()
	for _, name := range []string{"SHA256SUMS", want[3]} {
		write(t, filepath.Join(taken, name), readFile(t, filepath.Join(a, name)), 0o644)
	}
	_, line, ok := strings.Cut(readFile(t, "../docs/install.md"), "\nsha256sum ")
	if line, _, _ = strings.Cut(line, "\n"); !ok {
		t.Fatal("docs/install.md does not tell how to check a file")
	}
	check := exec.Command("sha256sum", strings.Fields(line)...)
	check.Dir = taken
	if out := output(t, check); out != want[3]+": OK\n" {
		t.Errorf("sha256sum %s: %s", line, out)
	}

	dir := t.TempDir()
	output(t, exec.Command("tar", "--extract", "--directory", dir, "--file", filepath.Join(a, "cimeter-1.2.3-linux-amd64.tar.gz")))
	bin := filepath.Join(dir, "cimeter-1.2.3-linux-amd64", "cimeter")
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the program is not static: it has a segment %v", p.Type)
		}
	}
	if out := output(t, exec.Command(bin, "version", "--json")); !strings.Contains(out, `"revision"`) || strings.Contains(out, `"modified":true`) {
		t.Errorf("version %s: want that of a clean commit", out)
	}
	info, err := buildinfo.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	var sbom struct {
		BOMFormat  string `json:"bomFormat"`
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(a, "cimeter-1.2.3-linux-amd64.cdx.json"))), &sbom); err != nil || sbom.BOMFormat != "CycloneDX" {
		t.Fatalf("%v, format %q: want CycloneDX", err, sbom.BOMFormat)
	}
	listed := map[string]bool{}
	for _, c := range sbom.Components {
		listed[c.Name+"@"+c.Version] = true
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if !listed[m.Path+"@"+m.Version] {
			t.Errorf("%s@%s is in the program and not in its list of modules", m.Path, m.Version)
		}
	}
}

// release builds version 1.2.3 for amd64 from a clean checkout in a folder of
// its own, and returns the folder that it is in.
func release(t *testing.T, env ...string) string {
	t.Helper()
	dir := t.TempDir()
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(dir, fmt.Sprintf("source%d", len(env)))
	output(t, exec.Command("git", "-c", "advice.detachedHead=false", "clone", "--quiet", "--shared", top, source))
	cmd := exec.Command("scripts/release.sh", filepath.Join(dir, "out"), "amd64")
	cmd.Dir = source
	cmd.Env = append(append(os.Environ(), "VERSION=v1.2.3", "CYCLONEDX="+testtools.Path(t, testtools.CycloneDX)), env...)
	output(t, cmd)
	return filepath.Join(dir, "out")
}
