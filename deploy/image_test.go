package deploy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cimeter/cimeter/internal/testdocker"
)

// image makes the image of version 1.2.3+a and returns its file.
func image(t *testing.T, env ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	cmd := exec.Command("../scripts/package-image.sh", "1.2.3+a", "amd64", program(t), file)
	cmd.Env = append(append(os.Environ(), "SOURCE_DATE_EPOCH=1796000000"), env...)
	output(t, cmd)
	return file
}

const imageName = "cimeter:1.2.3_a"

// A real daemon takes the image. Its agent, without any capability and on a
// read-only file system, meters a job beside it; its server keeps what it is
// sent. Each is started as docs/install.md says.
func TestImage(t *testing.T) {
	require(t, "docker")
	file := image(t, "TZ=Asia/Tokyo")
	if readFile(t, file) != readFile(t, image(t, "TZ=UTC", "LC_ALL=C")) {
		t.Error("two images of one program differ")
	}
	d := testdocker.Start(t, testdocker.Options{})
	docker := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(output(t, exec.Command("docker", append([]string{"--host", d.Host()}, args...)...)))
	}
	if out := docker("load", "--input", file); !strings.Contains(out, imageName) {
		t.Fatalf("docker load: %s: want %s", out, imageName)
	}
	socket := strings.TrimPrefix(d.Host(), "unix://")
	if err := os.Chown(socket, 0, dockerGroup); err != nil {
		t.Fatal(err)
	}
	replace := strings.NewReplacer(
		"/var/run/docker.sock:", socket+":", "$(stat -c %g /var/run/docker.sock)", strconv.Itoa(dockerGroup), "cimeter:TAG", imageName,
	)
	run := func(name string, more ...string) (address string) {
		t.Helper()
		args := strings.Fields(replace.Replace(documented(t, "--name "+name)))
		docker(append(args, more...)...)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s says:\n%s", name, docker("logs", name))
			}
			docker("rm", "--force", "--volumes", name)
		})
		eventually(t, name+" listens", func() error {
			logs := docker("logs", name)
			m := listening.FindStringSubmatch(logs)
			if m == nil {
				return fmt.Errorf("%s", logs)
			}
			address = m[1]
			return nil
		})
		return address
	}
	address := run("cimeter-agent", "--listen", "127.0.0.1:0")
	var state struct{ Pid int }
	if err := json.Unmarshal([]byte(docker("inspect", "--format", "{{json .State}}", "cimeter-agent")), &state); err != nil {
		t.Fatal(err)
	}
	status := readFile(t, fmt.Sprintf("/proc/%d/status", state.Pid))
	for _, want := range []string{`CapEff:\t0+`, `CapBnd:\t0+`, `NoNewPrivs:\t1`, `Uid:\t65532\t65532\t65532\t65532`} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(status) {
			t.Errorf("status has no line %s:\n%s", want, status)
		}
	}
	p := &confinedProcess{client: web(d), address: address}
	eventually(t, "the agent is ready", p.ready)
	key := playJob(t, d, 4712)
	var record struct {
		Usage struct {
			CPU struct{ Total float64 } `json:"cpu_seconds"`
		}
	}
	eventually(t, "the record of "+key, func() error { return p.getJSON("/api/v1/builds/"+key, &record) })
	if record.Usage.CPU.Total <= 0 {
		t.Errorf("usage %+v: want CPU time", record.Usage)
	}

	run("cimeter-server")
	ip := docker("inspect", "--format", "{{.NetworkSettings.IPAddress}}", "cimeter-server")
	eventually(t, "the server is ready", func() error {
		resp, err := web(d).Get("http://" + ip + ":9808/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", resp.Status)
		}
		return nil
	})
}

// documented is the docker command of docs/install.md that has this in it,
// without the word docker.
func documented(t *testing.T, with string) string {
	t.Helper()
	text := strings.ReplaceAll(readFile(t, "../docs/install.md"), "\\\n", " ")
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "docker run "); ok && strings.Contains(line, with+" ") {
			return "run " + rest
		}
	}
	t.Fatalf("docs/install.md has no docker run with %s", with)
	return ""
}
