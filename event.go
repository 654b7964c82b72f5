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
	// ImagePulled is none of a container's: Container.Image is what was asked for,
	// Container.ID the image's own id, "" where that is not known.
	ImagePulled
)

// ContainerEvent is one thing that happened to a container, or to an image that
// containers are made of, as its engine tells.
type ContainerEvent struct {
	Kind      ContainerEventKind
	At        time.Time // by the engine's clock
	Container Container // as much of it as the event tells: the id always
	Exit      Opt[int]
	// Asked is set where the engine streamed no event: it said so when asked.
	Asked bool
}
