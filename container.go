package cimeter

import "time"

// Container is what a runtime tells of one container. It holds metadata only;
// of the environment only variables that an allow-list names are ever put here.
type Container struct {
	ID           string            // 64 hex digits
	Name         string            // without a leading slash
	Image        string            // as it was asked for
	Labels       map[string]string // image and container labels, merged by the runtime
	Env          map[string]string // allow-listed variables; nil when the container was not inspected
	NetworkMode  string            // default, bridge, host, none, container:<id>, or a network's name; "" when not known
	Networks     []string          // names of the networks it is connected to, sorted
	Mounts       []Mount           // what is mounted into it; nil when the container was not inspected
	CgroupParent string            // as it was asked for; "" is the daemon's default
	Pid          int               // first process, in the runtime's pid namespace; 0 when it does not run
	CreatedAt    time.Time
	StartedAt    time.Time // of its latest start; zero when it never started
	Running      bool
	// Pod is set for a container in a Kubernetes pod, by what speaks to the
	// runtime. Labels are then the container's own, never the pod's mixed in.
	Pod *Pod
	// Sandbox is set for the container that holds a pod's namespaces and runs
	// nothing of the pod's author's.
	Sandbox   bool
	Requested Requests // by the pod for this container
}

// Requests are what a pod asked its cluster to keep free for a container. Absent is
// not asked for, or not told.
type Requests struct {
	CPUCores    Opt[float64] `json:"cpu_cores,omitzero"`
	MemoryBytes Opt[uint64]  `json:"memory_bytes,omitzero"`
}

// Mount is a folder, a file or a volume of the machine that is mounted into a
// container.
type Mount struct {
	Source string // path on the machine
	Volume string // name of the volume; "" is none
}

// Role is what a container does for its build.
type Role string

// The roles.
const (
	RoleBuild   Role = "build"   // runs the user's commands
	RoleHelper  Role = "helper"  // the runner's own: sources, cache, artifacts
	RoleService Role = "service" // a database and the like, running alongside
	RoleCache   Role = "cache"   // prepares cache volumes
	RoleWait    Role = "wait"    // waits for a service
	RolePod     Role = "pod"     // holds what a pod's containers share
)

// StageWaiting is the stage of a container that waits for its turn: it runs, and
// nothing of its build's does.
const StageWaiting = "waiting"

// Identity is what a container's metadata says about the build it belongs to.
type Identity struct {
	Build Build
	Role  Role
	// Stage is the build's stage when the container itself tells it: a step's
	// name, service:<name>, or prepare_executor. "" when something else must
	// tell (the runner's job list, command lines, order).
	Stage string
	// Alongside is set for stages that run beside the others (services): their
	// time is not added to the build's.
	Alongside bool
	// Inside is set for a container that lives longer than its stages: it is in
	// Stage, which is StageWaiting then, except while a process in it tells another.
	Inside bool
	// Next is the stage of such a container from when a process is in it that is not
	// the runner's own, where no command line names a stage; "" when none is known.
	Next string
	// Later is set while it is not known which build the container will belong to:
	// its runner waits for one. It is asked for again.
	Later bool
	// Group is what the runner gives all containers of one build and no other:
	// the unique part of their names, or their network. A build's key is bound
	// to the group that claimed it first; a container of another group that
	// claims the same build is disputed. "" when the runner gives no such thing.
	Group string
	// Doubt is set when the metadata contradicts itself (a label that the name
	// or the environment denies): a sentence for the operator. Such a container
	// is not booked on the build it claims.
	Doubt string
}
