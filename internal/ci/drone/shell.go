package drone

import (
	"bytes"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// ShellVariables returns the environment variables worth reading of the
// processes of the exec runner. None holds a secret.
func ShellVariables() []string {
	return append(Variables(), "DRONE_SYSTEM_HOST", "DRONE_SYSTEM_HOSTNAME", "DRONE_STAGE_NAME", "DRONE_STAGE_TYPE")
}

// OfProcess tells by the variables of a process which stage of a build it belongs
// to: one that the exec runner (drone-runner-exec) started. The step is told by
// [ShellStep] where no variable does.
func OfProcess(env map[string]string) (id cimeter.Identity, ok bool) {
	repo, number, stage := env["DRONE_REPO"], env["DRONE_BUILD_NUMBER"], env["DRONE_STAGE_NUMBER"]
	if !ci.IsDecimal(number) || repo == "" || !ci.IsDecimal(stage) {
		return id, false
	}
	host := strings.ToLower(env["DRONE_SYSTEM_HOST"])
	if host == "" {
		host = strings.ToLower(env["DRONE_SYSTEM_HOSTNAME"])
	}
	server := host
	if server == "" {
		server = ci.Local
	}
	id.Build = cimeter.Build{
		Key: Key(server, repo, number, stage), CI: CI, Server: host, Project: repo, Number: number, Name: env["DRONE_STAGE_NAME"],
		Ref: env["DRONE_BRANCH"], SHA: env["DRONE_COMMIT_SHA"], Event: env["DRONE_BUILD_EVENT"], URL: ci.PageOf(env["DRONE_BUILD_LINK"]),
		Runner: cimeter.Runner{Name: env["DRONE_STAGE_MACHINE"]},
	}
	if tag := env["DRONE_TAG"]; tag != "" {
		id.Build.Ref = tag
	}
	id.Role, id.Stage = cimeter.RoleBuild, env["DRONE_STEP_NAME"]
	if id.Stage == stepClone {
		id.Role = cimeter.RoleHelper
	}
	return id, true
}

// ShellStep tells the step by the path of its script in a command line, as the
// exec runner names it: <tmp>/drone-<random>/opt/<step>.sh. The command line is only
// compared.
func ShellStep(cmdline []byte) (step string, ok bool) {
	for arg := range bytes.SplitSeq(cmdline, []byte{0}) {
		i := bytes.Index(arg, []byte("/drone-"))
		if i < 0 {
			continue
		}
		random, rest, _ := bytes.Cut(arg[i+len("/drone-"):], []byte{'/'})
		name, opt := bytes.CutPrefix(rest, []byte("opt/"))
		name, sh := bytes.CutSuffix(name, []byte(".sh"))
		if len(random) > 0 && opt && sh && len(name) > 0 && len(name) <= 100 && bytes.IndexByte(name, '/') < 0 {
			return string(name), true
		}
	}
	return "", false
}
