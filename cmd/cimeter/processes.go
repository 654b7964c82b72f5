package main

import (
	"bytes"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/agent"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/buildkite"
	"github.com/cimeter/cimeter/internal/ci/drone"
	"github.com/cimeter/cimeter/internal/ci/github"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
	"github.com/cimeter/cimeter/internal/ci/jenkins"
	"github.com/cimeter/cimeter/internal/ci/woodpecker"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/process"
)

// newProcesses returns how builds are found that run in no container; nil: they
// are not looked for.
func newProcesses(conf config.Agent) *agent.Processes {
	if conf.Processes == "off" {
		return nil
	}
	return &agent.Processes{
		Events: conf.Processes != "scan", Must: conf.Processes == "events",
		Runner: runnerKind,
		Variables: ci.Variables(gitlab.ShellVariables(), github.ShellVariables(), buildkite.Variables(), jenkins.Variables(),
			drone.ShellVariables(), woodpecker.Variables()),
		// Those with marks of their own first: a Jenkins agent may run another
		// system's tools, and Woodpecker sets variables of GitLab's and Drone's names.
		Identify: ci.FirstProcess(buildkite.OfProcess, newLegs(github.OfProcess).Identify, woodpecker.OfProcess, gitlab.OfProcess,
			drone.OfProcess, jenkins.OfProcess),
		Stage:      processStage,
		Container:  gitlab.ShellContainer,
		OneJob:     func(kind string) bool { return kind == github.CI },
		OneAtATime: func(kind string) bool { return kind == gitlab.CI || kind == buildkite.CI },
		Leaves:     func(kind string) bool { return kind == jenkins.CI }, // every sh step
		Pauses:     func(kind string) bool { return kind == jenkins.CI }, // a pipeline waits, or works elsewhere
	}
}

// runnerKind tells by a program's name, cut at 15 bytes, whether it starts builds
// as its children. A Jenkins agent is a Java program: whether it starts builds
// their variables tell. Of GitHub's runner the worker runs the job.
func runnerKind(comm []byte) process.RunnerKind {
	switch string(comm) {
	case "Runner.Worker", "buildkite-agent", "drone-runner-ex", "woodpecker-agen", "java":
		return process.Runs
	case "Runner.Listener":
		return process.Waits
	}
	if bytes.HasPrefix(comm, []byte("gitlab-runner")) { // also gitlab-runner-linux-amd64
		return process.Runs
	}
	return process.NoRunner
}

// processStage tells the stage by the command line of a process of a build: see
// agent.Processes.
func processStage(kind string, first bool, cmdline []byte) (stage string, fixed, ok, open bool) {
	switch kind {
	case gitlab.CI:
		if first {
			stage, ok = gitlab.DriverStage(cmdline)
			return stage, true, ok, true
		}
		stage, ok = gitlab.StageOfCommand(cmdline)
		return stage, false, ok, true
	case drone.CI:
		stage, ok = drone.ShellStep(cmdline)
		return stage, true, ok, true
	}
	return "", false, false, false
}

// gitlabBuild tells the stages of a GitLab job: of its containers, or of its
// shells.
type gitlabBuild struct {
	gitlabStager
	shells gitlab.ShellStages
	number map[int]int // the ledger's of a shell to that of shells
}

func (g *gitlabBuild) Missed() {
	g.gitlabStager.Missed()
	g.shells.Missed()
}

func (g *gitlabBuild) Started(seg int, role cimeter.Role, container string) {
	if container != gitlab.ShellContainer {
		g.gitlabStager.Started(seg, role, container)
		return
	}
	if g.number == nil {
		g.number = make(map[int]int)
	}
	g.number[seg] = g.shells.Started()
}

func (g *gitlabBuild) Command(seg int, stage string) {
	if n, ok := g.number[seg]; ok {
		g.shells.Command(n, stage)
		return
	}
	g.gitlabStager.Command(seg, stage)
}

func (g *gitlabBuild) JobList(seg int, stage string) {
	if n, ok := g.number[seg]; ok {
		g.shells.JobList(n, stage)
		return
	}
	g.gitlabStager.JobList(seg, stage)
}

func (g *gitlabBuild) Ended(seg int, exit cimeter.Opt[int]) {
	if n, ok := g.number[seg]; ok {
		g.shells.Ended(n, exit)
		return
	}
	g.gitlabStager.Ended(seg, exit)
}

func (g *gitlabBuild) Finish() {
	g.gitlabStager.Finish()
	g.shells.Finish()
}

func (g *gitlabBuild) Stage(seg int) attrib.StageName {
	if n, ok := g.number[seg]; ok {
		s := g.shells.Stage(n)
		return attrib.StageName{Name: s.Name, Attempt: s.Attempt, Source: s.Source, Final: s.Final}
	}
	return g.gitlabStager.Stage(seg)
}
