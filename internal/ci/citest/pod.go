package citest

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
)

// Pod is a pod of a fixture, with a container for each that its specification has, as
// the kubelet has the runtime make them.
type Pod struct {
	File       string // its path
	Containers []*cimeter.Container
}

// pod is what is read of a fixture: a pod as the API server tells it.
type pod struct {
	Metadata struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		UID         string            `json:"uid"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Init       []container `json:"initContainers"`
		Containers []container `json:"containers"`
	} `json:"spec"`
}

type container struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	Env   []struct {
		Name, Value string
	} `json:"env"`
}

// Pods reads the fixtures of a folder, each a pod as JSON. Of the environment only
// variables are kept.
func Pods(t testing.TB, dir string, variables []string) []Pod {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.pod.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("pods of %s: %d files, %v: want some", dir, len(files), err)
	}
	var all []Pod
	for _, file := range files {
		var in pod
		decode(t, read(t, file), &in)
		m := &cimeter.Pod{UID: in.Metadata.UID, Name: in.Metadata.Name, Namespace: in.Metadata.Namespace, Labels: in.Metadata.Labels, Annotations: in.Metadata.Annotations}
		p := Pod{File: file}
		for i, c := range append(in.Spec.Init, in.Spec.Containers...) {
			var env []string
			for _, v := range c.Env {
				env = append(env, v.Name+"="+v.Value)
			}
			p.Containers = append(p.Containers, &cimeter.Container{
				ID: strings.Repeat(string("0123456789abcdef"[i%16]), 64), Name: c.Name, Image: c.Image, Pod: m, Env: Allow(env, variables),
				Labels: map[string]string{
					cimeter.LabelPodContainer: c.Name, "io.kubernetes.pod.name": m.Name, "io.kubernetes.pod.namespace": m.Namespace, "io.kubernetes.pod.uid": m.UID,
				},
			})
		}
		all = append(all, p)
	}
	return all
}

// IdentifiedInPod is one container of a pod in a golden file: what is told of it by
// the metadata alone, and with its variables.
type IdentifiedInPod struct {
	Container string
	ByPod     cimeter.Identity
	ByAll     *cimeter.Identity `json:",omitempty"` // where variables tell more
}

// GoldenPods identifies the containers of a folder's pods and compares the results
// with golden files beside them. What holds for every pod is checked: all containers
// are identified, none is in doubt, all are of one build and one group by the metadata
// alone, and a container in no pod that has the pod's labels is not taken for one.
func GoldenPods(t *testing.T, dir string, variables []string, identify func(*cimeter.Container) (cimeter.Identity, bool)) {
	t.Helper()
	for _, p := range Pods(t, dir, variables) {
		var all []IdentifiedInPod
		for _, c := range p.Containers {
			bare := *c
			bare.Env = nil
			id, ok := identify(&bare)
			if !ok || id.Doubt != "" {
				t.Errorf("%s: %s: identified %v, doubt %q", p.File, c.Name, ok, id.Doubt)
			}
			one := IdentifiedInPod{Container: c.Name, ByPod: id}
			whole, ok := identify(c)
			if !ok || whole.Doubt != "" {
				t.Errorf("%s: %s with its variables: identified %v, doubt %q", p.File, c.Name, ok, whole.Doubt)
			}
			if whole != id {
				one.ByAll = &whole
			}
			all = append(all, one)
			first := all[0].ByPod
			if id.Group == "" || id.Build.Key != first.Build.Key || id.Group != first.Group || whole.Group != id.Group {
				t.Errorf("%s: %s: key %q of group %q, want %q of %q", p.File, c.Name, id.Build.Key, id.Group, first.Build.Key, first.Group)
			}
			outside := cimeter.Container{ID: c.ID, Name: c.Name, Image: c.Image, Labels: c.Pod.Labels, Env: c.Env}
			if id, ok := identify(&outside); ok && id.Doubt == "" && id.Build.Key == first.Build.Key {
				t.Errorf("%s: %s: a container in no pod, with the pod's labels for its own, is taken for one of build %s", p.File, c.Name, id.Build.Key)
			}
		}
		Golden(t, strings.TrimSuffix(p.File, ".pod.json")+".golden.json", all)
	}
}

// Forgery is a change of a pod's metadata or a container's variables that makes it
// claim another build.
type Forgery struct {
	Name        string
	Labels      map[string]string
	Annotations map[string]string
	Env         map[string]string
	Pod         string // another name of the pod
}

// Forged applies each forgery to a container of a fixture and wants Doubt to be set.
func Forged(t *testing.T, file, container string, variables []string, identify func(*cimeter.Container) (cimeter.Identity, bool), all []Forgery) {
	t.Helper()
	for _, f := range all {
		t.Run(f.Name, func(t *testing.T) {
			c := Container(t, file, container, variables)
			set(c.Pod.Labels, f.Labels)
			if c.Pod.Annotations == nil {
				c.Pod.Annotations = make(map[string]string)
			}
			set(c.Pod.Annotations, f.Annotations)
			set(c.Env, f.Env)
			if f.Pod != "" {
				c.Pod.Name = f.Pod
			}
			if id, ok := identify(c); !ok || id.Doubt == "" {
				t.Errorf("identified %v, key %s, doubt %q: want one", ok, id.Build.Key, id.Doubt)
			}
		})
	}
}

// Container returns one container of a fixture.
func Container(t testing.TB, file, name string, variables []string) *cimeter.Container {
	t.Helper()
	for _, p := range Pods(t, filepath.Dir(file), variables) {
		for _, c := range p.Containers {
			if p.File == file && c.Name == name {
				return c
			}
		}
	}
	t.Fatalf("%s has no container %s", file, name)
	return nil
}

func set(to, from map[string]string) {
	for k, v := range from {
		if v == "" {
			delete(to, k)
			continue
		}
		to[k] = v
	}
}
