package cimeter

import "time"

// ContainerEventKind is what happened to a container.
type ContainerEventKind uint8

// The kinds of events.
const (
	ContainerCreated ContainerEventKind = iota + 1
	ContainerStarted
	ContainerDied      // Exit is its exit code
	ContainerKilled    // out of memory: the kernel killed a process of it
	ContainerDestroyed // it does not exist any more
)

// ContainerEvent is one thing that happened to a container, as its engine tells.
type ContainerEvent struct {
	Kind      ContainerEventKind
	At        time.Time // by the engine's clock
	Container Container // as much of it as the event tells: the id always
	Exit      Opt[int]
}
