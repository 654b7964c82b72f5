package main

import (
	"errors"
	"io"
	"strings"

	"github.com/cimeter/cimeter/internal/agent"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/cri"
	"github.com/cimeter/cimeter/internal/docker"
)

// engineFlags say which container engines are followed.
type engineFlags struct {
	Docker []string `env:"CIMETER_DOCKER,DOCKER_HOST" placeholder:"HOST" help:"Address of a Docker Engine; unix:///var/run/docker.sock where no engine is named. Each of these flags may be given more than once."`
	CRI    []string `name:"cri" env:"CIMETER_CRI" placeholder:"SOCKET" help:"Socket of a Kubernetes runtime, such as unix:///run/containerd/containerd.sock."`
	Podman []string `env:"CIMETER_PODMAN" placeholder:"HOST" help:"Address of a Podman service, such as unix:///run/podman/podman.sock."`
}

func (f *engineFlags) overrides() []config.Override {
	var over []config.Override
	set := func(path, flag string, values ...string) {
		if v := strings.Join(values, ","); v != "" {
			over = append(over, config.Override{Path: path, Value: v, Source: flag})
		}
	}
	if len(f.Docker) > 0 {
		set("agent.docker.host", "--docker", f.Docker[0])
		set("agent.docker.others", "--docker", f.Docker[1:]...)
	}
	set("agent.cri", "--cri", f.CRI...)
	set("agent.podman", "--podman", f.Podman...)
	return over
}

// defaultDocker is where a Docker Engine listens unless it is told otherwise.
const defaultDocker = "unix:///var/run/docker.sock"

// dockerHosts returns the addresses of the Docker Engines to follow.
func dockerHosts(a *config.Agent) []string {
	switch {
	case !a.Docker.Enabled:
		return nil
	case a.Docker.Host != "":
		return append([]string{a.Docker.Host}, a.Docker.Others...)
	case len(a.Docker.Others)+len(a.CRI)+len(a.Podman) > 0:
		return a.Docker.Others
	}
	return []string{defaultDocker}
}

// engines are the container engines that an agent follows.
type engines struct {
	list   []agent.NamedEngine
	closed []io.Closer
}

// openEngines opens all that the settings name. It does not connect.
func openEngines(conf *config.Agent, variables []string) (_ *engines, err error) {
	e := &engines{}
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	for i, host := range dockerHosts(conf) {
		d, err := docker.Open(docker.Options{Host: host, Variables: variables})
		if err != nil {
			return nil, err
		}
		e.add("docker", i, host, d)
	}
	for i, socket := range conf.CRI {
		c, err := cri.Open(cri.Options{Socket: socket, Variables: variables, NoEvents: conf.CRIEvents == "off"})
		if err != nil {
			return nil, err
		}
		e.add("cri", i, socket, c)
	}
	for i, host := range conf.Podman {
		d, err := docker.Open(docker.Options{Name: "podman", Host: host, Variables: variables})
		if err != nil {
			return nil, err
		}
		e.add("podman", i, host, d)
	}
	return e, nil
}

// add names an engine: the first of a kind by the kind alone.
func (e *engines) add(kind string, i int, host string, engine interface {
	agent.Engine
	io.Closer
}) {
	name := kind
	if i > 0 {
		name += " " + host
	}
	e.list = append(e.list, agent.NamedEngine{Name: name, Engine: engine})
	e.closed = append(e.closed, engine)
}

// Close closes all.
func (e *engines) Close() error {
	var err error
	for _, c := range e.closed {
		err = errors.Join(err, c.Close())
	}
	return err
}
