package netns

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

const (
	// chunk is what one read of a dump may give: the kernel fills at most 32
	// KiB at a time (netlink_dump in net/netlink/af_netlink.c).
	chunk = 32 << 10
	// maxLinks bounds the list of links: four times the ports that a bridge
	// of Linux may have, and more than a machine can run containers.
	maxLinks = 4096
	// replySeconds bounds the wait for the kernel, which answers at once.
	replySeconds = 5
	// skipStats is RTEXT_FILTER_SKIP_STATS: links without their statistics.
	skipStats = 1 << 3
	// linkStats is IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64).
	linkStats = 1 << (unix.IFLA_STATS_LINK_64 - 1)
)

// conn is an rtnetlink socket of the namespace of the thread that made it. It
// has one request on its way at a time.
type conn struct {
	fd       int
	sequence uint32
	request  [64]byte
	buf      []byte
	unread   []byte
	dumping  bool
}

func dial() (*conn, error) {
	c := &conn{fd: -1, buf: make([]byte, chunk)}
	if err := c.open(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *conn) open() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open rtnetlink socket: %w", err)
	}
	// Connected to the kernel (port 0), the socket takes messages from nobody else.
	if err := unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return fmt.Errorf("connect rtnetlink socket: %w", err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: replySeconds}); err != nil {
		unix.Close(fd)
		return fmt.Errorf("set timeout of rtnetlink socket: %w", err)
	}
	c.fd, c.unread, c.dumping = fd, nil, false
	return nil
}

func (c *conn) close() {
	if c.fd >= 0 {
		unix.Close(c.fd)
		c.fd = -1
	}
}

// reset forgets a dump that was not read to its end. A socket can only have one.
func (c *conn) reset() {
	if c.dumping {
		c.close()
		c.dumping = false
	}
}

// send sends a request of the given kind whose fixed part has n bytes, filled
// by the caller into c.request behind the header, attributes included.
func (c *conn) send(kind, flags uint16, n int) error {
	c.reset()
	if c.fd < 0 {
		if err := c.open(); err != nil {
			return err
		}
	}
	c.sequence++
	b := c.request[:headerLen+n]
	order.PutUint32(b, uint32(len(b)))
	order.PutUint16(b[4:], kind)
	order.PutUint16(b[6:], flags|unix.NLM_F_REQUEST)
	order.PutUint32(b[8:], c.sequence)
	order.PutUint32(b[12:], 0)
	c.unread = nil
	c.dumping = flags&unix.NLM_F_DUMP != 0
	for {
		_, err := unix.Write(c.fd, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("send rtnetlink request: %w", err)
		}
		return nil
	}
}

// body clears and returns n bytes of the request behind the header.
func (c *conn) body(n int) []byte {
	b := c.request[headerLen : headerLen+n]
	clear(b)
	return b
}

// next returns the next message of the answer; more is false at the end of a
// dump. The message is valid until the next call.
func (c *conn) next() (m message, more bool, err error) {
	for {
		for len(c.unread) == 0 {
			n, err := unix.Read(c.fd, c.buf)
			if err == unix.EINTR {
				continue
			}
			if err == unix.EAGAIN {
				return message{}, false, fmt.Errorf("rtnetlink did not answer within %d s: %w", replySeconds, cimeter.ErrUnavailable)
			}
			if err != nil {
				return message{}, false, fmt.Errorf("receive from rtnetlink: %w", err)
			}
			if n == 0 {
				return message{}, false, errMessage
			}
			c.unread = c.buf[:n]
		}
		if m, c.unread, err = split(c.unread); err != nil {
			return message{}, false, err
		}
		if m.sequence != c.sequence {
			continue
		}
		switch m.kind {
		case unix.NLMSG_NOOP:
			continue
		case unix.NLMSG_ERROR, unix.NLMSG_DONE:
			c.dumping = false
			return message{}, false, m.failure()
		}
		return m, true, nil
	}
}

// one returns the single message of kind that answers a request.
func (c *conn) one(kind uint16) (message, error) {
	m, more, err := c.next()
	if err != nil {
		return message{}, err
	}
	if !more || m.kind != kind {
		return message{}, errMessage
	}
	return m, nil
}

// dumpStats asks for the counters of every interface.
func (c *conn) dumpStats() error {
	order.PutUint32(c.body(statsBodyLen)[8:], linkStats)
	return c.send(unix.RTM_GETSTATS, unix.NLM_F_DUMP, statsBodyLen)
}

// stats reads the counters of one interface; ENODEV when it is no more.
func (c *conn) stats(index int32) (stats, error) {
	b := c.body(statsBodyLen)
	order.PutUint32(b[4:], uint32(index))
	order.PutUint32(b[8:], linkStats)
	if err := c.send(unix.RTM_GETSTATS, 0, statsBodyLen); err != nil {
		return stats{}, err
	}
	m, err := c.one(unix.RTM_NEWSTATS)
	if err != nil {
		return stats{}, err
	}
	s, err := parseStats(m.body)
	if err == nil && (!s.known || s.index != index) {
		err = errMessage
	}
	return s, err
}

func (c *conn) askLink(index int32, flags uint16) error {
	const n = linkBodyLen + attrLen + 4
	b := c.body(n)
	order.PutUint32(b[4:], uint32(index))
	order.PutUint16(b[linkBodyLen:], attrLen+4)
	order.PutUint16(b[linkBodyLen+2:], unix.IFLA_EXT_MASK)
	order.PutUint32(b[linkBodyLen+attrLen:], skipStats)
	return c.send(unix.RTM_GETLINK, flags, n)
}

// link reads what interface index is now; ENODEV when it is no more. The zero
// link stands for one that is no veth into another namespace.
func (c *conn) link(index int32) (link, error) {
	if err := c.askLink(index, 0); err != nil {
		return link{}, err
	}
	m, err := c.one(unix.RTM_NEWLINK)
	if err != nil {
		return link{}, err
	}
	l, ok, err := parseLink(m.body)
	if err != nil || !ok {
		return link{}, err
	}
	return l, nil
}

// links appends all veths into other namespaces to dst.
func (c *conn) links(dst []link) ([]link, error) {
	err := c.askLink(0, unix.NLM_F_DUMP)
	for err == nil {
		var m message
		var more bool
		if m, more, err = c.next(); err != nil || !more {
			break
		}
		if m.kind != unix.RTM_NEWLINK {
			continue
		}
		var l link
		var ok bool
		if l, ok, err = parseLink(m.body); ok && len(dst) < maxLinks {
			dst = append(dst, l)
		}
	}
	if err != nil {
		c.reset()
		return dst[:0], fmt.Errorf("dump links: %w", err)
	}
	return dst, nil
}

// nsid returns our id of the namespace that attribute kind with value names: a
// process (NETNSA_PID) or an open descriptor (NETNSA_FD). It needs no capability.
func (c *conn) nsid(kind uint16, value uint32) (int32, error) {
	const n = nsidBodyLen + attrLen + 4
	b := c.body(n)
	order.PutUint16(b[nsidBodyLen:], attrLen+4)
	order.PutUint16(b[nsidBodyLen+2:], kind)
	order.PutUint32(b[nsidBodyLen+attrLen:], value)
	if err := c.send(unix.RTM_GETNSID, 0, n); err != nil {
		return noNSID, err
	}
	m, err := c.one(unix.RTM_NEWNSID)
	if err != nil {
		return noNSID, err
	}
	return parseNSID(m.body)
}

// nsid returns our id of the process's namespace; noNSID when it has none, or
// when its pid means another process to the kernel than in proc and its
// namespace may not be opened either.
func (r *Reader) nsid(pid int, dir string) (int32, error) {
	if r.samePID {
		id, err := r.nl.nsid(unix.NETNSA_PID, uint32(pid))
		if errors.Is(err, unix.EOPNOTSUPP) {
			return noNSID, nil
		}
		return id, err
	}
	fd, err := open(dir + "/ns/net")
	if err != nil {
		return noNSID, nil
	}
	defer unix.Close(fd)
	id, err := r.nl.nsid(unix.NETNSA_FD, uint32(fd))
	if errors.Is(err, unix.EOPNOTSUPP) {
		return noNSID, nil
	}
	return id, err
}

// sameProcesses reports whether proc shows the pid namespace that we live in.
func sameProcesses(proc string) bool {
	self, err := os.Readlink(proc + "/self")
	return err == nil && self == strconv.Itoa(os.Getpid())
}
