package woodpecker_test

import (
	"testing"

	"github.com/cimeter/cimeter/internal/ci/woodpecker"
)

func TestOfProcess(t *testing.T) {
	env := map[string]string{
		"CI_SYSTEM_NAME": "woodpecker", "CI_SYSTEM_URL": "https://ci.example.com", "CI_REPO": "acme/app", "CI_PIPELINE_NUMBER": "9",
		"CI_WORKFLOW_NAME": "build", "CI_WORKFLOW_NUMBER": "2", "CI_STEP_NAME": "test", "CI_STEP_TYPE": "commands",
	}
	id, ok := woodpecker.OfProcess(env)
	if !ok || id.Build.Key != "woodpecker/ci.example.com/acme/app/9/build/2" || id.Stage != "test" || id.Build.Project != "acme/app" {
		t.Errorf("%+v, %v", id, ok)
	}
	for _, name := range []string{"CI_SYSTEM_NAME", "CI_REPO", "CI_PIPELINE_NUMBER", "CI_STEP_NAME"} {
		less := make(map[string]string)
		for k, v := range env {
			if k != name {
				less[k] = v
			}
		}
		if id, ok := woodpecker.OfProcess(less); ok {
			t.Errorf("without %s: taken for %+v", name, id)
		}
	}
}
