package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/testdocker"
)

// gitlabJob is a job as GitLab Runner's docker executor runs it.
type gitlabJob struct {
	ID       int
	Project  string // path
	Name     string
	Slot     int    // concurrent number
	Random   string // 16 hex digits, drawn for each job since 12.10
	SystemID string // since 18.4; "" before
	Env      []string
	Stages   []gitlabStage
	// Service is the burn of a service container that runs alongside; nil is
	// no service.
	Service []string
	Network string // network mode of all containers
	Memory  int64  // limit of the build container
	NanoCPU int64  // limit of the build container
	Cgroup  string // parent of all containers; "" is the daemon's
	// At is called when a stage's container has ended, before the next.
	At func(stage string)
	// List is told of each stage.
	List *jobList
	// Spent is the CPU time of each stage, of prepare_executor too, by the
	// parent cgroup's own counter: what nothing can dispute. Only of use when
	// no other container of the parent runs.
	Spent map[string]time.Duration
}

// gitlabStage is a stage with what its script burns.
type gitlabStage struct {
	Name  string
	Steps []string // of burn
	Code  int      // exit code wanted; 0 is success
}

const (
	gitlabServer = "gitlab.example.com"
	runnerToken  = "Zx8k2mQp"
)

// build reports whether the stage runs in the build container.
func (s gitlabStage) build() bool {
	return strings.HasPrefix(s.Name, "step_") || s.Name == "after_script"
}

// Key is the job's key in records.
func (j *gitlabJob) Key() string { return fmt.Sprintf("gitlab/%s/%d", gitlabServer, j.ID) }

// URL is the job's page.
func (j *gitlabJob) URL() string {
	return fmt.Sprintf("https://%s/%s/-/jobs/%d", gitlabServer, j.Project, j.ID)
}

// truthName names the truth of a stage.
func (j *gitlabJob) truthName(stage string) string { return fmt.Sprintf("%d-%s", j.ID, stage) }

// unique is the part of names that all containers of the job share.
func (j *gitlabJob) unique() string {
	return fmt.Sprintf("runner-%s-project-42-concurrent-%d", strings.ToLower(runnerToken), j.Slot)
}

// labels are the runner's labels; typ is the container's type.
func (j *gitlabJob) labels(typ string) map[string]string {
	const p = "com.gitlab.gitlab-runner."
	l := map[string]string{
		p + "job.before_sha": strings.Repeat("0", 40), p + "job.id": fmt.Sprint(j.ID), p + "job.ref": "main",
		p + "job.sha": "7e4dc6e03bebb9c9afa0512d36c3a10085ddb970", p + "job.url": j.URL(), p + "managed": "true",
		p + "pipeline.id": "991", p + "project.id": "42", p + "runner.id": runnerToken,
		p + "runner.local_id": fmt.Sprint(j.Slot), p + "type": typ,
	}
	if j.SystemID != "" {
		l[p+"runner.system_id"] = j.SystemID
		l[p+"project.runner_id"] = fmt.Sprint(j.Slot)
		l[p+"job.timeout"] = "1h0m0s"
	}
	return l
}

// env are the job's variables, as far as they matter.
func (j *gitlabJob) env() []string {
	return append([]string{
		"CI=true", "GITLAB_CI=true", "CI_SERVER=yes", "CI_SERVER_URL=https://" + gitlabServer, "CI_RUNNER_SHORT_TOKEN=" + runnerToken,
		fmt.Sprintf("CI_CONCURRENT_ID=%d", j.Slot), fmt.Sprintf("CI_CONCURRENT_PROJECT_ID=%d", j.Slot),
		fmt.Sprintf("CI_JOB_ID=%d", j.ID), "CI_JOB_NAME=" + j.Name, "CI_JOB_STAGE=test", "CI_JOB_URL=" + j.URL(),
		"CI_PIPELINE_ID=991", "CI_PIPELINE_SOURCE=push", "CI_PROJECT_ID=42", "CI_PROJECT_PATH=" + j.Project,
		"CI_COMMIT_REF_NAME=main", "CI_COMMIT_SHA=7e4dc6e03bebb9c9afa0512d36c3a10085ddb970", "CI_RUNNER_ID=7",
	}, j.Env...)
}

// spec is what all containers of the job have in common.
func (j *gitlabJob) spec(m *machine, suffix, typ string) testdocker.Spec {
	return testdocker.Spec{
		Name: j.unique() + "-" + j.Random + "-" + suffix, Labels: j.labels(typ), Env: j.env(), Binds: m.binds(),
		Network: j.Network, CgroupParent: j.Cgroup,
	}
}

// script is what a stage's shell gets on its standard input.
func (j *gitlabJob) script(s gitlabStage) string {
	program := "burn"
	switch s.Name {
	case "get_sources":
		program = "git fetch origin --depth 20 --"
	case "restore_cache":
		program = "gitlab-runner-helper cache-extractor --file ../../../cache/k/cache.zip --timeout 10 --"
	case "download_artifacts":
		program = "gitlab-runner-helper artifacts-downloader --url https://" + gitlabServer + " --token " + secretOf(j) + " --id 1 --"
	case "archive_cache", "archive_cache_on_failure":
		program = "gitlab-runner-helper cache-archiver --file ../../../cache/k/cache.zip --timeout 10 --path big --"
	case "upload_artifacts_on_success", "upload_artifacts_on_failure":
		program = "gitlab-runner-helper artifacts-uploader --url https://" + gitlabServer + " --token " + secretOf(j) + " --id 1 --"
	}
	return fmt.Sprintf("export BURN_TRUTH=/truth BURN_NAME=%s\n%s %s\n", j.truthName(s.Name), program, strings.Join(s.Steps, " "))
}

// secretOf is the job's token: never to be seen anywhere.
func secretOf(j *gitlabJob) string { return fmt.Sprintf("glcbt-%d_PlantedJobToken", j.ID) }

// playOld runs the job as GitLab Runner 15.4 was recorded to do it: a
// container for each helper stage, numbered, and one build container that is
// started for step_script and again for after_script.
func (j *gitlabJob) playOld(ctx context.Context, m *machine) error {
	return j.play(ctx, m, func(build bool, index int) string {
		if build {
			return fmt.Sprintf("build-%d", index)
		}
		return fmt.Sprintf("predefined-%d", index)
	}, func(build bool) bool { return build })
}

// playNew runs the job as GitLab Runner 19.x does: one helper and one build
// container, both started again for each stage.
func (j *gitlabJob) playNew(ctx context.Context, m *machine) error {
	return j.play(ctx, m, func(build bool, _ int) string {
		if build {
			return "build"
		}
		return "predefined"
	}, func(bool) bool { return true })
}

// play runs the job; name names the containers and reuse says which are
// started again for each stage.
func (j *gitlabJob) play(ctx context.Context, m *machine, name func(build bool, index int) string, reuse func(build bool) bool) error {
	j.List.set(j.URL(), "pending", "", "docker_creating_user_volumes")
	defer j.List.drop(j.URL())
	var all []string // containers, removed at the end as the runner does
	defer func() {
		for _, id := range all {
			_ = m.Remove(context.WithoutCancel(ctx), id) // the daemon may be dead in a test of that
		}
	}()
	j.Spent = map[string]time.Duration{}
	if err := j.measure("prepare_executor", m, func() error { return j.prepare(ctx, m, &all) }); err != nil {
		return err
	}
	kept := map[bool]string{}
	index := 0
	for _, s := range j.Stages {
		j.List.set(j.URL(), "running", s.Name, "docker_run")
		id := kept[s.build()]
		if id == "" || !reuse(s.build()) {
			spec := j.spec(m, name(s.build(), index), map[bool]string{true: "build", false: "predefined"}[s.build()])
			spec.Stdin, spec.Hostname = true, j.unique()
			if s.build() {
				spec.Cmd, spec.Memory, spec.NanoCPUs = []string{"sh"}, j.Memory, j.NanoCPU
			} else {
				spec.Entrypoint, spec.Cmd = []string{"/entrypoint"}, []string{"gitlab-runner-build"}
			}
			var err error
			if id, err = m.Create(ctx, spec); err != nil {
				return err
			}
			all = append(all, id)
			kept[s.build()] = id
			index++
		}
		var exit testdocker.Exit
		err := j.measure(s.Name, m, func() (err error) {
			exit, err = m.Play(ctx, id, j.script(s))
			return err
		})
		if err != nil {
			return fmt.Errorf("stage %s: %w", s.Name, err)
		}
		if exit.Code != s.Code {
			return fmt.Errorf("stage %s: exit %d, want %d: %s", s.Name, exit.Code, s.Code, exit.Output)
		}
		if j.At != nil {
			j.At(s.Name)
		}
	}
	return nil
}

// measure runs f and adds to the stage what the parent cgroup used meanwhile.
func (j *gitlabJob) measure(stage string, m *machine, f func() error) error {
	parent := j.Cgroup
	if parent == "" {
		parent = m.CgroupParent()
	}
	before, err := testdocker.CgroupCPU(parent)
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	after, err := testdocker.CgroupCPU(parent)
	j.Spent[stage] += after - before
	return err
}

// prepare runs the containers of prepare_executor: two for the permissions of
// cache volumes and, with a service, the service and one that waits for it.
func (j *gitlabJob) prepare(ctx context.Context, m *machine, all *[]string) error {
	for i, mount := range []string{"/cache", "/builds"} {
		s := j.spec(m, "", "cache-init")
		s.Name = fmt.Sprintf("%s-cache-3c3f060a0374fc8bc39395164f415a7%d-set-permission-%s", j.unique(), i, fmt.Sprint(i)+j.Random[1:])
		s.Cmd = []string{"gitlab-runner-helper", "cache-init", mount, "--", "cpu=0.01"}
		s.Env = m.env(j.truthName(fmt.Sprintf("cache-init-%d", i)))
		if exit, err := m.Run(ctx, s); err != nil || exit.Code != 0 {
			return fmt.Errorf("cache-init: exit %d: %w", exit.Code, err)
		}
	}
	if j.Service == nil {
		return nil
	}
	s := j.spec(m, "postgres-0", "service")
	s.Labels["com.gitlab.gitlab-runner.service"] = "postgres"
	s.Labels["com.gitlab.gitlab-runner.service.version"] = "16"
	s.Env = append(s.Env, m.env(j.truthName("service"))...)
	s.Cmd = []string{"sh", "-c", "burn " + strings.Join(j.Service, " ") + "; exec sleep 3600"}
	id, err := m.Create(ctx, s)
	if err != nil {
		return err
	}
	*all = append(*all, id)
	if err := m.Begin(ctx, id); err != nil {
		return err
	}
	if err := m.awaitTruth(ctx, j.truthName("service")); err != nil {
		return err
	}
	w := j.spec(m, "postgres-0-wait-for-service", "wait")
	w.Labels["com.gitlab.gitlab-runner.wait"] = id
	w.Cmd = []string{"gitlab-runner-helper", "health-check", "--", "cpu=0.01"}
	w.Env = m.env(j.truthName("wait"))
	if exit, err := m.Run(ctx, w); err != nil || exit.Code != 0 {
		return fmt.Errorf("wait: exit %d: %w", exit.Code, err)
	}
	return nil
}

// jobList stands in for /debug/jobs/list of GitLab Runner: version 2 of the
// list, one line for each running job.
type jobList struct {
	address string

	mu   sync.Mutex
	jobs map[string]listedJob // by URL
}

type listedJob struct {
	state, stage, executor string
	since                  time.Time
}

// newJobList serves an empty list inside the machine's network namespace.
func newJobList(t *testing.T, m *machine) *jobList {
	t.Helper()
	l, err := m.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	list := &jobList{address: "http://" + l.Addr().String() + "/debug/jobs/list", jobs: map[string]listedJob{}}
	srv := &http.Server{Handler: list}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return list
}

func (l *jobList) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/debug/jobs/list" {
		http.NotFound(w, r)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w.Header().Set("X-List-Version", "2")
	w.Header().Set("Content-Type", "text/plain")
	for url, j := range l.jobs {
		fmt.Fprintf(w, "url=%s state=%s stage=%s executor_stage=%s duration=%s\n", url, j.state, j.stage, j.executor, time.Since(j.since))
	}
}

// set notes what a job is at. A nil list takes no notes.
func (l *jobList) set(url, state, stage, executor string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	since := time.Now()
	if j, ok := l.jobs[url]; ok {
		since = j.since
	}
	l.jobs[url] = listedJob{state: state, stage: stage, executor: executor, since: since}
}

// drop takes a job off the list.
func (l *jobList) drop(url string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.jobs, url)
}
