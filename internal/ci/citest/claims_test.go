package citest_test

import (
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/act"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/drone"
	"github.com/cimeter/cimeter/internal/ci/gitea"
	"github.com/cimeter/cimeter/internal/ci/github"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
	"github.com/cimeter/cimeter/internal/ci/woodpecker"
)

// Names of variables overlap between the systems. Every recorded container is
// claimed by its own system alone, with all their variables read.
func TestClaims(t *testing.T) {
	identifiers := map[string]ci.Identifier{
		"gitlab": gitlab.Identify, "drone": drone.Identify, "woodpecker": woodpecker.Identify,
		"gitea": gitea.Identify, "act": act.Identify, "github": github.Identify,
	}
	variables := ci.Variables(gitlab.Variables(), drone.Variables(), woodpecker.Variables(), gitea.Variables(), act.Variables(), github.Variables())
	for dir, want := range map[string]string{
		"../gitlab/testdata/one": "gitlab", "../gitlab/testdata/two-failing": "gitlab",
		"../drone/testdata/exec": "drone", "../woodpecker/testdata/exec": "woodpecker",
	} {
		r := citest.Load(t, dir, variables)
		all := r.Created
		for _, c := range r.Inspected {
			all = append(all, c)
		}
		if len(r.Created) < 3 || len(r.Inspected) < 3 {
			t.Fatalf("%s: %d containers, %d inspected: the recording is not whole", dir, len(r.Created), len(r.Inspected))
		}
		for _, c := range all {
			for name, identify := range identifiers {
				id, ok := identify(c)
				if ok != (name == want) {
					t.Errorf("%s of %s: claimed by %s is %v", c.Name, want, name, ok)
				}
				if ok && (id.Build.CI != want || id.Build.Key == "") {
					t.Errorf("%s: %s gives %+v", c.Name, name, id)
				}
			}
		}
	}
}

// A container of nobody's is nobody's.
func TestClaimsNobody(t *testing.T) {
	first := ci.First(gitlab.Identify, drone.Identify, woodpecker.Identify, gitea.Identify, github.Identify, act.Identify)
	for _, c := range []cimeter.Container{
		{}, {Name: "postgres"}, {Name: "runner-1"}, {Name: "drone-server"}, {Name: "wp_cron"}, {Name: "gitea"}, {Name: "act-runner"},
		{Name: "web", Labels: map[string]string{"com.docker.compose.project": "x"}, Env: map[string]string{"CI_JOB_ID": "1", "GITLAB_CI": "true", "DRONE_REPO": "a/b"}},
	} {
		if id, ok := first(&c); ok {
			t.Errorf("%+v is taken for %+v", c, id)
		}
	}
}
