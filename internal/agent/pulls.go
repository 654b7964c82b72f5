package agent

import (
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
)

// maxPulls bounds the pulls of images that are remembered of one engine.
const maxPulls = 128

// pull is one of an image.
type pull struct {
	image, id string
	at        time.Time
}

// pulled notes that an image was pulled.
func (f *followed) pulled(e cimeter.ContainerEvent) {
	if len(f.pulls) == maxPulls {
		f.pulls = slices.Delete(f.pulls, 0, 1)
	}
	f.pulls = append(f.pulls, pull{strings.Clone(imageName(e.Container.Image)), strings.Clone(e.Container.ID), e.At})
}

// tellPull tells the build of a container when its image was pulled.
func (m *meter) tellPull(k *known) {
	if k.engine == nil || k.container.Image == "" {
		return
	}
	name := imageName(k.container.Image)
	for _, p := range slices.Backward(k.engine.pulls) {
		if p.image == name || p.id != "" && p.id == k.container.Image {
			m.ledger.Pulled(k.identity.Build.Key, p.at)
			return
		}
	}
}

// imageName is the name of an image as engines write it in full or short.
func imageName(s string) string {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "docker.io/"), "library/")
	if i := strings.LastIndexByte(s, '/'); s != "" && !strings.ContainsAny(s[i+1:], ":@") {
		s += ":latest"
	}
	return s
}
