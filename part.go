package cimeter

import "time"

// Part is a container or a build step that is shown apart in a build's record,
// though no stage is made of it: nested in one of the build's containers (Docker
// in Docker, BuildKit, podman), or beside them, made through the engine's socket.
type Part struct {
	Kind   PartKind `json:"kind"`
	ID     string   `json:"id,omitempty"`     // as its cgroup is named; absent of several
	Count  int      `json:"count,omitempty"`  // of how many it is the sum; absent of one
	Within string   `json:"within,omitempty"` // id of the build's container that it is nested in; absent of several and beside
	Stage  string   `json:"stage,omitempty"`  // of the build, in which it began; beside: not known
	// Counted says that what it used is in the usage of its stage and of the
	// build. What is beside is not: it is attributed, not known.
	Counted         bool         `json:"counted"`
	Attribution     Attribution  `json:"attribution"` // what says that it is the build's
	Confidence      Confidence   `json:"confidence"`  // how much that says
	StartedAt       time.Time    `json:"started_at"`
	EndedAt         time.Time    `json:"ended_at"` // beside: at the build's end, though it may go on
	CPUSeconds      Opt[float64] `json:"cpu_seconds,omitzero"`
	MemoryPeakBytes Opt[uint64]  `json:"memory_peak_bytes,omitzero"` // the kernel's; of several the largest
	OOMKills        Opt[uint64]  `json:"oom_kills,omitzero"`
}

// PartKind is what a Part is.
type PartKind string

// The kinds of parts.
const (
	PartContainer PartKind = "container"  // of a container engine
	PartBuildStep PartKind = "build_step" // a RUN of BuildKit, which no engine lists
)

// Attribution is what says that a Part belongs to its build, best first.
type Attribution string

// The attributions.
const (
	AttributedNested       Attribution = "nested"         // its cgroup is below one of the build's
	AttributedCgroupParent Attribution = "cgroup_parent"  // its cgroup has the parent that only the build's have
	AttributedNetwork      Attribution = "network"        // it shares a network with the build's containers alone
	AttributedVolume       Attribution = "volume"         // it shares a volume with the build's containers alone
	AttributedClient       Attribution = "client"         // when it was made, the build alone had a client of the engine running
	AttributedSole         Attribution = "sole_candidate" // when it was made, no other build had the engine's socket
	Unattributed           Attribution = "unattributed"   // several builds may have made it: on no record
)

// Confidence is how sure an attribution is.
type Confidence string

// The confidences.
const (
	Certain  Confidence = "certain"  // the kernel says so
	Strong   Confidence = "strong"   // it could be otherwise only on purpose
	Likely   Confidence = "likely"   // one build alone was seen doing what makes such
	Possible Confidence = "possible" // no other build could have made it; somebody else could
)

// Confidence returns how sure the attribution is; "" for none.
func (a Attribution) Confidence() Confidence {
	switch a {
	case AttributedNested:
		return Certain
	case AttributedCgroupParent, AttributedNetwork, AttributedVolume:
		return Strong
	case AttributedClient:
		return Likely
	case AttributedSole:
		return Possible
	}
	return ""
}
