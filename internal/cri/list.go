package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cimeter/cimeter"
)

// List returns all pods' sandboxes and containers, running or not, without their
// environments.
func (c *Client) List(ctx context.Context) ([]cimeter.Container, error) {
	all, err := c.list(ctx, "")
	if err != nil {
		return nil, err
	}
	out := make([]cimeter.Container, 0, len(all))
	for _, one := range all {
		out = append(out, one.Container)
		// What ended since the runtime was last heard, Follow tells; what runs is
		// told by the list.
		if one.state == running || !c.listed {
			c.seen[one.ID] = seen{one.state, one.Container.Pod}
		}
	}
	c.listed = true
	return out, nil
}

// listed is a container or a sandbox with its state.
type listed struct {
	cimeter.Container
	state state
}

// list returns all sandboxes and containers, or with an id the one that has it.
func (c *Client) list(ctx context.Context, id string) ([]listed, error) {
	var filter []byte
	if id != "" {
		filter = message1(message1([]byte(id)))
	}
	var containers []*container
	err := c.each(ctx, "ListContainers", filter, func(b []byte) error {
		k, err := parseContainer(b, false)
		containers = append(containers, k)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(containers) == 1 && id != "" {
		filter = message1(message1([]byte(containers[0].sandbox)))
	}
	var out []listed
	pods := make(map[string]*pod)
	err = c.each(ctx, "ListPodSandbox", filter, func(b []byte) error {
		p, err := parsePod(b, false)
		pods[p.id] = p
		if id == "" || p.id == id {
			out = append(out, listed{p.container(), p.state})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, k := range containers {
		out = append(out, listed{k.container(k.sandbox, pods[k.sandbox]), k.state})
	}
	return out, nil
}

// message1 returns a message whose field 1 is b.
func message1(b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), b)
}

// each calls fn for each message in field 1 of a call's answer.
func (c *Client) each(ctx context.Context, method string, request []byte, fn func([]byte) error) error {
	b, err := c.call(ctx, method, request)
	if err != nil {
		return err
	}
	err = fields(b, func(f field) error {
		if f.number == 1 {
			return fn(f.bytes)
		}
		return nil
	})
	if err != nil {
		return c.wrap(method, err)
	}
	return nil
}

// container is the sandbox as the container that it is.
func (p *pod) container() cimeter.Container {
	k := cimeter.Container{
		ID: p.id, Name: p.Name, Pod: &p.Pod, Sandbox: true, CreatedAt: p.createdAt, StartedAt: p.createdAt, Running: p.state == running,
	}
	if p.host {
		k.NetworkMode = "host"
	}
	return k
}

// container is k in pod p, which may be nil: the list of pods came a moment later.
func (k *container) container(sandbox string, p *pod) cimeter.Container {
	c := cimeter.Container{
		ID: k.id, Name: k.name, Image: k.image, Labels: k.labels, CreatedAt: k.createdAt, StartedAt: k.startedAt, Running: k.state == running,
		Requested: k.requested,
	}
	if sandbox != "" {
		c.NetworkMode = "container:" + sandbox
	}
	if p == nil {
		return c
	}
	c.Pod = &p.Pod
	if p.host {
		c.NetworkMode = "host"
	}
	if c.Labels[cimeter.LabelPodContainer] == "" { // not the kubelet's: what it would say
		c.Labels = maps.Clone(c.Labels)
		if c.Labels == nil {
			c.Labels = make(map[string]string, 1)
		}
		c.Labels[cimeter.LabelPodContainer] = k.name
	}
	return c
}

// Inspect returns one container or sandbox; of a container its allow-listed
// variables and what it asked for, too. cimeter.ErrNotFound: there is none of this id.
func (c *Client) Inspect(ctx context.Context, id string) (cimeter.Container, error) {
	l, err := c.list(ctx, id)
	if err != nil {
		return cimeter.Container{}, err
	}
	if len(l) == 0 {
		return cimeter.Container{}, c.wrap("inspect "+short(id), cimeter.ErrNotFound)
	}
	k := l[0].Container
	sandbox := k.ID
	if !k.Sandbox {
		sandbox = strings.TrimPrefix(k.NetworkMode, "container:")
		if err := c.addStatus(ctx, &k); err != nil {
			return cimeter.Container{}, err
		}
	}
	p, _, err := c.status(ctx, "PodSandboxStatus", sandbox, false)
	if err == nil {
		var s *pod
		if s, err = parsePod(p, true); err == nil && s.host {
			k.NetworkMode = "host"
		}
	}
	if err != nil && !errors.Is(err, cimeter.ErrNotFound) { // its pod may just have gone
		return cimeter.Container{}, c.wrap("inspect "+short(id), err)
	}
	return k, nil
}

// addStatus puts into k what only the status of the container tells.
func (c *Client) addStatus(ctx context.Context, k *cimeter.Container) error {
	b, info, err := c.status(ctx, "ContainerStatus", k.ID, true)
	if err != nil {
		return err
	}
	s, err := parseContainer(b, true)
	if err != nil {
		return c.wrap("inspect "+short(k.ID), err)
	}
	k.StartedAt, k.Running, k.Requested = s.startedAt, s.state == running, s.requested
	k.Env = make(map[string]string)
	if info == nil {
		return nil
	}
	// A runtime is free in what it says here (cri-api, ContainerStatusResponse.info);
	// containerd and CRI-O say this of the same form.
	var said struct {
		Pid         int `json:"pid"`
		RuntimeSpec struct {
			Process struct {
				Env      []string `json:"env"`
				OOMScore int64    `json:"oomScoreAdj"`
			} `json:"process"`
			Linux struct {
				CgroupsPath string `json:"cgroupsPath"`
				Resources   struct {
					CPU struct {
						Shares int64 `json:"shares"`
					} `json:"cpu"`
					Memory struct {
						Limit int64 `json:"limit"`
					} `json:"memory"`
				} `json:"resources"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
	}
	if err := json.Unmarshal(info, &said); err != nil {
		return fmt.Errorf("cri at %s: inspect %s: info is not of the form that is known: %w", c.socket, short(k.ID), cimeter.ErrInvalid)
	}
	k.Pid = said.Pid
	linux := &said.RuntimeSpec.Linux
	if parent, _, ok := strings.Cut(linux.CgroupsPath, ":"); ok { // SLICE:PREFIX:ID
		k.CgroupParent = parent
	} else if i := strings.LastIndexByte(linux.CgroupsPath, '/'); i > 0 {
		k.CgroupParent = linux.CgroupsPath[:i]
	}
	if k.Requested == (cimeter.Requests{}) { // a runtime of before 2022 tells no resources but here
		k.Requested = requests(linux.Resources.CPU.Shares, linux.Resources.Memory.Limit, said.RuntimeSpec.Process.OOMScore)
	}
	for _, kv := range said.RuntimeSpec.Process.Env {
		if name, value, ok := strings.Cut(kv, "="); ok && c.variables[name] {
			k.Env[name] = strings.Clone(value)
		}
	}
	return nil
}

// status returns the status of a container or a sandbox, and the value "info" of
// what the runtime tells besides when it is asked to be verbose.
func (c *Client) status(ctx context.Context, method, id string, verbose bool) (status, info []byte, err error) {
	request := message1([]byte(id))
	if verbose {
		request = protowire.AppendVarint(protowire.AppendTag(request, 2, protowire.VarintType), 1)
	}
	b, err := c.call(ctx, method, request)
	if err != nil {
		return nil, nil, err
	}
	err = fields(b, func(f field) error {
		switch f.number {
		case 1:
			status = f.bytes
		case 2:
			var key string
			var value []byte
			if err := fields(f.bytes, func(f field) error {
				switch f.number {
				case 1:
					key = f.text()
				case 2:
					value = f.bytes
				}
				return nil
			}); err != nil {
				return err
			}
			if key == "info" {
				info = value
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, c.wrap(method, err)
	}
	return status, info, nil
}

func short(id string) string { return id[:min(len(id), 12)] }
