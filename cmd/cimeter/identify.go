package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/agent"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/act"
	"github.com/cimeter/cimeter/internal/ci/argo"
	"github.com/cimeter/cimeter/internal/ci/buildkite"
	"github.com/cimeter/cimeter/internal/ci/drone"
	"github.com/cimeter/cimeter/internal/ci/gitea"
	"github.com/cimeter/cimeter/internal/ci/github"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
	"github.com/cimeter/cimeter/internal/ci/jenkins"
	"github.com/cimeter/cimeter/internal/ci/prow"
	"github.com/cimeter/cimeter/internal/ci/rules"
	"github.com/cimeter/cimeter/internal/ci/tekton"
	"github.com/cimeter/cimeter/internal/ci/woodpecker"
	"github.com/cimeter/cimeter/internal/config"
)

// identifiers are how containers tell their builds.
type identifiers struct {
	identify   ci.Identifier
	variables  []string // that may be read out of a container
	inspectAll bool     // a rule asks for what only an inspection tells
}

// newIdentifiers composes the operator's rules and the CI systems that cimeter
// knows: those with marks of their own first. jobs knows those of GitHub's runners.
func newIdentifiers(conf config.Agent, jobs runnerJobs) (identifiers, error) {
	var list []rules.Rule
	inspectAll := false
	for _, r := range conf.Rules {
		rule := rules.Rule{Name: r.Name, Set: r.Set, Match: rules.Match{
			Labels: patterns(r.Match.Labels), Env: patterns(r.Match.Env),
			Name: pattern(r.Match.Name), Image: pattern(r.Match.Image), Network: pattern(r.Match.Network),
		}}
		inspectAll = inspectAll || len(rule.Match.Env) > 0 || rule.Match.Network != ""
		list = append(list, rule)
	}
	set, err := rules.Compile(list)
	for _, name := range conf.Variables {
		if rules.NamesSecret(name) {
			err = errors.Join(err, fmt.Errorf("agent.variables: %s: want variables whose names are not those of secrets", name))
		}
	}
	if err != nil {
		return identifiers{}, err
	}
	containers := ci.First(set.Identify, gitlab.Identify, drone.Identify, woodpecker.Identify,
		gitea.Identify, github.Identify, act.Identify)
	pods := newPods(ci.First(withPod(set.Identify), gitlab.Identify, drone.Identify, woodpecker.Identify,
		github.Pods(jobs.jobOf()), jenkins.Identify, buildkite.Identify, tekton.Identify, argo.Identify, prow.Identify))
	return identifiers{
		identify: func(c *cimeter.Container) (cimeter.Identity, bool) {
			if c.Pod != nil {
				return pods.Identify(c)
			}
			return containers(c)
		},
		variables: ci.Variables(conf.Variables, set.Variables(), gitlab.Variables(), drone.Variables(),
			woodpecker.Variables(), gitea.Variables(), github.Variables(), act.Variables(), buildkite.Variables(), prow.Variables()),
		inspectAll: inspectAll,
	}, nil
}

func patterns(m map[string]config.Pattern) map[string]string {
	out := make(map[string]string, len(m))
	for k, p := range m {
		out[k] = pattern(p)
	}
	return out
}

func pattern(p config.Pattern) string {
	if p.Regexp == nil {
		return ""
	}
	return p.String()
}

// newStager returns what tells the stages of builds whose containers do not.
func newStager(kind string) attrib.Stager {
	if kind == gitlab.CI {
		return &gitlabBuild{}
	}
	return nil
}

// commandStage tells a stage by the command line of a process. While it is not
// known whose a container is, it may be a GitLab Runner's.
func commandStage(id *cimeter.Identity, cmdline []byte) agent.CommandTold {
	if id.Inside {
		return stageInPod(id, cmdline)
	}
	if kind := id.Build.CI; kind != gitlab.CI && kind != "" {
		return agent.CommandTold{}
	}
	if stage, ok := gitlab.StageInside(cmdline); ok {
		return agent.CommandTold{Stage: stage, Inside: true}
	}
	stage, _ := gitlab.StageOfCommand(cmdline)
	return agent.CommandTold{Stage: stage}
}

// stageInPod is commandStage for a container that waits for its turn.
func stageInPod(id *cimeter.Identity, cmdline []byte) agent.CommandTold {
	if ci.IsRuntime(cmdline) {
		return agent.CommandTold{Own: true}
	}
	own := true
	switch id.Build.CI {
	case gitlab.CI:
		stage, own := gitlab.StageInPod(id, cmdline)
		return agent.CommandTold{Stage: stage, Inside: true, Own: own}
	case github.CI:
		own = github.OwnProgram(cmdline)
	case buildkite.CI:
		own = buildkite.OwnProgram(cmdline)
	case tekton.CI:
		own = tekton.OwnProgram(cmdline)
	}
	if own {
		return agent.CommandTold{Own: true}
	}
	return agent.CommandTold{Stage: id.Next, Inside: true}
}

// gitlabStager numbers segments as the ledger does for gitlab.Stages, which
// does so for itself.
type gitlabStager struct {
	stages gitlab.Stages
	number map[int]int // the ledger's to its own
}

func (g *gitlabStager) Missed() { g.stages.Missed() }

func (g *gitlabStager) Started(seg int, role cimeter.Role, container string) {
	if g.number == nil {
		g.number = make(map[int]int)
	}
	g.number[seg] = g.stages.Started(role, container)
}

func (g *gitlabStager) own(seg int) int {
	if n, ok := g.number[seg]; ok {
		return n
	}
	return -1
}

func (g *gitlabStager) Command(seg int, stage string) { g.stages.Command(g.own(seg), stage) }

func (g *gitlabStager) JobList(seg int, stage string) {
	n := g.own(seg)
	g.stages.JobList(stage, n, n)
}

func (g *gitlabStager) Ended(seg int, exit cimeter.Opt[int]) { g.stages.Ended(g.own(seg), exit) }

func (g *gitlabStager) Finish() { g.stages.Finish() }

func (g *gitlabStager) Stage(seg int) attrib.StageName {
	s := g.stages.Stage(g.own(seg))
	return attrib.StageName{Name: s.Name, Attempt: s.Attempt, Source: s.Source, Final: s.Final}
}

// jobList asks one GitLab Runner.
type jobList struct{ gitlab.JobList }

func newJobLists(urls []string) []agent.JobList {
	var l []agent.JobList
	for _, u := range urls {
		l = append(l, &jobList{gitlab.JobList{URL: u, Client: jobClient}})
	}
	return l
}

// Jobs implements agent.JobList.
func (l *jobList) Jobs(ctx context.Context) ([]agent.Job, error) {
	states, err := l.Fetch(ctx, nil)
	if err != nil {
		return nil, err
	}
	jobs := make([]agent.Job, 0, len(states))
	for _, s := range states {
		jobs = append(jobs, agent.Job{Key: cimeter.BuildKey(gitlab.CI, s.Server, s.Job), Stage: s.Stage, Pulls: s.ExecutorStage == gitlab.PullingImage})
	}
	return jobs, nil
}
