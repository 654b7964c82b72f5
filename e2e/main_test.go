package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// binFolder names a folder with ready programs (burn, cimeter), where there is
// no Go: in the guest.
const binFolder = "CIMETER_TEST_BIN"

func TestMain(m *testing.M) {
	if os.Getenv(playRunner) != "" {
		os.Exit(runAsRunner())
	}
	if os.Getenv(playHelper) != "" {
		<-time.After(helperLasts)
		os.Exit(0)
	}
	code := m.Run()
	if os.Getenv(binFolder) == "" {
		if dir, err := built.folder(); err == nil {
			os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// programs builds programs of this module once for each test process.
type programs struct {
	folder func() (string, error)
	burn   func() (string, error)
	agent  func() (string, error)
}

var built = func() programs {
	folder := sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "cimeter-e2e-") })
	build := func(name, pkg string) func() (string, error) {
		return sync.OnceValues(func() (string, error) {
			if dir := os.Getenv(binFolder); dir != "" {
				path := filepath.Join(dir, name)
				_, err := os.Stat(path)
				return path, err
			}
			dir, err := folder()
			if err != nil {
				return "", err
			}
			path := filepath.Join(dir, name)
			return path, buildProgram(path, pkg)
		})
	}
	return programs{folder: folder, burn: build("burn", "./e2e/burn"), agent: build("cimeter", "./cmd/cimeter")}
}()

// buildProgram builds a static program of this module.
func buildProgram(path, pkg string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, pkg)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// burnProgram is the path of e2e/burn.
func burnProgram(tb testing.TB) string {
	tb.Helper()
	path, err := built.burn()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// agentProgram is the path of cimeter.
func agentProgram(tb testing.TB) string {
	tb.Helper()
	path, err := built.agent()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}
