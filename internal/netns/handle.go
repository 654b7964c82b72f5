package netns

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// Handle is one namespace that a [Reader] counts.
type Handle struct {
	r         *Reader
	key       uint64 // inode of net/dev: one for each namespace, readable without a capability
	namespace uint64
	pid       int
	dir       string // of the process in proc
	name      string // the uplink's name inside
	several   bool   // there are other interfaces beside it
	peer      int32  // the uplink's index inside; 0 when not known
	fd        int    // of net/dev inside, which keeps the namespace alive; -1 when closed

	index atomic.Int32 // of the uplink's end on our side; 0 when there is none
	news  bool         // a refresh has read it since the last Read

	receive, transmit uint64 // bytes, as the container sees them
	gone              bool
	closed            bool
}

// Read sets the bytes received and sent in s: as of the last [Reader.Refresh]
// when that has read them since the last Read, else as of now. It leaves the
// sample's time alone. When the uplink is no more it sets the last values seen
// and returns [cimeter.ErrGone].
func (h *Handle) Read(s *cimeter.Sample) error {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	if !h.news {
		return h.readNow(s)
	}
	h.news = false
	h.give(s)
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
	h.give(s)
	return err
}

func (h *Handle) give(s *cimeter.Sample) {
	s.SetCounter(cimeter.NetworkReceiveBytes, h.receive)
	s.SetCounter(cimeter.NetworkTransmitBytes, h.transmit)
}

// set takes new values. A dump that was on its way may be older than what a
// read from proc has shown.
func (h *Handle) set(receive, transmit uint64) {
	h.receive, h.transmit = max(h.receive, receive), max(h.transmit, transmit)
}

// fetch reads the counters from proc.
func (h *Handle) fetch() error {
	if h.gone || h.closed {
		return h.errGone()
	}
	receive, transmit, ok, err := h.r.readDevice(h.fd, h.name)
	if err != nil {
		return fmt.Errorf("read network device %s: %w", h.name, err)
	}
	if !ok {
		h.gone, h.r.left = true, true
		return h.errGone()
	}
	h.set(receive, transmit)
	return nil
}

func (h *Handle) errGone() error {
	return fmt.Errorf("read network device %s: %w", h.name, cimeter.ErrGone)
}

// Namespace returns what tells this network namespace from every other that
// lives now: the inode of /proc/PID/ns/net, or, where that may not be read, of
// /proc/PID/net/dev, which the kernel takes from the same numbers.
func (h *Handle) Namespace() uint64 { return h.namespace }

// Source returns how the handle is read between its beginning and its end:
// "netlink" or "proc".
func (h *Handle) Source() string {
	if h.index.Load() != 0 {
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
	h.closed, h.r.left = true, true
	unix.Close(h.fd)
	h.fd = -1
	if h.r.byKey[h.key] == h {
		delete(h.r.byKey, h.key)
	}
}
