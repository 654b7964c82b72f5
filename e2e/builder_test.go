package e2e_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/testdocker"
	"github.com/cimeter/cimeter/internal/testtools"
)

// named has the containers that follow run burn under another program's name.
func (b *bare) named(name string) {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), name)
	if err := os.Link(b.burn, path); err != nil {
		if err = copyProgram(path, b.burn); err != nil {
			b.t.Fatal(err)
		}
	}
	b.burn = path
}

// TestAgentSharedBuilder has two builds ask a builder that no build made, in a
// container and over the network. While one of them alone has a client running, a step
// is that one's; while both have, nobody's. A third asks an engine of its own.
func TestAgentSharedBuilder(t *testing.T) {
	b := newPatientBare(t)
	a := startAgent(t, b, bareConfig())
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	touch := func(name string) {
		t.Helper()
		if err := os.WriteFile(file(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	burn := b.burn
	builder, err := b.sibling(0, testdocker.Box{}, "cpu=0.1", "await="+file("work"), "cpu=0.2", "mark="+file("worked"), "await="+file("end"))
	if err != nil {
		t.Fatal(err)
	}
	engineInside(t, builder)
	builder.inside = append(builder.inside, builder.cgroup+"/buildkit")
	var boxes []*box
	builds := make(map[int]*bareBuild)
	begin := func(number int, program string) *bareBuild {
		t.Helper()
		s := builds[number]
		if s == nil {
			s = b.build(number)
			builds[number] = s
		}
		if program != "" {
			b.named(program)
		}
		c, err := s.begin("tests", "cpu=0.02", "mark="+file(fmt.Sprint("up-", number, program)), "await="+file("end"))
		if err != nil {
			t.Fatal(err)
		}
		boxes = append(boxes, c)
		a.eventually("the build is known", func() error {
			if !exists(file(fmt.Sprint("up-", number, program))) {
				return fmt.Errorf("it has not begun")
			}
			if n := a.metric("cimeter_builds_running", `project="acme/bare"`); n != float64(len(builds)) {
				return fmt.Errorf("%v builds run", n)
			}
			return nil
		})
		b.burn = burn
		return s
	}
	step := func(name, seconds string) *inner {
		t.Helper()
		i := &inner{path: builder.cgroup + "/buildkit/" + name, slow: lateRemoval}
		if err := i.run(b, "cpu="+seconds); err != nil {
			t.Fatal(err)
		}
		return i
	}
	step("a"+stepID[1:], "0.1") // no build asks for anything
	first := begin(1, "buildctl")
	own := begin(2, "dockerd")
	begin(2, "docker")
	alone := step(stepID, "0.3")
	second := begin(3, "docker-buildx")
	shared := step("b"+stepID[1:], "0.2")
	touch("work")
	a.eventually("the builder has worked itself", func() error {
		if !exists(file("worked")) {
			return fmt.Errorf("it has not")
		}
		return nil
	})
	touch("end")
	for _, x := range append(boxes, builder) {
		if err := x.end(); err != nil {
			t.Fatal(err)
		}
		x.build.remove()
	}
	r := a.await(first.Key())
	p := partOf(t, &r, stepID)
	checkPart(t, p, alone)
	if p.Attribution != cimeter.AttributedClient || p.Confidence != cimeter.Likely || p.Counted || p.Kind != cimeter.PartBuildStep || p.Within != "" || len(r.Parts) != 1 {
		t.Errorf("parts %+v, want one step, of the client alone that ran", r.Parts)
	}
	for _, s := range []*bareBuild{own, second} {
		if r := a.await(s.Key()); len(r.Parts) > 0 {
			t.Errorf("%s has parts: %+v", s.Key(), r.Parts)
		}
	}
	// What the builder does itself since it was asked is theirs together.
	for by, want := range map[cimeter.Attribution]float64{
		cimeter.AttributedClient: alone.cpu.Seconds(), cimeter.AttributedSole: 0, cimeter.Unattributed: shared.cpu.Seconds() + 0.2,
	} {
		if got := a.besides(by); math.Abs(got-want) > 0.02*want+0.02 {
			t.Errorf("%v s counted as %s, want %v", got, by, want)
		}
	}
}

// TestShell_beside has a build without containers run a client of the engine: what
// appears meanwhile beside it is shown with it. Nobody's is what appears before.
func TestShell_beside(t *testing.T) {
	b := newBare(t)
	dir, job := t.TempDir(), jobNumber(700)
	burn := b.burn
	b.named("docker")
	docker := b.burn
	b.burn = burn
	file := func(name string) string { return filepath.Join(dir, name) }
	awaits := func(name string) string { return fmt.Sprintf("while [ ! -e %s ]; do sleep 0.05; done\n", file(name)) }
	r := startRunner(t, "gitlab-runner", []shellBuild{{Shells: []shellRun{{Stdin: gitlabExports(job) + short(10, 5000) +
		awaits("ask") + fmt.Sprintf("%s mark=%s await=%s\n", docker, file("asks"), file("enough"))}}}})
	a := startAgent(t, b, shellConfig("events"))
	a.eventually("the runner is seen", func() error { return atLeast(a, "cimeter_agent_process_runners", 1) })
	r.begin()
	a.eventually("the build is known", func() error {
		if n := a.metric("cimeter_builds_running", `project="acme/app"`); n != 1 {
			return fmt.Errorf("%v builds run", n)
		}
		return nil
	})
	step := func(id string) *inner {
		t.Helper()
		i := &inner{path: b.parent + "/buildkit/" + id, slow: lateRemoval}
		if err := i.run(b, "cpu=0.2"); err != nil {
			t.Fatal(err)
		}
		return i
	}
	step("a" + stepID[1:])
	if err := os.WriteFile(file("ask"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a.eventually("the client runs", func() error { _, err := os.Stat(file("asks")); return err })
	asked := step(stepID)
	sibling, err := b.sibling(0, testdocker.Box{}, "cpu=0.2", "sleep=0.3")
	if err != nil {
		t.Fatal(err)
	}
	if err := sibling.end(); err != nil {
		t.Fatal(err)
	}
	if err := testdocker.DropCgroup(b.parent + "/buildkit"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file("enough"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.expect("done")
	rec := a.await(gitlabKey(job))
	checkPart(t, partOf(t, &rec, stepID), asked)
	for _, id := range []string{stepID, sibling.ID} {
		if p := partOf(t, &rec, id); p.Attribution != cimeter.AttributedClient || p.Confidence != cimeter.Likely || p.Counted || len(rec.Parts) != 2 {
			t.Errorf("part %+v of %d, want two, of the client that ran", p, len(rec.Parts))
		}
	}
	want := asked.cpu + sibling.build.spent
	if got := a.besides(cimeter.AttributedClient); math.Abs(got-want.Seconds()) > 0.02*want.Seconds()+0.004 {
		t.Errorf("%v s counted as a client's, want %v", got, want)
	}
}

// sharedBuilder has a job build an image by a BuildKit that no build made, once while
// its client is the only one and once while another job has one, too.
func sharedBuilder(t *testing.T, m *machine) {
	a := startAgent(t, m, agentConfig(nil))
	dir := filepath.Join(m.Folder(), "builder")
	for _, d := range []string{"lib", "source"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyProgram(filepath.Join(dir, "source", "burn"), burnProgram(t)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "source", "Dockerfile"), []byte("FROM scratch\nCOPY burn /burn\nRUN [\"/burn\", \"cpu=0.3\", \"sleep=0.5\"]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	builder, err := m.Client().ContainerCreate(t.Context(), client.ContainerCreateOptions{
		Name: "buildx_buildkit_shared0",
		Config: &container.Config{
			Image: "docker:dind", Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
			Cmd: []string{"/buildkitd", "--addr", "tcp://0.0.0.0:1234", "--root", "/var/lib/buildkit", "--containerd-worker=false", "--oci-worker-net=host", "--oci-worker-snapshotter=native"},
		},
		HostConfig: &container.HostConfig{
			Privileged: true,
			Binds:      []string{"/usr:/usr:ro", testtools.Path(t, testtools.Buildkitd) + ":/buildkitd:ro", filepath.Join(dir, "lib") + ":/var/lib/buildkit"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Begin(t.Context(), builder.ID); err != nil {
		t.Fatal(err)
	}
	c, err := m.Client().ContainerInspect(t.Context(), builder.ID, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	address := c.Container.NetworkSettings.Networks["bridge"].IPAddress
	begin := func(number int, random, script string) (*droneStage, string) {
		t.Helper()
		s := &droneStage{Number: number, Slug: "acme/builder", Random: random}
		labels := s.labels()
		labels["io.drone.step.name"], labels["io.drone.step.number"] = "image", "1"
		id, err := m.Create(t.Context(), testdocker.Spec{
			Name: "drone-" + random + "001", Labels: labels,
			Binds: append(m.binds(), testtools.Path(t, testtools.Buildctl)+":/usr/bin/buildctl:ro", filepath.Join(dir, "source")+":/source:ro"),
			Cmd:   []string{"sh", "-c", "set -e\nbuild() { buildctl --wait --addr tcp://" + address.String() + ":1234 build --frontend dockerfile.v0 --local context=/source --local dockerfile=/source --no-cache --progress plain; }\n" + script},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Begin(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return s, id
	}
	first, one := begin(41, "Bt4306jSfhaW8L19g", "burn await=/truth/begin\nbuild\nburn mark=/truth/built await=/truth/again\nbuild")
	running := func(want float64) {
		t.Helper()
		a.eventually("the builds are known", func() error {
			if n := a.metric("cimeter_builds_running", `project="acme/builder"`); n != want {
				return fmt.Errorf("%v builds run", n)
			}
			return nil
		})
	}
	running(1)
	m.mark(t, "begin")
	if err := m.awaitFile(t.Context(), "built"); err != nil {
		t.Fatal(err)
	}
	second, two := begin(42, "Ct4306jSfhaW8L19g", "cp /usr/bin/burn /tmp/buildctl\n/tmp/buildctl build -- mark=/truth/beside await=/truth/enough")
	if err := m.awaitFile(t.Context(), "beside"); err != nil {
		t.Fatal(err)
	}
	running(2)
	m.mark(t, "again")
	for i, id := range []string{one, two} {
		if exit, err := m.Wait(t.Context(), id); err != nil || exit.Code != 0 {
			t.Fatalf("job %d: exit %d: %v", i, exit.Code, err)
		}
		if i == 0 {
			m.mark(t, "enough")
		}
	}
	for _, id := range []string{one, two, builder.ID} {
		if err := m.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	r, r2 := a.await(first.Key()), a.await(second.Key())
	t.Logf("parts %+v, unattributed %.3f s", r.Parts, a.besides(cimeter.Unattributed))
	i := slices.IndexFunc(r.Parts, func(p cimeter.Part) bool { return p.Kind == cimeter.PartBuildStep })
	if len(r.Parts) != 1 || i < 0 || len(r2.Parts) > 0 {
		t.Fatalf("parts %+v and %+v, want one step of the first", r.Parts, r2.Parts)
	}
	p := r.Parts[i]
	if cpu := p.CPUSeconds.Value; cpu < 0.3 || cpu > 0.6 || p.Counted || p.Attribution != cimeter.AttributedClient || p.Confidence != cimeter.Likely {
		t.Errorf("part %+v, want 0.3 s of CPU by the client that ran", p)
	}
	if got := a.besides(cimeter.AttributedClient); math.Abs(got-p.CPUSeconds.Value) > 0.001 {
		t.Errorf("%v s counted as a client's, want %v", got, p.CPUSeconds)
	}
	// The other step, and what the builder itself does.
	if got := a.besides(cimeter.Unattributed); got < 0.3 {
		t.Errorf("%v s unattributed, want 0.3 s at least", got)
	}
	if text := a.tool("summary", first.Key()); !strings.Contains(text, "beside") {
		t.Errorf("the summary does not tell of the step:\n%s", text)
	}
}
