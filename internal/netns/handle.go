package netns

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// Handle is one namespace that a [Reader] counts.
type Handle struct {
	r         *Reader
	key       uint64 // inode of net/dev: one for each namespace, readable without a capability
	namespace uint64
	name      string // the uplink's name inside
	fd        int    // of net/dev inside, which keeps the namespace alive; -1 when counted on our side
	index     int32  // of the veth's end on our side; 0 when there is none
	nsid      int32
	round     uint64 // of the last Refresh that saw it

	receive, transmit uint64 // bytes, as the container sees them
	gone              bool
	closed            bool
}

// Read sets the bytes received and sent in s: as of the last [Reader.Refresh]
// for a handle whose Source is "netlink", as of now for one read from proc. It
// leaves the sample's time alone. When the uplink is no more it sets the last
// values seen and returns [cimeter.ErrGone].
func (h *Handle) Read(s *cimeter.Sample) error {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	if h.index == 0 {
		return h.readNow(s)
	}
	h.set(s)
	if h.gone || h.closed {
		return h.errGone()
	}
	return nil
}

// ReadNow sets the bytes received and sent in s as of now: for the end of a
// segment, when its processes are dead and its uplink is still there. Otherwise
// it is as Read.
func (h *Handle) ReadNow(s *cimeter.Sample) error {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	return h.readNow(s)
}

func (h *Handle) readNow(s *cimeter.Sample) error {
	err := h.fetch()
	h.set(s)
	return err
}

func (h *Handle) set(s *cimeter.Sample) {
	s.SetCounter(cimeter.NetworkReceiveBytes, h.receive)
	s.SetCounter(cimeter.NetworkTransmitBytes, h.transmit)
}

// fetch reads the counters of this handle alone.
func (h *Handle) fetch() error {
	if h.gone || h.closed {
		return h.errGone()
	}
	if h.index == 0 {
		receive, transmit, ok, err := h.r.readDevice(h.fd, h.name)
		if err != nil {
			return fmt.Errorf("read network device %s: %w", h.name, err)
		}
		if !ok {
			h.gone = true
			unix.Close(h.fd)
			h.fd = -1
			return h.errGone()
		}
		h.receive, h.transmit = receive, transmit
		return nil
	}
	if h.r.nl == nil {
		return h.errGone() // the Reader is closed
	}
	s, err := h.r.nl.stats(h.index)
	if errors.Is(err, unix.ENODEV) {
		h.gone = true
		delete(h.r.byIndex, h.index)
		return h.errGone()
	}
	if err != nil {
		return fmt.Errorf("read statistics of link %d: %w", h.index, err)
	}
	h.receive, h.transmit = s.transmit, s.receive
	return nil
}

func (h *Handle) errGone() error {
	return fmt.Errorf("read network device %s: %w", h.name, cimeter.ErrGone)
}

// Namespace returns what tells this network namespace from every other that
// lives now: the inode of /proc/PID/ns/net, or, where that may not be read, of
// /proc/PID/net/dev, which the kernel takes from the same numbers.
func (h *Handle) Namespace() uint64 { return h.namespace }

// Source returns how the handle is read: "netlink" or "proc".
func (h *Handle) Source() string {
	if h.index != 0 {
		return "netlink"
	}
	return "proc"
}

// Close lets go of the namespace. It is then free to be attached again.
func (h *Handle) Close() {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	h.release()
}

func (h *Handle) release() {
	if h.closed {
		return
	}
	h.closed = true
	if h.fd >= 0 {
		unix.Close(h.fd)
		h.fd = -1
	}
	if h.r.byKey[h.key] == h {
		delete(h.r.byKey, h.key)
	}
	if h.index != 0 && h.r.byIndex[h.index] == h {
		delete(h.r.byIndex, h.index)
	}
}
