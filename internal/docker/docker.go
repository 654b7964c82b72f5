// Package docker tells what a Docker Engine says of its containers: the list,
// one inspection, the stream of events.
//
// It owns the official client and calls nothing but version, events, list and
// inspect, of containers and of images that were pulled: every one a read. It makes one attempt of each and returns errors;
// following a daemon that goes away is the caller's. Of a container's
// environment only the variables named in Options ever leave it.
//
// The entry point is [Open]. A Client is safe for concurrent use.
package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/cimeter/cimeter"
)

// Options say which daemon to ask and what to take from it.
type Options struct {
	// Name is what the engine is called in errors; "" is docker. Podman speaks
	// the same protocol.
	Name string
	// Host is the daemon's address, such as unix:///var/run/docker.sock; "" takes
	// the environment's (DOCKER_HOST and its TLS variables) or the default.
	Host string
	// Variables are the names of the environment variables that may be read out
	// of a container.
	Variables []string
}

// Client asks one Docker Engine.
type Client struct {
	api       *client.Client
	name      string
	host      string
	variables map[string]bool
}

// Open returns a client. It does not connect: the daemon may start later.
func Open(o Options) (*Client, error) {
	opts := []client.Opt{client.FromEnv}
	if o.Host != "" {
		opts = []client.Opt{client.WithHost(o.Host)}
	}
	api, err := client.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("%s host %q: %w: want unix:///path, tcp://host:port or ssh-free equivalents", cmp.Or(o.Name, "docker"), redact(o.Host), cimeter.ErrInvalid)
	}
	c := &Client{api: api, name: cmp.Or(o.Name, "docker"), host: api.DaemonHost(), variables: make(map[string]bool)}
	for _, v := range o.Variables {
		c.variables[v] = true
	}
	return c, nil
}

// Host returns the daemon's address, without user and password.
func (c *Client) Host() string { return redact(c.host) }

// Close closes idle connections.
func (c *Client) Close() error { return c.api.Close() }

// Version returns the daemon's version, such as 20.10.24.
func (c *Client) Version(ctx context.Context) (string, error) {
	v, err := c.api.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return "", c.wrap("version", err)
	}
	return v.Version, nil
}

// List returns all containers, running or not, without their environments.
func (c *Client) List(ctx context.Context) ([]cimeter.Container, error) {
	l, err := c.api.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		return nil, c.wrap("list containers", err)
	}
	out := make([]cimeter.Container, 0, len(l.Items))
	for i := range l.Items {
		out = append(out, fromSummary(&l.Items[i]))
	}
	return out, nil
}

func fromSummary(s *container.Summary) cimeter.Container {
	k := cimeter.Container{
		ID: s.ID, Image: s.Image, Labels: s.Labels, NetworkMode: s.HostConfig.NetworkMode,
		CreatedAt: time.Unix(s.Created, 0), Running: s.State == container.StateRunning || s.State == container.StatePaused,
	}
	if len(s.Names) > 0 {
		k.Name = strings.TrimPrefix(s.Names[0], "/")
	}
	if s.NetworkSettings != nil {
		k.Networks = names(s.NetworkSettings.Networks)
	}
	return k
}

// Inspect returns one container with its allow-listed variables.
// cimeter.ErrNotFound: there is none of this id.
func (c *Client) Inspect(ctx context.Context, id string) (cimeter.Container, error) {
	r, err := c.api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return cimeter.Container{}, c.wrap("inspect "+short(id), err)
	}
	return c.fromInspect(&r.Container), nil
}

func (c *Client) fromInspect(r *container.InspectResponse) cimeter.Container {
	k := cimeter.Container{ID: r.ID, Name: strings.TrimPrefix(r.Name, "/"), Env: map[string]string{}}
	k.CreatedAt, _ = time.Parse(time.RFC3339Nano, r.Created)
	if s := r.State; s != nil {
		k.Pid, k.Running = s.Pid, s.Running
		if t, err := time.Parse(time.RFC3339Nano, s.StartedAt); err == nil && t.Year() > 1 {
			k.StartedAt = t
		}
	}
	if f := r.Config; f != nil {
		k.Image, k.Labels = f.Image, f.Labels
		for _, kv := range f.Env {
			if name, value, ok := strings.Cut(kv, "="); ok && c.variables[name] {
				k.Env[name] = strings.Clone(value)
			}
		}
	}
	for _, mt := range r.Mounts {
		k.Mounts = append(k.Mounts, cimeter.Mount{Source: mt.Source, Volume: mt.Name})
	}
	if h := r.HostConfig; h != nil {
		k.NetworkMode, k.CgroupParent = string(h.NetworkMode), h.CgroupParent
	}
	if n := r.NetworkSettings; n != nil {
		k.Networks = names(n.Networks)
	}
	return k
}

func names(m map[string]*network.EndpointSettings) []string {
	var out []string
	for n := range m {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// Follow calls fn for each event of containers, and each pull of an image, from since on (the zero time: from now on)
// until ctx ends or the stream breaks, and returns why it ended: never nil.
// connected is called once the daemon has answered.
func (c *Client) Follow(ctx context.Context, since time.Time, connected func(), fn func(cimeter.ContainerEvent)) error {
	f := make(client.Filters).Add("type", string(events.ContainerEventType), string(events.ImageEventType)).
		Add("event", "create", "start", "die", "oom", "destroy", "died", "remove", "pull")
	o := client.EventsListOptions{Filters: f}
	if !since.IsZero() {
		o.Since = strconv.FormatInt(since.Unix(), 10) + "." + fmt.Sprintf("%09d", since.Nanosecond())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := c.api.Events(ctx, o)
	select {
	case err := <-r.Err:
		return c.wrap("events", err)
	default:
	}
	connected()
	for {
		select {
		case m := <-r.Messages:
			e, ok := event(&m)
			if !ok {
				continue
			}
			if e.Kind == cimeter.ImagePulled {
				e.Container.ID = c.imageID(ctx, e.Container.Image)
			}
			fn(e)
		case err := <-r.Err:
			return c.wrap("events", err)
		}
	}
}

var kinds = map[events.Action]cimeter.ContainerEventKind{
	events.ActionCreate: cimeter.ContainerCreated, events.ActionStart: cimeter.ContainerStarted, events.ActionDie: cimeter.ContainerDied,
	events.ActionOOM: cimeter.ContainerKilled, events.ActionDestroy: cimeter.ContainerDestroyed,
	events.ActionRemove: cimeter.ContainerDestroyed, // podman's word for it
}

// imageTime bounds how long an image's own id is waited for: events wait behind it.
const imageTime = time.Second

// imageID is the id of an image, by which some runners name it; "" when the daemon
// does not tell.
func (c *Client) imageID(ctx context.Context, name string) string {
	ctx, cancel := context.WithTimeout(ctx, imageTime)
	defer cancel()
	i, err := c.api.ImageInspect(ctx, name)
	if err != nil {
		return ""
	}
	return i.ID
}

func event(m *events.Message) (cimeter.ContainerEvent, bool) {
	if m.Type == events.ImageEventType {
		if m.Action != events.ActionPull || m.Actor.ID == "" {
			return cimeter.ContainerEvent{}, false
		}
		return cimeter.ContainerEvent{Kind: cimeter.ImagePulled, At: time.Unix(0, m.TimeNano), Container: cimeter.Container{Image: m.Actor.ID}}, true
	}
	kind, ok := kinds[m.Action]
	if !ok || m.Actor.ID == "" {
		return cimeter.ContainerEvent{}, false
	}
	e := cimeter.ContainerEvent{Kind: kind, At: time.Unix(0, m.TimeNano), Container: cimeter.Container{
		ID: m.Actor.ID, Name: m.Actor.Attributes["name"], Image: m.Actor.Attributes["image"], Labels: m.Actor.Attributes,
	}}
	if code, err := strconv.Atoi(m.Actor.Attributes["exitCode"]); err == nil && kind == cimeter.ContainerDied {
		e.Exit = cimeter.Some(code)
	}
	for _, a := range []string{"name", "image", "exitCode", "execDuration", "signal", "containerExitCode", "podId"} {
		delete(e.Container.Labels, a) // the daemon's own attributes, not labels
	}
	return e, true
}

// wrap names the daemon and what was asked, and tells a caller what it may act on.
func (c *Client) wrap(what string, err error) error {
	code := cimeter.ErrUnavailable
	switch {
	case errors.Is(err, context.Canceled):
		code = context.Canceled
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s at %s: %s: the daemon closed the stream: %w", c.name, c.Host(), what, cimeter.ErrUnavailable)
	case errdefs.IsNotFound(err):
		code = cimeter.ErrNotFound
	case errdefs.IsPermissionDenied(err) || errdefs.IsUnauthorized(err):
		code = cimeter.ErrUnauthorized
	}
	return fmt.Errorf("%s at %s: %s: %s: %w", c.name, c.Host(), what, reason(err), code)
}

// reason is what the client says went wrong, without its advice to whoever typed
// a command: the address is named before it.
func reason(err error) string {
	s := err.Error()
	if _, dial, ok := strings.Cut(s, "; check if the path is correct and if the daemon is running: "); ok {
		return dial
	}
	return s
}

func redact(host string) string {
	if u, err := url.Parse(host); err == nil && u.User != nil {
		u.User = url.User("xxxxx")
		return u.String()
	}
	return host
}

func short(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	return id
}
