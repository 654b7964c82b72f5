package cri

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cimeter/cimeter"
)

// field is one field of a message: a number, or the bytes of a text or message.
type field struct {
	number protowire.Number
	value  uint64
	bytes  []byte
}

func (f field) text() string { return strings.ToValidUTF8(string(f.bytes), "\uFFFD") }

func (f field) at() time.Time {
	if ns := int64(f.value); ns > 0 {
		return time.Unix(0, ns)
	}
	return time.Time{}
}

// fields calls fn for each field of message b, in order; it skips those of the
// fixed sizes, of which the interface has none. The bytes are b's own.
func fields(b []byte, fn func(field) error) error {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return malformed(n)
		}
		b = b[n:]
		f := field{number: num}
		switch kind {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			if n = protowire.ConsumeFieldValue(num, kind, b); n < 0 {
				return malformed(n)
			}
			b = b[n:]
			continue
		}
		if n < 0 {
			return malformed(n)
		}
		b = b[n:]
		if err := fn(f); err != nil {
			return err
		}
	}
	return nil
}

func malformed(n int) error {
	return fmt.Errorf("message: %v: %w", protowire.ParseError(n), cimeter.ErrInvalid)
}

// Bounds of what one pod's author may have the agent hold.
const (
	maxPairs = 256
	maxValue = 4096 // bytes of a key or value; a longer one is left out
)

// pair puts an entry of a map into m, which is made where there is none.
func pair(m map[string]string, b []byte) (map[string]string, error) {
	var key, value string
	err := fields(b, func(f field) error {
		if len(f.bytes) > maxValue {
			f.bytes, key, value = nil, "", ""
			b = nil
			return nil
		}
		switch f.number {
		case 1:
			key = f.text()
		case 2:
			value = f.text()
		}
		return nil
	})
	if err != nil || b == nil || key == "" {
		return m, err
	}
	if m == nil {
		m = make(map[string]string)
	}
	if _, there := m[key]; there || len(m) < maxPairs {
		m[key] = value
	}
	return m, nil
}

// state of a container or a sandbox. The two enumerations of the interface differ.
type state uint8

const (
	created state = iota + 1
	running
	exited
)

func containerState(v uint64) state {
	if v <= 2 {
		return state(v + 1)
	}
	return exited // unknown: the runtime has lost it
}

func sandboxState(v uint64) state {
	if v == 0 {
		return running
	}
	return exited
}

// pod is a sandbox as a list or a status tells it.
type pod struct {
	id        string
	state     state
	createdAt time.Time
	host      bool // the host's network; told by a status only
	cimeter.Pod
}

// parsePod parses PodSandbox, and PodSandboxStatus where isStatus is set.
func parsePod(b []byte, isStatus bool) (*pod, error) {
	p := &pod{state: running} // READY is 0, which is not sent
	labels, annotations := protowire.Number(5), protowire.Number(6)
	if isStatus {
		labels, annotations = 7, 8
	}
	err := fields(b, func(f field) (err error) {
		switch f.number {
		case 1:
			p.id = f.text()
		case 2:
			return fields(f.bytes, func(f field) error {
				switch f.number {
				case 1:
					p.Name = f.text()
				case 2:
					p.UID = f.text()
				case 3:
					p.Namespace = f.text()
				}
				return nil
			})
		case 3:
			p.state = sandboxState(f.value)
		case 4:
			p.createdAt = f.at()
		case labels:
			p.Labels, err = pair(p.Labels, f.bytes)
		case annotations:
			p.Annotations, err = pair(p.Annotations, f.bytes)
		case 6: // of a status: linux.namespaces.options.network
			p.host, err = hostNetwork(f.bytes)
		}
		return err
	})
	return p, err
}

// hostNetwork reports whether LinuxPodSandboxStatus says that the network is the
// node's (2).
func hostNetwork(b []byte) (host bool, err error) {
	err = fields(b, func(namespaces field) error {
		if namespaces.number != 1 {
			return nil
		}
		return fields(namespaces.bytes, func(options field) error {
			if options.number != 2 {
				return nil
			}
			return fields(options.bytes, func(f field) error {
				if f.number == 1 {
					host = f.value == 2
				}
				return nil
			})
		})
	})
	return host, err
}

// container is a container as a list or a status tells it.
type container struct {
	id, sandbox          string // a status does not tell the sandbox
	name, image          string
	state                state
	createdAt, startedAt time.Time
	finishedAt           time.Time
	exit                 int
	labels               map[string]string
	requested            cimeter.Requests
}

// parseContainer parses Container, and ContainerStatus where isStatus is set.
func parseContainer(b []byte, isStatus bool) (*container, error) {
	c := &container{state: created}
	sandbox, metadata, image, state, at, labels := protowire.Number(2), protowire.Number(3), protowire.Number(4), protowire.Number(6), protowire.Number(7), protowire.Number(8)
	if isStatus {
		sandbox, metadata, image, state, at, labels = 0, 2, 8, 3, 4, 12
	}
	err := fields(b, func(f field) (err error) {
		switch f.number {
		case 1:
			c.id = f.text()
		case sandbox:
			c.sandbox = f.text()
		case metadata:
			return fields(f.bytes, func(f field) error {
				if f.number == 1 {
					c.name = f.text()
				}
				return nil
			})
		case image:
			return fields(f.bytes, func(f field) error {
				if f.number == 1 && c.image == "" || f.number == 18 && len(f.bytes) > 0 { // 18: as it was asked for
					c.image = f.text()
				}
				return nil
			})
		case state:
			c.state = containerState(f.value)
		case at:
			c.createdAt = f.at()
		case labels:
			c.labels, err = pair(c.labels, f.bytes)
		}
		if !isStatus {
			return err
		}
		switch f.number {
		case 5:
			c.startedAt = f.at()
		case 6:
			c.finishedAt = f.at()
		case 7:
			c.exit = int(int32(f.value))
		case 16:
			err = fields(f.bytes, func(f field) error {
				if f.number != 1 {
					return nil
				}
				c.requested, err = parseResources(f.bytes)
				return err
			})
		}
		return err
	})
	return c, err
}

// parseResources returns what LinuxContainerResources tell of the requests.
func parseResources(b []byte) (cimeter.Requests, error) {
	var shares, limit int64
	var adjust int64
	err := fields(b, func(f field) error {
		switch f.number {
		case 3:
			shares = int64(f.value)
		case 4:
			limit = int64(f.value)
		case 5:
			adjust = int64(f.value)
		}
		return nil
	})
	return requests(shares, limit, adjust), err
}

// requests turns what the kubelet told the runtime back into what the pod asked
// for: 1024 shares are a core, 2 are the least that the kernel takes, for none
// (kubernetes pkg/kubelet/cm, MilliCPUToShares). Memory that was asked for is told of
// guaranteed pods alone, where it is the limit; they have a score of -997
// (pkg/kubelet/qos).
func requests(shares, memoryLimit, oomScore int64) (r cimeter.Requests) {
	if shares > 2 {
		r.CPUCores = cimeter.Some(float64((shares*1000+1023)/1024) / 1000)
	}
	if oomScore == guaranteed && memoryLimit > 0 {
		r.MemoryBytes = cimeter.Some(uint64(memoryLimit))
	}
	return r
}

const guaranteed = -997
