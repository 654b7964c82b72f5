// Package jenkins tells which Jenkins build a process or a pod of the Kubernetes
// plugin belongs to. It is pure; [Identify] and [OfProcess] are its entry points.
//
// A build of cimeter is a build of Jenkins, whatever number of nodes it works on.
package jenkins

import (
	"net/url"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// CI is the kind of CI system in builds of this package.
const CI = "jenkins"

// Key returns the key of a build: server is the host of its address, job the names
// of folders and job joined by slashes.
func Key(server, job, number string) string { return cimeter.BuildKey(CI, server, job, number) }

// Variables returns the environment variables worth reading of a build's processes.
// None holds a secret.
func Variables() []string {
	return []string{
		"JENKINS_URL", "BUILD_URL", "JOB_NAME", "BUILD_NUMBER", "NODE_NAME", "STAGE_NAME", "GIT_BRANCH", "BRANCH_NAME", "GIT_COMMIT",
	}
}

// OfProcess tells by the variables of a process which build it belongs to. ok is
// false for one without a job and a number beside Jenkins' address.
func OfProcess(env map[string]string) (id cimeter.Identity, ok bool) {
	job, number := strings.Trim(env["JOB_NAME"], "/"), env["BUILD_NUMBER"]
	server := ci.ServerOf(env["BUILD_URL"])
	if server == "" {
		server = ci.ServerOf(env["JENKINS_URL"])
	}
	if job == "" || !ci.IsDecimal(number) || server == "" {
		return id, false
	}
	id.Build = cimeter.Build{
		Key: Key(server, job, number), CI: CI, Server: server, Project: job, Number: number, Name: job, URL: ci.PageOf(env["BUILD_URL"]),
		SHA: env["GIT_COMMIT"], Ref: env["BRANCH_NAME"], Runner: cimeter.Runner{Name: env["NODE_NAME"]},
	}
	if id.Build.Ref == "" {
		id.Build.Ref = strings.TrimPrefix(env["GIT_BRANCH"], "origin/")
	}
	id.Role, id.Stage = cimeter.RoleBuild, env["STAGE_NAME"]
	if told, n, ok := ParseURL(env["BUILD_URL"]); ok {
		id.Doubt = ci.FirstDoubt(
			ci.Disagree("job", "variable JOB_NAME", job, "variable BUILD_URL", told),
			ci.Disagree("build number", "variable BUILD_NUMBER", number, "variable BUILD_URL", n),
		)
	}
	return id, true
}

// ParseURL reads the address of a build, or its path: below what the server's own
// address is, folders and job, each after "job", and the number.
//
//	https://ci.example.com/jenkins/job/team/job/app/17/
func ParseURL(address string) (job, number string, ok bool) {
	u, err := url.Parse(address)
	if err != nil || len(address) > maxURL {
		return "", "", false
	}
	parts := strings.Split(strings.Trim(u.EscapedPath(), "/"), "/")
	n := len(parts) - 1
	number = parts[n]
	begin := n
	for begin >= 2 && parts[begin-2] == "job" {
		begin -= 2
	}
	var names []string
	for i := begin + 1; i < n; i += 2 {
		name, err := url.PathUnescape(parts[i])
		if err != nil || name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
			return "", "", false
		}
		names = append(names, name)
	}
	job = strings.Join(names, "/")
	return job, number, job != "" && ci.IsDecimal(number)
}

// maxURL bounds an address in bytes.
const maxURL = 2048
