package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
)

// A build tells when the image of its containers was pulled, by name or by id, as far as
// it was before its start and not long ago.
func TestAgent_pull(t *testing.T) {
	const id = "sha256:3bcf850667e85f520d975976c12f58e0b4898aec801a3e018a26d61cbfec8e67"
	for name, test := range map[string]struct {
		pulled, is string        // images: of the event, of the container
		ago        time.Duration // of the pull
		told       bool
	}{
		"name":          {"docker.io/library/alpine:3.19", "alpine:3.19", time.Second, true},
		"latest":        {"registry.example.com/team/tool", "registry.example.com/team/tool:latest", time.Second, true},
		"id":            {"alpine:3.19", id, time.Second, true},
		"another":       {"alpine:3.18", "alpine:3.19", time.Second, false},
		"port, no tag":  {"registry:5000/tool", "registry:5000/tool:latest", time.Second, true},
		"an hour ago":   {"alpine:3.19", "alpine:3.19", time.Hour, false},
		"while it runs": {"alpine:3.19", "alpine:3.19", -time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, s := newEngine(), newShelf()
			a, _ := start(t, options(e, s))
			at := time.Now().Add(-test.ago)
			e.events <- cimeter.ContainerEvent{Kind: cimeter.ImagePulled, At: at, Container: cimeter.Container{Image: test.pulled, ID: map[bool]string{true: id}[strings.HasPrefix(test.is, "sha256:")]}}
			b := newBox(t, "one", 20*time.Millisecond)
			b.Image = test.is
			e.tell(cimeter.ContainerCreated, b.Container, cimeter.Opt[int]{})
			e.tell(cimeter.ContainerStarted, b.Container, cimeter.Opt[int]{})
			b.finish(t, a)
			e.tell(cimeter.ContainerDied, b.Container, cimeter.Some(0))
			e.tell(cimeter.ContainerDestroyed, b.Container, cimeter.Opt[int]{})
			r := s.await(t, "test/build")
			if got := r.ImagePulledAt; got.IsZero() == test.told || test.told && !got.Equal(at) {
				t.Errorf("pulled at %v: want it told %v, %v", got, test.told, at)
			}
		})
	}
}
