package cimeter

import (
	"net/url"
	"strings"
)

// Build is the identity of one job run by one runner: a GitLab job, a Drone
// stage, a Woodpecker workflow, a GitHub job. Empty fields are not known.
type Build struct {
	Key           string `json:"key"`                      // unique and stable: BuildKey
	CI            string `json:"ci"`                       // kind of CI system: gitlab, drone, woodpecker, gitea, forgejo, act, github, run, or a rule's
	Server        string `json:"server,omitempty"`         // host (and port) of the CI server
	Project       string `json:"project,omitempty"`        // path such as group/app
	Number        string `json:"number,omitempty"`         // as the CI system shows it: GitLab's job id, Drone's build number
	Name          string `json:"name,omitempty"`           // name of the job, stage or workflow
	Attempt       int    `json:"attempt,omitempty"`        // 1 for the first run
	Pipeline      string `json:"pipeline,omitempty"`       // id of the pipeline it belongs to
	PipelineStage string `json:"pipeline_stage,omitempty"` // GitLab's CI_JOB_STAGE
	Ref           string `json:"ref,omitempty"`            // branch or tag
	DefaultBranch string `json:"default_branch,omitempty"` // of the project, where its CI system tells jobs
	SHA           string `json:"sha,omitempty"`            // commit
	Event         string `json:"event,omitempty"`          // what set it off: push, merge_request_event ...
	URL           string `json:"url,omitempty"`            // its page on the CI server
	Machine       string `json:"machine,omitempty"`        // where it ran
	Runner        Runner `json:"runner,omitzero"`
}

// Runner is the CI runner that ran a build.
type Runner struct {
	ID         string `json:"id,omitempty"`          // system id where known (GitLab: s_..., r_...)
	ShortToken string `json:"short_token,omitempty"` // as the runner itself shortens it
	Name       string `json:"name,omitempty"`
}

// Key returns what tells this runner from others: its system id where known,
// else its short token, else its name, else "".
func (r Runner) Key() string {
	switch {
	case r.ID != "":
		return r.ID
	case r.ShortToken != "":
		return r.ShortToken
	}
	return r.Name
}

// BuildKey joins a CI kind and the parts that make a build unique within it
// (server first) into a key such as gitlab/gitlab.example.com/4242. A part may
// hold slashes (a project path); every other byte that has a meaning in a URL
// path is percent-encoded, so that the key can stand in one.
func BuildKey(ci string, parts ...string) string {
	var b strings.Builder
	b.WriteString(url.PathEscape(ci))
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(strings.ReplaceAll(url.PathEscape(p), "%2F", "/"))
	}
	return b.String()
}

// Merge returns b with each field that it does not know taken from o. Two
// containers of one build often know different parts of its identity.
func (b Build) Merge(o Build) Build {
	for _, f := range []struct {
		dst *string
		src string
	}{
		{&b.Key, o.Key}, {&b.CI, o.CI}, {&b.Server, o.Server}, {&b.Project, o.Project}, {&b.Number, o.Number},
		{&b.Name, o.Name}, {&b.Pipeline, o.Pipeline}, {&b.PipelineStage, o.PipelineStage}, {&b.Ref, o.Ref},
		{&b.DefaultBranch, o.DefaultBranch}, {&b.SHA, o.SHA}, {&b.Event, o.Event}, {&b.URL, o.URL}, {&b.Machine, o.Machine},
		{&b.Runner.ID, o.Runner.ID}, {&b.Runner.ShortToken, o.Runner.ShortToken}, {&b.Runner.Name, o.Runner.Name},
	} {
		if *f.dst == "" {
			*f.dst = f.src
		}
	}
	if b.Attempt == 0 {
		b.Attempt = o.Attempt
	}
	return b
}
