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

// SameAttempt reports whether two accounts may be of one attempt of a build: one that
// does not know which it was may be of any.
func (b *Build) SameAttempt(o *Build) bool {
	return b.Attempt == 0 || o.Attempt == 0 || b.Attempt == o.Attempt
}
