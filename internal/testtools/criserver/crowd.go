package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// crowd is a runtime of many running pods of one container each, which a file tells
// of. Nothing happens to them.
type crowd struct {
	runtime.UnimplementedRuntimeServiceServer
	pods  []member
	byID  map[string]*member // also by the sandbox's id
	since int64
}

// member is one pod of a crowd.
type member struct {
	UID, Sandbox, Container string
	Cgroup                  string // path of the container's
	PID, SandboxPID         int
	Labels                  map[string]string // of the pod
}

func readCrowd(file string) (*crowd, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c := &crowd{byID: map[string]*member{}, since: time.Now().UnixNano()}
	if err := json.Unmarshal(b, &c.pods); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i := range c.pods {
		m := &c.pods[i]
		c.byID[m.Sandbox], c.byID[m.Container] = m, m
	}
	return c, nil
}

func (*crowd) Version(context.Context, *runtime.VersionRequest) (*runtime.VersionResponse, error) {
	return &runtime.VersionResponse{Version: "0.1.0", RuntimeName: "stand-in", RuntimeVersion: "2.3.4", RuntimeApiVersion: "v1"}, nil
}

func (m *member) metadata() *runtime.PodSandboxMetadata {
	return &runtime.PodSandboxMetadata{Name: "pod-" + m.UID, Uid: m.UID, Namespace: "ci"}
}

func (m *member) labels() map[string]string {
	return map[string]string{
		"io.kubernetes.pod.name": "pod-" + m.UID, "io.kubernetes.pod.namespace": "ci", "io.kubernetes.pod.uid": m.UID, "io.kubernetes.container.name": "build",
	}
}

// asked is the members that a request wants: one, or all.
func (c *crowd) asked(id string) []member {
	if id == "" {
		return c.pods
	}
	if m := c.byID[id]; m != nil {
		return []member{*m}
	}
	return nil
}

func (c *crowd) ListPodSandbox(_ context.Context, r *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error) {
	var out runtime.ListPodSandboxResponse
	for _, m := range c.asked(r.GetFilter().GetId()) {
		out.Items = append(out.Items, &runtime.PodSandbox{
			Id: m.Sandbox, Metadata: m.metadata(), State: runtime.PodSandboxState_SANDBOX_READY, CreatedAt: c.since, Labels: m.Labels,
		})
	}
	return &out, nil
}

func (c *crowd) ListContainers(_ context.Context, r *runtime.ListContainersRequest) (*runtime.ListContainersResponse, error) {
	var out runtime.ListContainersResponse
	f := r.GetFilter()
	id := f.GetId()
	if id == "" {
		id = f.GetPodSandboxId()
	}
	for _, m := range c.asked(id) {
		out.Containers = append(out.Containers, &runtime.Container{
			Id: m.Container, PodSandboxId: m.Sandbox, Metadata: &runtime.ContainerMetadata{Name: "build"}, Image: &runtime.ImageSpec{Image: "example.com/build:1"},
			State: runtime.ContainerState_CONTAINER_RUNNING, CreatedAt: c.since, Labels: m.labels(),
		})
	}
	return &out, nil
}

func (c *crowd) ContainerStatus(_ context.Context, r *runtime.ContainerStatusRequest) (*runtime.ContainerStatusResponse, error) {
	m := c.byID[r.ContainerId]
	if m == nil {
		return nil, status.Errorf(codes.NotFound, "no container %q", r.ContainerId)
	}
	out := &runtime.ContainerStatusResponse{Status: &runtime.ContainerStatus{
		Id: m.Container, Metadata: &runtime.ContainerMetadata{Name: "build"}, State: runtime.ContainerState_CONTAINER_RUNNING, CreatedAt: c.since, StartedAt: c.since,
		Image: &runtime.ImageSpec{Image: "example.com/build:1"}, Labels: m.labels(),
	}}
	if r.Verbose {
		out.Info = map[string]string{"info": fmt.Sprintf(`{"pid": %d, "runtimeSpec": {"linux": {"cgroupsPath": %q}}}`, m.PID, m.Cgroup)}
	}
	return out, nil
}

func (c *crowd) PodSandboxStatus(_ context.Context, r *runtime.PodSandboxStatusRequest) (*runtime.PodSandboxStatusResponse, error) {
	m := c.byID[r.PodSandboxId]
	if m == nil {
		return nil, status.Errorf(codes.NotFound, "no pod %q", r.PodSandboxId)
	}
	out := &runtime.PodSandboxStatusResponse{Status: &runtime.PodSandboxStatus{
		Id: m.Sandbox, Metadata: m.metadata(), State: runtime.PodSandboxState_SANDBOX_READY, CreatedAt: c.since, Labels: m.Labels,
		Linux: &runtime.LinuxPodSandboxStatus{Namespaces: &runtime.Namespace{Options: &runtime.NamespaceOption{Network: runtime.NamespaceMode_POD}}},
	}}
	if r.Verbose {
		out.Info = map[string]string{"info": fmt.Sprintf(`{"pid": %d}`, m.SandboxPID)}
	}
	return out, nil
}

// GetContainerEvents tells nothing until its caller leaves.
func (*crowd) GetContainerEvents(_ *runtime.GetEventsRequest, to grpc.ServerStreamingServer[runtime.ContainerEventResponse]) error {
	<-to.Context().Done()
	return nil
}
