// Package netns reads the network counters of a segment by its network
// namespace: the bytes that crossed the namespace's uplink.
//
// It owns one rtnetlink socket and, for each namespace that is attached, an open
// descriptor of its /proc/PID/net/dev and the knowledge of where its uplink is
// counted on our side. A container's uplink is one end of a veth pair whose
// other end lies in the agent's own namespace, so one RTM_GETSTATS dump of that
// namespace ([Reader.Refresh]) counts for all of them. What has no such end
// (macvlan, ipvlan, slirp, an agent in a namespace of its own) is read from the
// descriptor, one pread a handle, and so is the end of every segment.
//
// The dump takes the kernel's rtnl lock, which a runtime that makes or removes
// networks holds for tens of milliseconds: Refresh is for a goroutine that may
// wait. Nothing else here ever waits for it.
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
// Handles may be used from several goroutines.
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

	// mu guards the handles and buf. It is never held over a netlink request.
	mu    sync.Mutex
	byKey map[uint64]*Handle
	fresh []*Handle // whose ends on our side were not looked for
	left  bool      // some handles closed or lost their uplink since a refresh
	buf   []byte    // scratch for proc files

	// socket is held by Refresh and guards what follows. It is taken before mu.
	socket  sync.Mutex
	nl      *conn // nil: no usable rtnetlink
	links   []link
	byIndex map[int32]*Handle // by the interface on our side
	waiting []*Handle         // scratch
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
// and closes the handle when the segment is over: it keeps the namespace alive.
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
	if owner := r.byKey[key]; owner != nil && !owner.gone {
		return nil, ErrShared // its descriptor keeps namespace and number
	}
	fd, err := open(dir + "/net/dev")
	if err != nil {
		return nil, err
	}
	h := &Handle{r: r, key: key, namespace: key, pid: pid, dir: dir, fd: fd}
	if ino, err := inode(dir + "/ns/net"); err == nil {
		h.namespace = ino
	}
	if err := r.choose(h); err != nil {
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
	r.byKey[key] = h
	r.fresh = append(r.fresh, h)
	return h, nil
}

// choose sets h's uplink and its first values.
func (r *Reader) choose(h *Handle) error {
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
	if text, err := r.read(h.dir + "/net/route"); err == nil {
		gateway = defaultRoute(text)
	}
	if gateway == "" {
		if text, err := r.read(h.dir + "/net/ipv6_route"); err == nil {
			gateway = defaultRoute6(text)
		}
	}
	up, ok := uplink(devices, gateway)
	if !ok {
		return ErrNotReady
	}
	h.name, h.receive, h.transmit = up.name, up.receive, up.transmit
	if len(devices) > 1 {
		h.several = true
		h.peer = r.indexOf(h.dir, up.name)
	}
	return nil
}

// Close closes the Reader and what its handles keep open. Handles must not be
// read afterwards; closing them does no harm.
func (r *Reader) Close() {
	r.socket.Lock()
	defer r.socket.Unlock()
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
