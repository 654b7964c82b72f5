package drone_test

import (
	"testing"

	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/drone"
)

func TestReplayIdentify(t *testing.T) {
	r := citest.Load(t, "testdata/exec", drone.Variables())
	all := r.Identify(t, drone.Identify)
	for _, c := range all {
		if c.Event.Doubt != "" || c.Inspected != nil && c.Inspected.Doubt != "" {
			t.Errorf("%s: a runner's own container is in doubt: %q, %+v", c.Name, c.Event.Doubt, c.Inspected)
		}
	}
	citest.Golden(t, "testdata/exec/identity.golden.json", all)
}
