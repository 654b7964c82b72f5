package e2e_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/cimeter/cimeter/internal/testdocker"
)

// step is a step of a Drone stage or a Woodpecker workflow.
type step struct {
	Name    string
	Steps   []string // of burn
	Script  string   // lines of shell after them
	Service bool     // runs alongside until the end
}

// droneStage is a stage as Drone's docker runner runs it: a network, and a
// container for each step.
type droneStage struct {
	Number int // of the build
	Slug   string
	Random string // 17 characters, which the runner draws
	Steps  []step
	Binds  []string          // more of all steps
	Logs   map[string]string // of the steps, set by play
}

const droneServer = "drone.example.com"

// Key is the stage's key in records.
func (s *droneStage) Key() string {
	return fmt.Sprintf("drone/%s/%s/%d/1", droneServer, s.Slug, s.Number)
}

func (s *droneStage) truthName(step string) string { return fmt.Sprintf("drone-%d-%s", s.Number, step) }

// labels are those of the recorded run, with the repository filled in.
func (s *droneStage) labels() map[string]string {
	namespace, name, _ := strings.Cut(s.Slug, "/")
	const p = "io.drone"
	return map[string]string{
		p: "true", p + ".build.number": fmt.Sprint(s.Number), p + ".created": "1796022595", p + ".expires": "1796029795",
		p + ".protected": "false", p + ".repo.name": name, p + ".repo.namespace": namespace, p + ".repo.slug": s.Slug,
		p + ".stage.name": "default", p + ".stage.number": "1", p + ".system.host": droneServer, p + ".system.proto": "https",
		p + ".system.version": "2.24.0", p + ".ttl": "1h0m0s",
	}
}

func (s *droneStage) play(ctx context.Context, m *machine) error {
	s.Logs = map[string]string{}
	network := "drone-" + s.Random + "net"
	if err := m.AddNetwork(ctx, network, s.labels()); err != nil {
		return err
	}
	var all []string
	defer func() {
		ctx := context.WithoutCancel(ctx)
		for _, id := range all {
			_ = m.Remove(ctx, id) // the daemon may be dead in a test of that
		}
		_ = m.RemoveNetwork(ctx, network)
	}()
	for i, step := range s.Steps {
		labels := s.labels()
		labels["io.drone.step.name"], labels["io.drone.step.number"] = step.Name, fmt.Sprint(i+1)
		id, err := m.Create(ctx, testdocker.Spec{
			Name: fmt.Sprintf("drone-%s%03d", s.Random, i), Labels: labels, Binds: append(m.binds(), s.Binds...), Networks: []string{network},
			Entrypoint: []string{"/bin/sh", "-c"}, Cmd: []string{`echo "$DRONE_SCRIPT" | /bin/sh`},
			Env: append(m.env(s.truthName(step.Name)),
				"CI=true", "DRONE=true", "DRONE_BUILD_EVENT=push", "DRONE_STAGE_NAME=default", "DRONE_STAGE_NUMBER=1",
				"DRONE_STEP_NAME="+step.Name, fmt.Sprintf("DRONE_STEP_NUMBER=%d", i+1), fmt.Sprintf("DRONE_BUILD_NUMBER=%d", s.Number),
				"DRONE_REPO="+s.Slug, "DRONE_NETRC_PASSWORD="+plantedSecret,
				"DRONE_SCRIPT=unset DRONE_SCRIPT\nset -e\n"+step.script()),
		})
		if err != nil {
			return err
		}
		all = append(all, id)
		if s.Logs[step.Name], err = playStep(ctx, m, id, step); err != nil {
			return err
		}
	}
	return nil
}

// script is what the step's shell runs.
func (s step) script() string {
	line := s.Script
	if len(s.Steps) > 0 {
		line = "burn " + strings.Join(s.Steps, " ") + "\n" + line
	}
	if s.Service {
		line += "exec sleep 3600\n"
	}
	return line
}

// playStep starts a step's container and, unless it is a service, waits for it
// and returns its log.
func playStep(ctx context.Context, m *machine, id string, s step) (log string, err error) {
	if s.Service {
		return "", m.Begin(ctx, id)
	}
	exit, err := m.Play(ctx, id, "")
	if err != nil {
		return "", fmt.Errorf("step %s: %w", s.Name, err)
	}
	if exit.Code != 0 {
		return "", fmt.Errorf("step %s: exit %d: %s", s.Name, exit.Code, exit.Output)
	}
	return exit.Output, nil
}

// woodpeckerWorkflow is a workflow as Woodpecker's docker backend runs it:
// only two labels, the rest in variables, grouped by a network.
type woodpeckerWorkflow struct {
	Number int // of the pipeline
	Repo   string
	Name   string
	ULID   string // 24 characters; steps add two
	Steps  []step
	Binds  []string          // more of all steps
	Logs   map[string]string // of the steps, set by play
}

const woodpeckerServer = "woodpecker.example.com"

func (w *woodpeckerWorkflow) truthName(step string) string {
	return fmt.Sprintf("woodpecker-%d-%s", w.Number, step)
}

func (w *woodpeckerWorkflow) play(ctx context.Context, m *machine) error {
	w.Logs = map[string]string{}
	network := "wp_" + strings.ToLower(w.ULID) + "00_0_default"
	if err := m.AddNetwork(ctx, network, nil); err != nil {
		return err
	}
	var all []string
	defer func() {
		ctx := context.WithoutCancel(ctx)
		for _, id := range all {
			_ = m.Remove(ctx, id) // the daemon may be dead in a test of that
		}
		_ = m.RemoveNetwork(ctx, network)
	}()
	url := fmt.Sprintf("https://%s/repos/7/pipeline/%d", woodpeckerServer, w.Number)
	for i, step := range w.Steps {
		uuid := fmt.Sprintf("%s%02d", w.ULID, i+1)
		typ := "commands"
		if step.Service {
			typ = "service"
		}
		id, err := m.Create(ctx, testdocker.Spec{
			Name: "wp_" + uuid, Labels: map[string]string{"wp_step": step.Name, "wp_uuid": uuid}, Binds: append(m.binds(), w.Binds...),
			Entrypoint: []string{"/bin/sh", "-c", "echo $CI_SCRIPT | base64 -d | /bin/sh -e"},
			Env: append(m.env(w.truthName(step.Name)),
				"CI=woodpecker", "CI_SYSTEM_NAME=woodpecker", "CI_SYSTEM_HOST="+woodpeckerServer, "CI_SYSTEM_URL=https://"+woodpeckerServer,
				"CI_REPO="+w.Repo, fmt.Sprintf("CI_PIPELINE_NUMBER=%d", w.Number), "CI_PIPELINE_EVENT=push", "CI_PIPELINE_URL="+url,
				"CI_WORKFLOW_NAME="+w.Name, "CI_WORKFLOW_NUMBER=1", "CI_STEP_NAME="+step.Name, "CI_STEP_TYPE="+typ, "CI_STEP_NUMBER=0",
				"CI_COMMIT_BRANCH=main", "CI_COMMIT_SHA=7e4dc6e03bebb9c9afa0512d36c3a10085ddb970", "CI_NETRC_PASSWORD="+plantedSecret,
				"CI_SCRIPT="+base64.StdEncoding.EncodeToString([]byte(step.script()))),
		})
		if err != nil {
			return err
		}
		all = append(all, id)
		if err := m.Connect(ctx, network, id); err != nil {
			return err
		}
		if w.Logs[step.Name], err = playStep(ctx, m, id, step); err != nil {
			return err
		}
	}
	return nil
}

// plantedSecret stands in variables, labels and command lines of builds. It
// must be in nothing that the agent writes or says.
const plantedSecret = "hunter2-PlantedSecret-never-store"
