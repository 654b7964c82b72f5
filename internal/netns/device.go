package netns

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// maxFile bounds what is read of one file of /proc/PID/net: a thousand
// interfaces or ten thousand routes.
const maxFile = 1 << 20

// device is a line of /proc/PID/net/dev.
type device struct {
	name              string
	receive, transmit uint64 // bytes
}

// appendDevices appends the interfaces in text but lo. The file, since Linux
// 2.2:
//
//	Inter-|   Receive                                                |  Transmit
//	 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
//	    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
//	  eth0: 1302394     988    0    0    0     0          0         0   345645     877    0    0    0     0       0          0
func appendDevices(dst []device, text []byte) ([]device, error) {
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte("\n"))
		name, rest, ok := cutDevice(line)
		if !ok || string(name) == "lo" {
			continue
		}
		receive, transmit, ok := deviceBytes(rest)
		if !ok {
			return nil, fmt.Errorf("line of %q in net/dev: want 16 numbers: %w", name, cimeter.ErrInvalid)
		}
		dst = append(dst, device{name: string(name), receive: receive, transmit: transmit})
	}
	return dst, nil
}

// findDevice returns the counters of the interface name in the whole lines of
// text; ok is false when it is not there or its line is malformed.
func findDevice(text []byte, name string) (receive, transmit uint64, ok bool) {
	for {
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			return 0, 0, false
		}
		if found, rest, ok := cutDevice(text[:end]); ok && string(found) == name {
			return deviceBytes(rest)
		}
		text = text[end+1:]
	}
}

// cutDevice splits a line at its last colon: old kernels list aliases as eth0:1.
func cutDevice(line []byte) (name, rest []byte, ok bool) {
	i := bytes.LastIndexByte(line, ':')
	if i < 0 {
		return nil, nil, false
	}
	name = bytes.TrimSpace(line[:i])
	return name, line[i+1:], len(name) > 0
}

// deviceBytes returns the first and the ninth number of b.
func deviceBytes(b []byte) (receive, transmit uint64, ok bool) {
	for i := range 9 {
		var v uint64
		if v, b, ok = number(b); !ok {
			return 0, 0, false
		}
		if i == 0 {
			receive = v
		}
		transmit = v
	}
	return receive, transmit, true
}

// number takes a decimal number off b.
func number(b []byte) (v uint64, rest []byte, ok bool) {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	i := 0
	for ; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
		d := uint64(b[i] - '0')
		if v > (1<<64-1-d)/10 {
			return 0, nil, false
		}
		v = v*10 + d
	}
	return v, b[i:], i > 0
}

// uplink picks the interface by which the namespace reaches the outside: that
// of the default route, else the first that is not of an inner network.
func uplink(devices []device, gateway string) (device, bool) {
	var first, routed *device
	for i := range devices {
		d := &devices[i]
		if d.name == gateway {
			routed = d
		}
		if first == nil && !inner(d.name) {
			first = d
		}
	}
	switch {
	case routed != nil && (first == nil || !inner(routed.name)):
		return *routed, true
	case first != nil:
		return *first, true
	}
	return device{}, false
}

// inner reports whether an interface of that name is by its maker's habit the
// inside of a network within the namespace: bridges and veths of a Docker or
// podman inside and tunnels, which carry again what the uplink carries; devices
// that a kernel makes in every namespace (tunl0, sit0 ...) and that are down. An
// end of a veth pair has such a name too before the runtime gives it its own.
func inner(name string) bool {
	for _, p := range [...]string{"docker", "br-", "veth", "virbr", "cni", "flannel", "podman", "cali", "dummy", "ifb",
		"tun", "tap", "wg", "tailscale", "gre", "erspan", "ip_vti", "ip6_vti", "sit", "ip6tnl", "ip6gre", "nerdctl", "lxc", "cilium"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return name == "lo"
}

// indexOf returns the index inside of the interface name; 0 when no file tells.
// There is no file for it, but lists of addresses name both.
func (r *Reader) indexOf(dir, name string) int32 {
	if text, err := r.read(dir + "/net/dev_mcast"); err == nil {
		if i := indexIn(text, name, 0, 1, 10); i != 0 {
			return i
		}
	}
	if text, err := r.read(dir + "/net/igmp"); err == nil {
		if i := indexIn(text, name, 0, 1, 10); i != 0 {
			return i
		}
	}
	if text, err := r.read(dir + "/net/if_inet6"); err == nil {
		return indexIn(text, name, 1, 5, 16)
	}
	return 0
}

// indexIn finds the line whose column nameColumn is name, a colon behind it or
// not, and returns the number in its column indexColumn. The files:
//
//	dev_mcast: 4    eth0            1     0     01005e000001
//	igmp:      4	eth0      :     1      V3
//	if_inet6:  fd000000000000000000000000000002 04 80 00 80     eth0
func indexIn(text []byte, name string, indexColumn, nameColumn, base int) int32 {
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) <= max(indexColumn, nameColumn) || strings.TrimSuffix(f[nameColumn], ":") != name {
			continue
		}
		if i, err := strconv.ParseInt(f[indexColumn], base, 32); err == nil && i > 0 {
			return int32(i)
		}
	}
	return 0
}

const (
	routeUp     = 0x1   // RTF_UP
	routeReject = 0x200 // RTF_REJECT
)

// defaultRoute returns the interface of the default route with the lowest
// metric in /proc/PID/net/route; "" for none:
//
//	Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
//	eth0	00000000	010011AC	0003	0	0	0	00000000	0	0	0
func defaultRoute(text []byte) string {
	best, metric := "", uint64(0)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 8 || f[1] != "00000000" || f[7] != "00000000" {
			continue
		}
		flags, err := strconv.ParseUint(f[3], 16, 32)
		m, err2 := strconv.ParseUint(f[6], 10, 32)
		if err != nil || err2 != nil || flags&routeUp == 0 || flags&routeReject != 0 || f[0] == "*" {
			continue
		}
		if best == "" || m < metric {
			best, metric = f[0], m
		}
	}
	return best
}

// defaultRoute6 is defaultRoute for /proc/PID/net/ipv6_route: destination,
// length, source, length, gateway, metric, uses, use, flags (all hexadecimal),
// interface.
func defaultRoute6(text []byte) string {
	best, metric := "", uint64(0)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 10 || f[1] != "00" || strings.Trim(f[0], "0") != "" || f[9] == "lo" {
			continue
		}
		flags, err := strconv.ParseUint(f[8], 16, 32)
		m, err2 := strconv.ParseUint(f[5], 16, 32)
		if err != nil || err2 != nil || flags&routeUp == 0 || flags&routeReject != 0 {
			continue
		}
		if best == "" || m < metric {
			best, metric = f[9], m
		}
	}
	return best
}

// readDevice reads the counters of one interface from an open net/dev; ok is
// false when it is not there. It stops where it found the interface: the kernel
// gives about a page at a time.
func (r *Reader) readDevice(fd int, name string) (receive, transmit uint64, ok bool, err error) {
	n := 0
	for {
		got, err := r.more(fd, n)
		if err != nil || got == 0 {
			return 0, 0, false, err
		}
		n += got
		if receive, transmit, ok := findDevice(r.buf[:n], name); ok {
			return receive, transmit, true, nil
		}
	}
}

// slurp reads a file whole; valid until the next read.
func (r *Reader) slurp(fd int) ([]byte, error) {
	n := 0
	for {
		got, err := r.more(fd, n)
		if err != nil {
			return nil, err
		}
		if got == 0 {
			return r.buf[:n], nil
		}
		n += got
	}
}

// more reads on at offset n into the buffer, which it enlarges as needed.
func (r *Reader) more(fd, n int) (int, error) {
	if n == len(r.buf) {
		if n >= maxFile {
			return 0, nil
		}
		r.buf = append(r.buf, make([]byte, len(r.buf))...)
	}
	for {
		got, err := unix.Pread(fd, r.buf[n:], int64(n))
		if err != unix.EINTR {
			return got, err
		}
	}
}

func (r *Reader) read(path string) ([]byte, error) {
	fd, err := open(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return r.slurp(fd)
}

func open(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// inode returns the inode number of what path leads to.
func inode(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, err
	}
	return st.Ino, nil
}
