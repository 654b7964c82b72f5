// Command criserver serves what a Kubernetes runtime does, by the types and the
// server that the kubelet's own interface is made of: two pods and four containers
// that never change, and a stream of events about a third. As "silent" it streams
// none, as CRI-O where pod events are off: the stream ends at once, and well. It has
// one container more when the stream has been asked for twice. Given a file it serves
// the pods that this tells of.
//
//	criserver SOCKET [silent]
//	criserver SOCKET pods FILE
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func main() {
	if err := serve(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(socket string, as []string) (err error) {
	var of runtime.RuntimeServiceServer
	switch {
	case len(as) == 2 && as[0] == "pods":
		of, err = readCrowd(as[1])
	default:
		of = &server{silent: len(as) == 1 && as[0] == "silent"}
	}
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	runtime.RegisterRuntimeServiceServer(s, of)
	return s.Serve(l)
}

type server struct {
	runtime.UnimplementedRuntimeServiceServer
	silent bool
	asked  atomic.Int64 // for the stream
}

func (*server) Version(context.Context, *runtime.VersionRequest) (*runtime.VersionResponse, error) {
	return &runtime.VersionResponse{Version: "0.1.0", RuntimeName: "stand-in", RuntimeVersion: "2.3.4", RuntimeApiVersion: "v1"}, nil
}

// Times are nanoseconds since 1970.
const second = 1_000_000_000

func pod() *runtime.PodSandbox {
	return &runtime.PodSandbox{
		Id: "p1", Metadata: &runtime.PodSandboxMetadata{Name: "job-x", Uid: "u1", Namespace: "ci", Attempt: 2}, State: runtime.PodSandboxState_SANDBOX_READY,
		CreatedAt: 100 * second, Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "2"}, RuntimeHandler: "runc",
	}
}

func ended() *runtime.PodSandbox {
	return &runtime.PodSandbox{
		Id: "p2", Metadata: &runtime.PodSandboxMetadata{Name: "old", Uid: "u2", Namespace: "ci"}, State: runtime.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: 50 * second,
	}
}

func containers() []*runtime.Container {
	of := func(id, pod, name string, state runtime.ContainerState) *runtime.Container {
		return &runtime.Container{
			Id: id, PodSandboxId: pod, Metadata: &runtime.ContainerMetadata{Name: name, Attempt: 1},
			Image: &runtime.ImageSpec{Image: "sha256:0", UserSpecifiedImage: "example.com/" + name + ":1"}, ImageRef: "ref", ImageId: "id",
			State: state, CreatedAt: 101 * second, Labels: map[string]string{"io.kubernetes.container.name": name}, Annotations: map[string]string{"x": "y"},
		}
	}
	return []*runtime.Container{
		of("c1", "p1", "build", runtime.ContainerState_CONTAINER_RUNNING), of("c2", "p1", "helper", runtime.ContainerState_CONTAINER_CREATED),
		of("c3", "p2", "step", runtime.ContainerState_CONTAINER_EXITED),
	}
}

func (*server) ListPodSandbox(_ context.Context, r *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error) {
	var out runtime.ListPodSandboxResponse
	for _, p := range []*runtime.PodSandbox{pod(), ended()} {
		if id := r.GetFilter().GetId(); id == "" || id == p.Id {
			out.Items = append(out.Items, p)
		}
	}
	return &out, nil
}

func (s *server) ListContainers(_ context.Context, r *runtime.ListContainersRequest) (*runtime.ListContainersResponse, error) {
	var out runtime.ListContainersResponse
	all := containers()
	if s.asked.Load() > 1 {
		all = append(all, &runtime.Container{Id: "c4", PodSandboxId: "p1", Metadata: &runtime.ContainerMetadata{Name: "late"}, State: runtime.ContainerState_CONTAINER_CREATED})
	}
	for _, c := range all {
		if id := r.GetFilter().GetId(); id == "" || id == c.Id {
			out.Containers = append(out.Containers, c)
		}
	}
	return &out, nil
}

func (*server) ContainerStatus(_ context.Context, r *runtime.ContainerStatusRequest) (*runtime.ContainerStatusResponse, error) {
	for _, c := range containers() {
		if c.Id != r.ContainerId {
			continue
		}
		out := &runtime.ContainerStatusResponse{Status: &runtime.ContainerStatus{
			Id: c.Id, Metadata: c.Metadata, State: c.State, CreatedAt: c.CreatedAt, StartedAt: 102 * second, FinishedAt: 103 * second, ExitCode: 7,
			Image: c.Image, Reason: "Error", Message: "m", Labels: c.Labels, LogPath: "/log",
			Resources: &runtime.ContainerResources{Linux: &runtime.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 200000, CpuShares: 1536, MemoryLimitInBytes: 1 << 30, OomScoreAdj: -997}},
		}}
		if r.Verbose {
			out.Info = map[string]string{"other": "{", "info": `{"pid": 4711, "runtimeSpec": {"process": {"env": ["CI_JOB_ID=9", "CI_JOB_TOKEN=s3cret"]}, "linux": {"cgroupsPath": "kubepods-pod1.slice:cri-containerd:c1"}}}`}
		}
		if c.Id == "c2" { // as containerd before 1.7 tells it, with the cgroupfs driver
			out.Status.Resources = nil
			out.Info = map[string]string{"info": `{"runtimeSpec": {"process": {"oomScoreAdj": -997}, "linux": {"cgroupsPath": "/kubepods/podu1/c2", "resources": {"cpu": {"shares": 512}, "memory": {"limit": 4096}}}}}`}
		}
		return out, nil
	}
	return nil, status.Errorf(codes.NotFound, "no container %q", r.ContainerId)
}

func (*server) PodSandboxStatus(_ context.Context, r *runtime.PodSandboxStatusRequest) (*runtime.PodSandboxStatusResponse, error) {
	p := pod()
	if r.PodSandboxId != p.Id {
		return nil, status.Errorf(codes.NotFound, "no pod %q", r.PodSandboxId)
	}
	return &runtime.PodSandboxStatusResponse{Status: podStatus("p1", runtime.PodSandboxState_SANDBOX_READY)}, nil
}

func podStatus(id string, state runtime.PodSandboxState) *runtime.PodSandboxStatus {
	p := pod()
	return &runtime.PodSandboxStatus{
		Id: id, Metadata: p.Metadata, State: state, CreatedAt: p.CreatedAt, Labels: p.Labels, Annotations: p.Annotations,
		Network: &runtime.PodSandboxNetworkStatus{Ip: "10.0.0.1"},
		Linux:   &runtime.LinuxPodSandboxStatus{Namespaces: &runtime.Namespace{Options: &runtime.NamespaceOption{Network: runtime.NamespaceMode_NODE, Pid: runtime.NamespaceMode_CONTAINER}}},
	}
}

// GetContainerEvents tells the life of a pod p3 and its container c9, and ends when
// its caller does.
func (s *server) GetContainerEvents(_ *runtime.GetEventsRequest, to grpc.ServerStreamingServer[runtime.ContainerEventResponse]) error {
	if s.silent {
		s.asked.Add(1)
		return nil
	}
	c := func(state runtime.ContainerState) []*runtime.ContainerStatus {
		return []*runtime.ContainerStatus{{
			Id: "c9", Metadata: &runtime.ContainerMetadata{Name: "short"}, State: state, CreatedAt: 201 * second, StartedAt: 202 * second, FinishedAt: 203 * second, ExitCode: 3,
			Labels: map[string]string{"io.kubernetes.container.name": "short"},
		}}
	}
	ready, gone := podStatus("p3", runtime.PodSandboxState_SANDBOX_READY), podStatus("p3", runtime.PodSandboxState_SANDBOX_NOTREADY)
	for _, e := range []*runtime.ContainerEventResponse{
		{ContainerId: "p3", ContainerEventType: runtime.ContainerEventType_CONTAINER_CREATED_EVENT, CreatedAt: 200 * second, PodSandboxStatus: ready},
		{ContainerId: "p3", ContainerEventType: runtime.ContainerEventType_CONTAINER_STARTED_EVENT, CreatedAt: 200 * second, PodSandboxStatus: ready},
		{ContainerId: "c9", ContainerEventType: runtime.ContainerEventType_CONTAINER_CREATED_EVENT, CreatedAt: 201 * second, PodSandboxStatus: ready, ContainersStatuses: c(runtime.ContainerState_CONTAINER_CREATED)},
		{ContainerId: "c9", ContainerEventType: runtime.ContainerEventType_CONTAINER_STARTED_EVENT, CreatedAt: 202 * second, PodSandboxStatus: ready, ContainersStatuses: c(runtime.ContainerState_CONTAINER_RUNNING)},
		{ContainerId: "c9", ContainerEventType: runtime.ContainerEventType_CONTAINER_STOPPED_EVENT, CreatedAt: 203 * second, PodSandboxStatus: ready, ContainersStatuses: c(runtime.ContainerState_CONTAINER_EXITED)},
		{ContainerId: "c9", ContainerEventType: runtime.ContainerEventType_CONTAINER_DELETED_EVENT, CreatedAt: 204 * second, PodSandboxStatus: ready},
		{ContainerId: "p3", ContainerEventType: runtime.ContainerEventType_CONTAINER_STOPPED_EVENT, CreatedAt: 205 * second, PodSandboxStatus: gone},
		{ContainerId: "p3", ContainerEventType: runtime.ContainerEventType_CONTAINER_DELETED_EVENT, CreatedAt: 206 * second},
	} {
		if err := to.Send(e); err != nil {
			return err
		}
	}
	<-to.Context().Done()
	return nil
}
