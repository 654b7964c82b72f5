package e2e_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/cimeter/cimeter/internal/testdocker"
)

// sampleJob is a job with a known burn in every stage.
func sampleJob(m *machine, id int) *gitlabJob {
	return &gitlabJob{
		ID: id, Project: "group/app", Name: "build-and-test", Random: "97c49c249c7ce906",
		Service: []string{"cpu=0.1"}, Env: []string{"SECRET_TOKEN=" + plantedSecret},
		Stages: []gitlabStage{
			{Name: "prepare_script", Steps: []string{"cpu=0.01"}},
			{Name: "get_sources", Steps: []string{"cpu=0.1", "receive=3000000:" + m.sink}},
			{Name: "restore_cache", Steps: []string{"cpu=0.05", "write=1048576:/disk/cache"}},
			{Name: "step_script", Steps: []string{"cpu=0.5", "fork=2:0.1", "mem=67108864", "write=8388608:/disk/out", "read=4194304:/disk/out", "send=1000000:" + m.sink, "sleep=0.5"}},
			{Name: "after_script", Steps: []string{"cpu=0.2", "mem=33554432"}},
			{Name: "archive_cache", Steps: []string{"cpu=0.1", "write=2097152:/disk/archive"}},
			{Name: "upload_artifacts_on_success", Steps: []string{"cpu=0.05", "send=2000000:" + m.sink}},
		},
	}
}

// TestDockerTruth holds the instrument itself: what burn says of a stage
// agrees with the kernel, and the parent cgroup keeps all of it.
func TestDockerTruth(t *testing.T) {
	m := newMachine(t)
	j := sampleJob(m, 1)
	if err := j.playOld(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	for _, name := range []string{"cache-init-0", "cache-init-1", "service", "wait"} {
		sum += time.Duration(m.truth(t, j.truthName(name)).CgroupCPU)
	}
	for _, s := range j.Stages {
		v := m.truth(t, j.truthName(s.Name))
		sum += time.Duration(v.CgroupCPU)
		t.Logf("%-28s rusage %v, cgroup %v, peak %d, read %d, written %d, received %d, sent %d", s.Name,
			time.Duration(v.CPU), time.Duration(v.CgroupCPU), v.MemoryPeak, v.ReadBytes, v.WriteBytes, v.NetworkReceive, v.NetworkTransmit)
		if v.CPU > v.CgroupCPU {
			t.Errorf("stage %s: rusage says %d ns, the cgroup only %d", s.Name, v.CPU, v.CgroupCPU)
		}
	}
	total, err := m.CPU()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("parent cgroup %v, sum of the truths %v", total, sum)
	if sum > total || sum < total*8/10 {
		t.Errorf("the truths sum up to %v, the parent cgroup kept %v", sum, total)
	}
	v := m.truth(t, j.truthName("step_script"))
	if v.WriteBytes != 8388608 || v.ReadBytes != 4194304 || v.NetworkTransmit < 1000000 || v.MemoryPeak < 67108864 {
		t.Errorf("step_script: %+v, want what its steps say", v)
	}
}

// TestDockerRunsLikeRecorded holds the players to the event streams that real
// runners were recorded to make.
func TestDockerRunsLikeRecorded(t *testing.T) {
	m := newMachine(t)
	for _, c := range []struct {
		name string
		play func(context.Context) error
		want []string // action and end of the name, for containers
	}{
		{"gitlab 15.4", func(ctx context.Context) error { return sampleJob(m, 1).playOld(ctx, m) }, []string{
			"start set-permission", "die set-permission", "start set-permission", "die set-permission",
			"start postgres-0", "start wait-for-service", "die wait-for-service",
			"start predefined-0", "die predefined-0", "start predefined-1", "die predefined-1", "start predefined-2", "die predefined-2",
			"start build-3", "die build-3", "start build-3", "die build-3",
			"start predefined-4", "die predefined-4", "start predefined-5", "die predefined-5", "die postgres-0",
		}},
		{"gitlab 19", func(ctx context.Context) error { return sampleJob(m, 2).playNew(ctx, m) }, []string{
			"start set-permission", "die set-permission", "start set-permission", "die set-permission",
			"start postgres-0", "start wait-for-service", "die wait-for-service",
			"start predefined", "die predefined", "start predefined", "die predefined", "start predefined", "die predefined",
			"start build", "die build", "start build", "die build",
			"start predefined", "die predefined", "start predefined", "die predefined", "die postgres-0",
		}},
		{"drone", func(ctx context.Context) error {
			return (&droneStage{Number: 3, Slug: "acme/app", Random: "ZLpmnUx4slHVaLx2p", Steps: sampleSteps}).play(ctx, m)
		}, []string{"start p000", "start p001", "die p001", "start p002", "die p002", "die p000"}},
		{"woodpecker", func(ctx context.Context) error {
			return (&woodpeckerWorkflow{Number: 4, Repo: "acme/app", Name: "test", ULID: "01M8NMM1NTF6EZH63G9415QC", Steps: sampleSteps}).play(ctx, m)
		}, []string{"start C01", "start C02", "die C02", "start C03", "die C03", "die C01"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			since := time.Now()
			if err := c.play(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range m.events(t, since) {
				action, name, _ := strings.Cut(e, " ")
				if action != "start" && action != "die" {
					continue
				}
				i := slices.IndexFunc(c.want, func(w string) bool {
					_, end, _ := strings.Cut(w, " ")
					return strings.Contains(name, end) && strings.HasSuffix(trimRandom(name), end)
				})
				if i < 0 {
					got = append(got, e)
					continue
				}
				_, end, _ := strings.Cut(c.want[i], " ")
				got = append(got, action+" "+end)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("events:\n got %q\nwant %q", got, c.want)
			}
		})
	}
}

// sampleSteps are a service and two steps.
var sampleSteps = []step{
	{Name: "cache", Steps: []string{"cpu=0.05"}, Service: true},
	{Name: "compile", Steps: []string{"cpu=0.3", "write=4194304:/disk/compile"}},
	{Name: "unit-tests", Steps: []string{"cpu=0.1", "mem=33554432", "sleep=0.3"}},
}

// trimRandom cuts the random end of the name of a cache container.
func trimRandom(name string) string {
	if i := strings.Index(name, "-set-permission-"); i >= 0 {
		return name[:i+len("-set-permission")]
	}
	return name
}

// events lists what happened to containers since then: action and name.
func (m *machine) events(t *testing.T, since time.Time) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := m.Client().Events(ctx, client.EventsListOptions{
		Since: since.Format(time.RFC3339Nano), Until: time.Now().Format(time.RFC3339Nano),
		Filters: client.Filters{}.Add("type", "container"),
	})
	var all []string
	for {
		select {
		case e := <-r.Messages:
			all = append(all, string(e.Action)+" "+e.Actor.Attributes["name"])
		case err := <-r.Err:
			if err != nil && err != io.EOF {
				t.Fatalf("listing events: %v", err)
			}
			return all
		}
	}
}

// TestDockerJobList holds the stand-in for the runner's job list to the form
// of the real one.
func TestDockerJobList(t *testing.T) {
	m := newMachine(t)
	list := newJobList(t, m)
	j := &gitlabJob{ID: 5001, Project: "group/app"}
	list.set(j.URL(), "running", "get_sources", "docker_run")
	c := http.Client{Transport: &http.Transport{DialContext: m.Dial}}
	resp, err := c.Get(list.address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	want := "url=https://gitlab.example.com/group/app/-/jobs/5001 state=running stage=get_sources executor_stage=docker_run duration="
	if !strings.HasPrefix(string(b), want) || resp.Header.Get("X-List-Version") != "2" {
		t.Errorf("got %q, version %q, want %q, version 2", b, resp.Header.Get("X-List-Version"), want)
	}
	if exit, err := m.Run(t.Context(), testdocker.Spec{Cmd: []string{"true"}}); err != nil || exit.Code != 0 {
		t.Errorf("a container beside it: exit %d, %v", exit.Code, err)
	}
}
