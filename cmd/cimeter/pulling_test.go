package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/agent"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/wire"
)

// What a GitLab Runner says of its jobs tells which of them waits for an image.
func TestJobList_pulls(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-List-Version", "2")
		for i, stages := range []string{"stage=prepare_executor executor_stage=docker_pulling_image", "stage=get_sources executor_stage=docker_run", "stage= executor_stage="} {
			fmt.Fprintf(w, "url=https://gitlab.example.com/group/app/-/jobs/%d state=running %s duration=5.3s\n", i+1, stages)
		}
	}))
	defer s.Close()
	jobs, err := newJobLists([]string{s.URL + "/debug/jobs/list"})[0].Jobs(t.Context())
	want := []agent.Job{{Key: "gitlab/gitlab.example.com/1", Stage: "prepare_executor", Pulls: true}, {Key: "gitlab/gitlab.example.com/2", Stage: "get_sources"}, {Key: "gitlab/gitlab.example.com/3"}}
	if err != nil || !slices.Equal(jobs, want) {
		t.Errorf("%+v, %v: want %+v", jobs, err, want)
	}
}

// The board is told what the agents that are there run, which images they wait for, and
// where builds of GitHub are.
func TestAgentBuilds(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	beat := wire.Heartbeat{Machine: "ci-7", Host: &wire.Host{BootedAt: at}, Pulling: []wire.Pulling{{Key: "gitlab/x/1", Since: at}}, Running: []wire.Running{
		{Key: "gitlab/x/2", CI: "gitlab", Server: "x", Project: "a/b", Pipeline: "7", Runner: cimeter.Runner{Name: "r"}, Stage: "step_script", StartedAt: at},
		{Key: "github/github.com/a/b/7/2/r/test", CI: "github", Server: "github.com", Project: "a/b", Pipeline: "7", Attempt: 2, Runner: cimeter.Runner{Name: "r"}, StartedAt: at},
	}}
	want := []queue.AgentBuild{
		{Key: "gitlab/x/1", PullingSince: at},
		{Key: "gitlab/x/2", Machine: "ci-7", Stage: "step_script", BootedAt: at, StartedAt: at},
		{Key: "github/github.com/a/b/7/2/r/test", Machine: "ci-7", BootedAt: at, StartedAt: at, Place: "github.com\na/b\n7\nr", Attempt: 2},
	}
	if got := agentBuilds([]httpapi.Agent{{Heartbeat: beat}, {Heartbeat: beat, Away: true}}); !slices.Equal(got, want) {
		t.Errorf("%+v: want %+v", got, want)
	}
}
