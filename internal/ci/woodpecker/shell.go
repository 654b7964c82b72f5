package woodpecker

import (
	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// OfProcess tells by the variables of a process which workflow it belongs to: one
// that the local backend started for a step. The variables are [Variables].
func OfProcess(env map[string]string) (id cimeter.Identity, ok bool) {
	if env["CI_SYSTEM_NAME"] != CI || env["CI_REPO"] == "" || !ci.IsDecimal(env["CI_PIPELINE_NUMBER"]) || env["CI_STEP_NAME"] == "" {
		return id, false
	}
	id.Build = build(&cimeter.Container{}, env, "")
	id.Role, id.Stage, id.Alongside = role(env["CI_STEP_TYPE"], env["CI_STEP_NAME"])
	return id, true
}
