package testdocker

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
)

// Spec says what a container is to be like.
type Spec struct {
	Name         string
	Image        string // "" is Image
	Entrypoint   []string
	Cmd          []string
	Env          []string
	Labels       map[string]string
	Hostname     string
	Binds        []string
	Network      string   // mode: "", host, none, container:<id>, a network's name
	Networks     []string // networks to be made part of instead of the default bridge
	Links        []string
	CgroupParent string
	Memory       int64 // bytes, swap included
	NanoCPUs     int64
	Stdin        bool // open for one attachment, as runners do for their scripts
}

// Create makes a container and returns its id.
func (d *Daemon) Create(ctx context.Context, s Spec) (string, error) {
	image := s.Image
	if image == "" {
		image = Image
	}
	endpoints := map[string]*network.EndpointSettings{}
	for _, name := range s.Networks {
		endpoints[name] = &network.EndpointSettings{}
	}
	r, err := d.client.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: s.Name,
		Config: &container.Config{
			Image: image, Entrypoint: s.Entrypoint, Cmd: s.Cmd, Env: s.Env, Labels: s.Labels, Hostname: s.Hostname,
			OpenStdin: s.Stdin, StdinOnce: s.Stdin, AttachStdin: s.Stdin, AttachStdout: s.Stdin, AttachStderr: s.Stdin,
		},
		HostConfig: &container.HostConfig{
			Binds: s.Binds, NetworkMode: container.NetworkMode(s.Network), Links: s.Links,
			Resources: container.Resources{CgroupParent: s.CgroupParent, Memory: s.Memory, MemorySwap: s.Memory, NanoCPUs: s.NanoCPUs},
		},
		NetworkingConfig: &network.NetworkingConfig{EndpointsConfig: endpoints},
	})
	if err != nil {
		return "", fmt.Errorf("creating container %q: %w", s.Name, err)
	}
	return r.ID, nil
}

// Begin starts a container.
func (d *Daemon) Begin(ctx context.Context, id string) error {
	if _, err := d.client.ContainerStart(ctx, id, client.ContainerStartOptions{}); err != nil {
		return fmt.Errorf("starting container %.12s: %w", id, err)
	}
	return nil
}

// Exit is how a container ended.
type Exit struct {
	Code   int
	Output string // standard output and error as they came; only of runs with an attachment
}

// Wait waits for a container that runs to end.
func (d *Daemon) Wait(ctx context.Context, id string) (Exit, error) {
	return d.await(id, d.client.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning}))
}

func (d *Daemon) await(id string, w client.ContainerWaitResult) (Exit, error) {
	select {
	case r := <-w.Result:
		if r.Error != nil {
			return Exit{}, fmt.Errorf("waiting for container %.12s: %s", id, r.Error.Message)
		}
		return Exit{Code: int(r.StatusCode)}, nil
	case err := <-w.Error:
		return Exit{}, fmt.Errorf("waiting for container %.12s: %w", id, err)
	}
}

// Play attaches to a created or ended container, starts it, writes script to
// its standard input when that is open, and waits for its end: what GitLab
// Runner does for each stage.
func (d *Daemon) Play(ctx context.Context, id, script string) (Exit, error) {
	a, err := d.client.ContainerAttach(ctx, id, client.ContainerAttachOptions{Stream: true, Stdin: script != "", Stdout: true, Stderr: true})
	if err != nil {
		return Exit{}, fmt.Errorf("attaching to container %.12s: %w", id, err)
	}
	defer a.Close()
	wait := d.client.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
	if err := d.Begin(ctx, id); err != nil {
		return Exit{}, err
	}
	output := make(chan string, 1)
	go func() {
		var out bytes.Buffer
		_, _ = stdcopy.StdCopy(&out, &out, a.Reader) // cut short when the daemon dies: what came is the output
		output <- out.String()
	}()
	if script != "" {
		if _, err := a.Conn.Write([]byte(script)); err != nil {
			return Exit{}, fmt.Errorf("writing the script of container %.12s: %w", id, err)
		}
		if err := a.CloseWrite(); err != nil {
			return Exit{}, fmt.Errorf("ending the script of container %.12s: %w", id, err)
		}
	}
	exit, err := d.await(id, wait)
	if err != nil {
		return exit, err
	}
	exit.Output = strings.TrimSpace(<-output)
	return exit, nil
}

// Run creates a container, plays it and removes it.
func (d *Daemon) Run(ctx context.Context, s Spec) (Exit, error) {
	id, err := d.Create(ctx, s)
	if err != nil {
		return Exit{}, err
	}
	exit, err := d.Play(ctx, id, "")
	if err != nil {
		return exit, err
	}
	return exit, d.Remove(ctx, id)
}

// Remove removes a container, killing it when it runs.
func (d *Daemon) Remove(ctx context.Context, id string) error {
	if _, err := d.client.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
		return fmt.Errorf("removing container %.12s: %w", id, err)
	}
	return nil
}

// AddNetwork makes a bridge network.
func (d *Daemon) AddNetwork(ctx context.Context, name string, labels map[string]string) error {
	if _, err := d.client.NetworkCreate(ctx, name, client.NetworkCreateOptions{Driver: "bridge", Labels: labels}); err != nil {
		return fmt.Errorf("creating network %s: %w", name, err)
	}
	return nil
}

// Connect connects a container to a further network.
func (d *Daemon) Connect(ctx context.Context, name, id string) error {
	_, err := d.client.NetworkConnect(ctx, name, client.NetworkConnectOptions{Container: id, EndpointConfig: &network.EndpointSettings{}})
	if err != nil {
		return fmt.Errorf("connecting container %.12s to network %s: %w", id, name, err)
	}
	return nil
}

// RemoveNetwork removes a network.
func (d *Daemon) RemoveNetwork(ctx context.Context, name string) error {
	if _, err := d.client.NetworkRemove(ctx, name, client.NetworkRemoveOptions{}); err != nil {
		return fmt.Errorf("removing network %s: %w", name, err)
	}
	return nil
}
