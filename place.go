package cimeter

import "strings"

// Place is where and for what a build ran, as far as an agent and its CI server both
// tell it where they have no number of it in common: the run and the runner of a job of
// GitHub, whose steps are not told its id, and whose API does not tell the job's key in
// its workflow. A runner has one job at a time, so a place and a time tell a job from
// all others. Attempts are not in it: not all agents know them.
//
// It is "" for builds of CI systems that number them for both sides, and where a part
// of it is not known.
func (b *Build) Place() string {
	if b.CI != "github" {
		return ""
	}
	parts := []string{b.Server, b.Project, b.Pipeline, b.Runner.Name}
	for _, p := range parts {
		if p == "" {
			return ""
		}
	}
	return strings.Join(parts, "\n")
}

// toldJob stands before the number of a job in a key by which a CI server tells of it.
const toldJob = "job"

// ToldKey is the key of a job as its CI server tells of it, where that and its agents have
// no number in common: see [Build.Place].
func ToldKey(ci, server, project, pipeline, number string) string {
	return BuildKey(ci, server, project, pipeline, toldJob, number)
}

// ToldAs returns the pipeline and the number in a ToldKey; ok is false for a key of no
// such form.
func ToldAs(key string) (pipeline, number string, ok bool) {
	parts := strings.Split(key, "/")
	n := len(parts)
	if n < 5 || parts[n-2] != toldJob {
		return "", "", false
	}
	return parts[n-3], parts[n-1], true
}

// SameAttempt reports whether two accounts may be of one attempt of a build: one that
// does not know which it was may be of any.
func (b *Build) SameAttempt(o *Build) bool {
	return b.Attempt == 0 || o.Attempt == 0 || b.Attempt == o.Attempt
}
