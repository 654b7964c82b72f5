package wrap

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cimeter/cimeter"
)

// The variables of CI systems that are read, best first; no other variable
// ever is. Only paths of projects, refs and commit ids are among them.
var (
	projectVariables = [...]string{
		"CI_PROJECT_PATH",          // GitLab
		"DRONE_REPO",               // Drone
		"CI_REPO",                  // Woodpecker
		"GITHUB_REPOSITORY",        // GitHub, Gitea, Forgejo
		"BITBUCKET_REPO_FULL_NAME", // Bitbucket
		"BUILDKITE_PIPELINE_SLUG",  // Buildkite
		"TRAVIS_REPO_SLUG",         // Travis CI
		"JOB_NAME",                 // Jenkins
	}
	refVariables = [...]string{"CI_COMMIT_REF_NAME", "DRONE_BRANCH", "CI_COMMIT_BRANCH", "GITHUB_REF_NAME", "BITBUCKET_BRANCH", "BUILDKITE_BRANCH", "GIT_BRANCH"}
	shaVariables = [...]string{"CI_COMMIT_SHA", "DRONE_COMMIT_SHA", "GITHUB_SHA", "BITBUCKET_COMMIT", "BUILDKITE_COMMIT", "GIT_COMMIT"}
)

// maxName bounds each name of a build: longer ones are of no use in a table.
const maxName = 200

// identify returns the identity of a run.
func identify(o *Options, start time.Time) cimeter.Build {
	b := cimeter.Build{
		CI: "run", Attempt: 1, Machine: clean(o.Machine),
		Project: clean(o.Project), Name: clean(o.Name),
		Ref: first(o.Getenv, refVariables[:]), SHA: first(o.Getenv, shaVariables[:]),
	}
	if b.Project == "" {
		b.Project = first(o.Getenv, projectVariables[:])
	}
	if b.Project == "" {
		b.Project = clean(base(o.Dir))
	}
	if b.Name == "" && len(o.Command) > 0 {
		b.Name = clean(base(o.Command[0]))
	}
	b.Key = cimeter.BuildKey("run", b.Machine, strconv.FormatInt(start.UnixNano(), 10)+"-"+strconv.Itoa(o.Pid))
	return b
}

// base is the last element of path, "" when there is none.
func base(path string) string {
	if b := filepath.Base(path); b != "." && b != "/" {
		return b
	}
	return ""
}

func first(getenv func(string) string, names []string) string {
	for _, n := range names {
		if v := clean(getenv(n)); v != "" {
			return v
		}
	}
	return ""
}

// clean makes s fit to be a name: printable, valid UTF-8, bounded.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	for len(s) > maxName {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return strings.TrimSpace(s)
}
