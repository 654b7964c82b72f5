// Package netns reads the network counters of a segment by its network
// namespace: the bytes that crossed the namespace's uplink.
//
// It owns one rtnetlink socket and, for each namespace that is attached, the
// knowledge of where its uplink is counted. A container's uplink is one end of
// a veth pair whose other end lies in the agent's own namespace, so one
// RTM_GETSTATS dump of that namespace ([Reader.Refresh]) counts for all of them.
// What has no such end (macvlan, ipvlan, slirp, an agent in a namespace of its
// own) is read from a descriptor of /proc/PID/net/dev that is kept open, one
// pread a handle.
//
// What is counted: every byte of every frame that the uplink sent or received
// at the link layer, as the kernel counts it (rtnl_link_stats64 rx_bytes and
// tx_bytes): Ethernet header included, frame check sequence not; ARP, IPv6
// neighbour discovery, multicast listener reports and broadcasts of the bridge
// like any other packet. A segment that the sender's kernel leaves to be cut by
// the card (TSO, GSO) counts as one frame with one header. What stays inside
// the namespace (lo, an inner docker0 and its veths) is not counted, and
// neither is the traffic of a second uplink without a default route. The uplink
// is chosen when a namespace is attached and stays.
//
// It never enters another namespace, needs no capability, starts no goroutine,
// logs nothing, and makes one try. Entry point: [Open]. A Reader and its
// Handles may be used from several goroutines; one lock orders them.
package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// What Attach may find instead of a namespace to meter.
var (
	// ErrHost says that the process lives in the machine's own network
	// namespace (or the agent's), whose traffic belongs to no build. It is
	// the truth of the moment: a runtime's helper that has yet to make the
	// container's namespace is there too.
	ErrHost = errors.New("host network")
	// ErrNotReady says that the namespace has no uplink yet. Try again: the
	// runtime moves one in after it has made the namespace. A container
	// without a network never gets one.
	ErrNotReady = errors.New("no uplink yet")
	// ErrShared says that an open handle counts this namespace already: its
	// traffic cannot be split between those who share it.
	ErrShared = errors.New("network namespace is counted by another handle")
)

// Options say where to read.
type Options struct {
	// Proc is where the proc file system that shows the processes to attach
	// is mounted; "" is /proc.
	Proc string
}

// Reader reads the counters of the namespaces attached to it.
type Reader struct {
	proc    string
	own     uint64 // namespace of the agent; 0 when not known
	first   uint64 // namespace of pid 1; 0 when not known
	samePID bool   // proc's pids are the ones that our system calls use

	mu    sync.Mutex
	nl    *conn // nil: no usable rtnetlink
	links []link
	round uint64
	// handles by the namespace's key and, for those read by netlink that
	// still exist, by the index of the interface on our side.
	byKey   map[uint64]*Handle
	byIndex map[int32]*Handle
	buf     []byte // scratch for proc files
}

// Open readies a Reader. Where rtnetlink is missing or too old for RTM_GETSTATS
// (Linux 4.7) everything is read from proc instead. It fails with
// [cimeter.ErrNotFound] when Proc is no directory of processes.
func Open(o Options) (*Reader, error) {
	r := &Reader{
		proc:    o.Proc,
		byKey:   make(map[uint64]*Handle),
		byIndex: make(map[int32]*Handle),
		buf:     make([]byte, 16<<10),
	}
	if r.proc == "" {
		r.proc = "/proc"
	}
	var st unix.Stat_t
	if err := unix.Stat(r.proc, &st); err != nil {
		return nil, fmt.Errorf("open network reader: stat %s: %w (%v)", r.proc, cimeter.ErrNotFound, err)
	}
	// thread-self and not self: it is the thread's namespace that the socket
	// below belongs to.
	r.own, _ = inode(r.proc + "/thread-self/net/dev")
	r.first, _ = inode(r.proc + "/1/net/dev")
	r.samePID = sameProcesses(r.proc)

	nl, err := dial()
	if err != nil {
		return r, nil
	}
	if _, err := nl.stats(loopback); err != nil {
		nl.close()
		return r, nil
	}
	r.nl = nl
	return r, nil
}

// loopback is the index of lo in every namespace.
const loopback = 1

// Attach finds the uplink of the network namespace that process pid lives in.
// It fails with [ErrHost], [ErrNotReady], [ErrShared], with [cimeter.ErrGone]
// when there is no such process, and with [cimeter.ErrUnauthorized] when its
// proc files are hidden from us. The caller guards against reuse of the pid,
// and closes the handle when the segment is over.
//
// Counters of a handle are those of the namespace's uplink since it was made.
// A handle that is attached after the one that counted the namespace was closed
// goes on where that one ended: its first sample is its zero.
func (r *Reader) Attach(pid int) (*Handle, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, err := r.attach(pid)
	if err != nil {
		return nil, fmt.Errorf("attach network of pid %d: %w", pid, kind(err))
	}
	return h, nil
}

func (r *Reader) attach(pid int) (*Handle, error) {
	dir := r.proc + "/" + strconv.Itoa(pid)
	key, err := inode(dir + "/net/dev")
	if err != nil {
		return nil, err
	}
	if key == r.own || key == r.first {
		return nil, ErrHost
	}
	if owner := r.byKey[key]; owner != nil && r.counts(owner) {
		return nil, ErrShared
	}

	fd, err := open(dir + "/net/dev")
	if err != nil {
		return nil, err
	}
	h := &Handle{r: r, key: key, namespace: key, fd: fd, index: 0}
	if ino, err := inode(dir + "/ns/net"); err == nil {
		h.namespace = ino
	}
	if err := r.locate(h, pid, dir); err != nil {
		unix.Close(fd)
		return nil, err
	}
	// The process may have changed its namespace meanwhile, or another may
	// have taken its pid.
	if again, err := inode(dir + "/net/dev"); err != nil || again != key {
		unix.Close(fd)
		if err == nil {
			err = ErrNotReady
		}
		return nil, err
	}
	if h.index != 0 {
		unix.Close(h.fd) // would keep the namespace alive
		h.fd = -1
		if r.byIndex[h.index] != nil {
			return nil, ErrShared
		}
		r.byIndex[h.index] = h
	}
	r.byKey[key] = h
	return h, nil
}

// locate sets where h's uplink is counted and its first values.
func (r *Reader) locate(h *Handle, pid int, dir string) error {
	text, err := r.slurp(h.fd)
	if err != nil {
		return err
	}
	devices, err := appendDevices(nil, text)
	if err != nil {
		return err
	}
	if len(devices) == 0 {
		return ErrNotReady
	}
	var gateway string // the default route's interface
	if text, err := r.read(dir + "/net/route"); err == nil {
		gateway = defaultRoute(text)
	}
	if gateway == "" {
		if text, err := r.read(dir + "/net/ipv6_route"); err == nil {
			gateway = defaultRoute6(text)
		}
	}
	up, ok := uplink(devices, gateway)
	if !ok {
		return ErrNotReady
	}
	h.name, h.receive, h.transmit = up.name, up.receive, up.transmit
	if r.nl == nil {
		return nil
	}
	peer := int32(0)
	if len(devices) > 1 {
		if peer = r.indexOf(dir, up.name); peer == 0 {
			return nil
		}
	}
	l, found, err := r.hostEnd(pid, dir, peer)
	if err != nil || !found {
		return err
	}
	same, err := r.verify(h, l)
	if err != nil {
		return err
	}
	if same {
		h.index, h.nsid = l.index, l.nsid
	}
	return nil
}

// hostEnd finds the interface of our namespace whose other end is interface
// peer (0: the only one there is) of the process's namespace.
func (r *Reader) hostEnd(pid int, dir string, peer int32) (l link, found bool, err error) {
	// The list of links is asked for only when the last one does not know the
	// namespace: with hundreds of containers it is the dearest part.
	for fresh := false; ; fresh = true {
		if fresh {
			// The dump gives every namespace at the other end of a veth an
			// id, so the id is asked for after it.
			if r.links, err = r.nl.links(r.links[:0]); err != nil {
				return link{}, false, err
			}
		}
		nsid, err := r.nsid(pid, dir)
		if err != nil {
			return link{}, false, err
		}
		if nsid != noNSID {
			if l, ok := pick(r.links, nsid, peer); ok {
				now, err := r.nl.link(l.index)
				if err == nil && now == l {
					return l, true, nil
				}
				if err != nil && !errors.Is(err, unix.ENODEV) {
					return link{}, false, err
				}
			}
		}
		if fresh {
			return link{}, false, nil
		}
	}
}

// pick returns the link to interface peer of namespace nsid; peer 0 is any, if
// there is one only.
func pick(links []link, nsid, peer int32) (l link, ok bool) {
	for _, c := range links {
		if c.nsid != nsid || peer != 0 && c.peer != peer {
			continue
		}
		if ok {
			return link{}, false
		}
		l, ok = c, true
	}
	return l, ok
}

// verify reports whether l counts what h's uplink counts: a reading of the
// uplink lies between two of l. Both ends of a veth show the same two counters.
func (r *Reader) verify(h *Handle, l link) (bool, error) {
	before, err := r.nl.stats(l.index)
	if err != nil {
		return false, ignoreNoDevice(err)
	}
	receive, transmit, ok, err := r.readDevice(h.fd, h.name)
	if err != nil || !ok {
		return false, err
	}
	after, err := r.nl.stats(l.index)
	if err != nil {
		return false, ignoreNoDevice(err)
	}
	h.receive, h.transmit = receive, transmit
	return before.transmit <= receive && receive <= after.transmit &&
		before.receive <= transmit && transmit <= after.receive, nil
}

func ignoreNoDevice(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// counts reports whether owner, which has the key of a namespace that lives,
// counts that namespace still. The kernel gives the number of a dead namespace
// again, but a dead one has no end of a veth: if owner's link leads where it led,
// the namespace is owner's.
func (r *Reader) counts(owner *Handle) bool {
	if owner.gone {
		return false
	}
	if owner.fd >= 0 {
		return true // the descriptor keeps namespace and number
	}
	l, err := r.nl.link(owner.index)
	if err != nil {
		return !errors.Is(err, unix.ENODEV)
	}
	return l.nsid == owner.nsid
}

// Refresh reads the counters of all handles that are counted on our side with
// one dump of RTM_GETSTATS (IFLA_STATS_LINK_64; uapi linux/if_link.h). With no
// such handle it does nothing. After an error the handles keep their last
// values.
func (r *Reader) Refresh() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.byIndex) == 0 {
		return nil
	}
	r.round++
	seen := 0
	err := r.nl.dumpStats()
	for err == nil {
		var m message
		var more bool
		if m, more, err = r.nl.next(); err != nil || !more {
			break
		}
		if m.kind != unix.RTM_NEWSTATS {
			continue
		}
		var s stats
		if s, err = parseStats(m.body); err != nil {
			break
		}
		h := r.byIndex[s.index]
		if h == nil || !s.known {
			continue
		}
		if h.round != r.round {
			h.round = r.round
			seen++
		}
		h.receive, h.transmit = s.transmit, s.receive
	}
	if err != nil {
		r.nl.reset()
		return fmt.Errorf("dump link statistics: %w", err)
	}
	if seen == len(r.byIndex) {
		return nil
	}
	// A dump that links come and go under may miss one that is there.
	for _, h := range r.byIndex {
		if h.round != r.round {
			if err := h.fetch(); err != nil && !errors.Is(err, cimeter.ErrGone) {
				return err
			}
		}
	}
	return nil
}

// Close closes the Reader and what its handles keep open. Handles must not be
// read afterwards; closing them does no harm.
func (r *Reader) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.byKey {
		h.release()
	}
	if r.nl != nil {
		r.nl.close()
		r.nl = nil
	}
}

// kind gives err the root package's error that says what it means, if any.
func kind(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
		return fmt.Errorf("%w (%v)", cimeter.ErrGone, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w (%v)", cimeter.ErrUnauthorized, err)
	}
	return err
}
