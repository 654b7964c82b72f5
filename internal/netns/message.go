package netns

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Messages of rtnetlink (rtnetlink(7), uapi linux/netlink.h and
// linux/rtnetlink.h): a header of 16 bytes (length with header, kind, flags,
// sequence, port), a fixed part that depends on the kind, then attributes (length
// with header, type, value), each at a multiple of 4, in the byte order of the
// machine.

var order = binary.NativeEndian

const (
	headerLen    = 16
	attrLen      = 4
	linkBodyLen  = 16 // struct ifinfomsg
	statsBodyLen = 12 // struct if_stats_msg
	nsidBodyLen  = 4  // struct rtgenmsg, padded
)

// errMessage says that the bytes are no netlink messages.
var errMessage = errors.New("malformed netlink message")

// message is one netlink message; body aliases the buffer it was read into.
type message struct {
	kind     uint16
	flags    uint16
	sequence uint32
	body     []byte
}

// split takes the first message off b.
func split(b []byte) (m message, rest []byte, err error) {
	if len(b) < headerLen {
		return message{}, nil, errMessage
	}
	n := uint64(order.Uint32(b))
	if n < headerLen || n > uint64(len(b)) {
		return message{}, nil, errMessage
	}
	m = message{
		kind:     order.Uint16(b[4:]),
		flags:    order.Uint16(b[6:]),
		sequence: order.Uint32(b[8:]),
		body:     b[headerLen:n:n],
	}
	return m, b[min(align(int(n)), len(b)):], nil
}

// failure returns the error that an NLMSG_ERROR or NLMSG_DONE message carries;
// nil for none.
func (m message) failure() error {
	if len(m.body) < 4 {
		if m.kind == unix.NLMSG_DONE {
			return nil
		}
		return errMessage
	}
	if code := int32(order.Uint32(m.body)); code < 0 {
		return unix.Errno(-code)
	}
	return nil
}

// attribute takes the first attribute off b; ok is false when b is used up.
func attribute(b []byte) (kind uint16, value, rest []byte, ok bool, err error) {
	if len(b) < attrLen {
		return 0, nil, nil, false, nil // padding
	}
	n := int(order.Uint16(b))
	if n < attrLen || n > len(b) {
		return 0, nil, nil, false, errMessage
	}
	kind = order.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	return kind, b[attrLen:n:n], b[min(align(n), len(b)):], true, nil
}

func align(n int) int { return (n + 3) &^ 3 }

// link is an interface of our namespace that is one end of a veth pair whose
// other end is in another.
type link struct {
	index int32 // ours
	peer  int32 // of the other end, in its namespace (IFLA_LINK)
	nsid  int32 // our id of its namespace (IFLA_LINK_NETNSID)
}

// noNSID is NETNSA_NSID_NOT_ASSIGNED.
const noNSID = -1

// parseLink reads the body of an RTM_NEWLINK message. ok is false for what is
// not a link as above.
func parseLink(b []byte) (l link, ok bool, err error) {
	if len(b) < linkBodyLen {
		return link{}, false, errMessage
	}
	l = link{index: int32(order.Uint32(b[4:])), nsid: noNSID}
	veth := false
	for b = b[linkBodyLen:]; ; {
		kind, value, rest, more, err := attribute(b)
		if err != nil {
			return link{}, false, err
		}
		if !more {
			break
		}
		switch b = rest; kind {
		case unix.IFLA_LINK:
			l.peer, err = int32Of(value)
		case unix.IFLA_LINK_NETNSID:
			l.nsid, err = int32Of(value)
		case unix.IFLA_LINKINFO:
			veth, err = isVeth(value)
		}
		if err != nil {
			return link{}, false, err
		}
	}
	if !veth || l.index <= 0 || l.peer <= 0 || l.nsid < 0 {
		return link{}, false, nil
	}
	return l, true, nil
}

// isVeth reads the attributes within IFLA_LINKINFO.
func isVeth(b []byte) (bool, error) {
	for {
		kind, value, rest, more, err := attribute(b)
		if err != nil || !more {
			return false, err
		}
		if b = rest; kind == unix.IFLA_INFO_KIND {
			return string(value) == "veth" || string(value) == "veth\x00", nil
		}
	}
}

func int32Of(b []byte) (int32, error) {
	if len(b) != 4 {
		return 0, errMessage
	}
	return int32(order.Uint32(b)), nil
}

// stats are the counters of one interface of our namespace, as that end sees
// them.
type stats struct {
	index             int32
	receive, transmit uint64 // bytes
	known             bool
}

// parseStats reads the body of an RTM_NEWSTATS message: struct if_stats_msg,
// then IFLA_STATS_LINK_64 holding struct rtnl_link_stats64, whose third and
// fourth members are rx_bytes and tx_bytes.
func parseStats(b []byte) (stats, error) {
	if len(b) < statsBodyLen {
		return stats{}, errMessage
	}
	s := stats{index: int32(order.Uint32(b[4:]))}
	for b = b[statsBodyLen:]; ; {
		kind, value, rest, more, err := attribute(b)
		if err != nil {
			return stats{}, err
		}
		if !more {
			return s, nil
		}
		if b = rest; kind != unix.IFLA_STATS_LINK_64 {
			continue
		}
		if len(value) < 32 {
			return stats{}, errMessage
		}
		s.receive, s.transmit = order.Uint64(value[16:]), order.Uint64(value[24:])
		s.known = true
	}
}

// parseNSID reads the body of an RTM_NEWNSID message; noNSID when the namespace
// has no id in ours.
func parseNSID(b []byte) (int32, error) {
	if len(b) < nsidBodyLen {
		return noNSID, errMessage
	}
	for b = b[nsidBodyLen:]; ; {
		kind, value, rest, more, err := attribute(b)
		if err != nil {
			return noNSID, err
		}
		if !more {
			return noNSID, fmt.Errorf("namespace id: %w", errMessage)
		}
		if b = rest; kind == unix.NETNSA_NSID {
			id, err := int32Of(value)
			if err != nil || id < 0 {
				return noNSID, err
			}
			return id, nil
		}
	}
}
