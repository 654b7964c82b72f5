package deploy_test

import (
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The program for arm64, built as scripts/release.sh builds it, is static and
// works: a processor is emulated for it. make tools has compiled it before.
func TestARM64(t *testing.T) {
	require(t, "qemu-aarch64-static")
	dir := t.TempDir()
	bin := filepath.Join(dir, "cimeter")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -buildid=", "-o", bin, "./cmd/cimeter")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=arm64", "GOARM64=v8.0")
	output(t, build)
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Machine != elf.EM_AARCH64 {
		t.Errorf("it is for %v", f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it is not static: it has a segment %v", p.Type)
		}
	}
	emulated := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("qemu-aarch64-static", append([]string{bin}, args...)...)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir}
		return output(t, cmd)
	}
	if out := emulated("version"); !strings.Contains(out, "linux/arm64") {
		t.Errorf("version: %s", out)
	}
	if out := emulated("check", "--data", filepath.Join(dir, "data")); !strings.HasPrefix(out, "configuration") || !strings.Contains(out, "cgroups") {
		t.Errorf("check: %s", out)
	}
	file := filepath.Join(dir, "build.json")
	emulated("run", "--project", "group/app", "--json", file, "--", "sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
	var record struct {
		Project string
		Usage   struct {
			CPU struct{ Total float64 } `json:"cpu_seconds"`
		}
	}
	if err := json.Unmarshal([]byte(readFile(t, file)), &record); err != nil || record.Project != "group/app" || record.Usage.CPU.Total <= 0 {
		t.Errorf("run: %v, %+v: want CPU time of group/app", err, record)
	}
}
