package cimeter

// Pod is what a node's runtime tells of the Kubernetes pod that a container is
// in: the metadata of its sandbox, as the kubelet gave it. A pod's author writes
// its labels and annotations, but not its UID, which the API server draws: no two
// pods have one.
type Pod struct {
	UID         string
	Name        string
	Namespace   string
	Labels      map[string]string
	Annotations map[string]string
}

// LabelPodContainer is the label of a container that holds its name within its
// pod. The kubelet sets it, and the three of the pod's name, namespace and UID.
const LabelPodContainer = "io.kubernetes.container.name"

// PodContainer returns the name that a pod's container has within the pod, and ""
// for one that is in none.
func (c *Container) PodContainer() string {
	if c.Pod == nil {
		return ""
	}
	return c.Labels[LabelPodContainer]
}
