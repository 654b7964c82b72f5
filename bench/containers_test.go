package bench_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/client"

	"github.com/cimeter/cimeter/internal/testdocker"
)

// fleet are containers that run until the end: each the build container of a
// GitLab job of its own in a project of its own, which is the dearest there is:
// nothing is shared between two of them.
type fleet struct {
	d     *testdocker.Daemon
	files []string // nine of each container, for the floor
	n     int
}

// work is what each container does: little, and every 2 s.
const work = `while :; do i=0; while [ $i -lt 200 ]; do i=$((i+1)); done; sleep 2; done`

// startWorkers is how many containers are started at a time.
const startWorkers = 6

// grow starts containers until there are n.
func (f *fleet) grow(b *testing.B, n int) {
	b.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan int)
	for range startWorkers {
		wg.Go(func() {
			for i := range next {
				files, err := f.begin(b.Context(), i)
				if err != nil {
					b.Error(err)
					continue
				}
				mu.Lock()
				f.files = append(f.files, files...)
				mu.Unlock()
			}
		})
	}
	for ; f.n < n; f.n++ {
		next <- f.n
	}
	close(next)
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

func (f *fleet) begin(ctx context.Context, i int) (files []string, err error) {
	const p = "com.gitlab.gitlab-runner."
	project := fmt.Sprintf("group/app-%03d", i)
	url := fmt.Sprintf("https://gitlab.example.com/%s/-/jobs/%d", project, 5000+i)
	id, err := f.d.Create(ctx, testdocker.Spec{
		Name: fmt.Sprintf("runner-zx8k2mqp-project-%d-concurrent-%d-%016x-build", i, i, i),
		Labels: map[string]string{
			p + "job.id": fmt.Sprint(5000 + i), p + "job.url": url, p + "job.ref": "main", p + "managed": "true",
			p + "job.sha": "7e4dc6e03bebb9c9afa0512d36c3a10085ddb970", p + "pipeline.id": "991", p + "project.id": fmt.Sprint(i),
			p + "runner.id": "Zx8k2mQp", p + "runner.local_id": fmt.Sprint(i), p + "type": "build",
		},
		Env: []string{
			"CI=true", "GITLAB_CI=true", "CI_SERVER_URL=https://gitlab.example.com", "CI_RUNNER_SHORT_TOKEN=Zx8k2mQp",
			fmt.Sprintf("CI_JOB_ID=%d", 5000+i), "CI_JOB_NAME=unit", "CI_JOB_STAGE=test", "CI_JOB_URL=" + url,
			"CI_PIPELINE_ID=991", "CI_PROJECT_PATH=" + project, "CI_COMMIT_REF_NAME=main",
		},
		Cmd: []string{"sh", "-c", work},
	})
	if err != nil {
		return nil, err
	}
	if err := f.d.Begin(ctx, id); err != nil {
		return nil, err
	}
	c, err := f.d.Client().ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return nil, fmt.Errorf("inspecting container %.12s: %w", id, err)
	}
	files, err = counters(filepath.Join(f.d.CgroupParent(), id))
	return append(files, fmt.Sprintf("/proc/%d/net/dev", c.Container.State.Pid)), err
}

const cgroupRoot = "/sys/fs/cgroup"

// counters lists the floor's eight files of a cgroup.
func counters(path string) ([]string, error) {
	v2, err := testdocker.V2()
	if err != nil {
		return nil, err
	}
	names := []string{
		"cpuacct/cpuacct.usage", "cpu/cpu.stat", "memory/memory.usage_in_bytes", "memory/memory.max_usage_in_bytes",
		"memory/memory.stat", "blkio/blkio.throttle.io_service_bytes_recursive", "blkio/blkio.throttle.io_serviced_recursive",
		"pids/pids.current",
	}
	if v2 {
		names = []string{
			"cpu.stat", "memory.current", "memory.peak", "memory.stat", "io.stat", "pids.current", "memory.events", "memory.swap.current",
		}
	}
	var files []string
	for _, name := range names {
		controller, file, ok := strings.Cut(name, "/")
		if !ok {
			controller, file = "", name
		}
		full := filepath.Join(cgroupRoot, controller, path, file)
		if _, err := os.Stat(full); err != nil {
			return nil, err
		}
		files = append(files, full)
	}
	return files, nil
}

// hierarchies lists the mounted ones that an agent meters, by their folders in
// cgroupRoot.
func hierarchies() ([]string, error) {
	v2, err := testdocker.V2()
	if err != nil || v2 {
		return []string{""}, err
	}
	var all []string
	for _, h := range []string{"memory", "cpu", "cpuacct", "pids", "blkio", "unified"} {
		if _, err := os.Stat(filepath.Join(cgroupRoot, h, "cgroup.procs")); err == nil {
			all = append(all, h)
		}
	}
	return all, nil
}

// makeRoot makes a cgroup in every hierarchy, which goes with b, and returns
// its path.
func makeRoot(b *testing.B) string {
	b.Helper()
	path := fmt.Sprintf("/cimeter-bench-%d", os.Getpid())
	all, err := hierarchies()
	if err != nil {
		b.Fatal(err)
	}
	for _, h := range all {
		dir := filepath.Join(cgroupRoot, h, path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	b.Cleanup(func() {
		entries, _ := filepath.Glob(filepath.Join(cgroupRoot, "*", path)) // the pattern is well-formed
		if v2 := filepath.Join(cgroupRoot, path); len(entries) == 0 {
			entries = []string{v2}
		}
		for _, dir := range entries {
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				b.Errorf("removing the benchmark's cgroup: %v", err)
			}
		}
	})
	return path
}

// mounts is a shell script that makes a cgroup what is mounted at root, in the
// hierarchies that an agent meters.
func mounts(cgroup, root string) (script string, err error) {
	all, err := hierarchies()
	if err != nil {
		return "", err
	}
	for _, h := range all {
		to := filepath.Join(root, h)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return "", err
		}
		script += "mount --bind " + filepath.Join(cgroupRoot, h, cgroup) + " " + to + "\n"
	}
	return script, nil
}
