package netns

import (
	"errors"
	"math"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// attr is an attribute, padded.
func attr(kind uint16, value ...byte) []byte {
	b := order.AppendUint16(nil, uint16(attrLen+len(value)))
	b = order.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, align(len(b))-len(b))...)
}

func u32(v uint32) []byte { return order.AppendUint32(nil, v) }

// msg is a message, padded.
func msg(kind uint16, parts ...[]byte) []byte {
	body := slices.Concat(parts...)
	b := order.AppendUint32(nil, uint32(headerLen+len(body)))
	b = order.AppendUint16(b, kind)
	b = order.AppendUint16(b, 0)
	b = order.AppendUint32(b, 7)
	b = order.AppendUint32(b, 0)
	b = append(b, body...)
	return append(b, make([]byte, align(len(b))-len(b))...)
}

// linkBody is a struct ifinfomsg of interface index and attributes.
func linkBody(index uint32, attrs ...[]byte) []byte {
	b := make([]byte, linkBodyLen)
	order.PutUint32(b[4:], index)
	return append(b, slices.Concat(attrs...)...)
}

func statsBody(index uint32, attrs ...[]byte) []byte {
	b := make([]byte, statsBodyLen)
	order.PutUint32(b[4:], index)
	return append(b, slices.Concat(attrs...)...)
}

func counters(receive, transmit uint64) []byte {
	b := make([]byte, 24*8)
	order.PutUint64(b[16:], receive)
	order.PutUint64(b[24:], transmit)
	return attr(unix.IFLA_STATS_LINK_64, b...)
}

var (
	kindVeth   = attr(unix.IFLA_LINKINFO|unix.NLA_F_NESTED, slices.Concat(attr(unix.IFLA_INFO_KIND, []byte("veth\x00")...), attr(unix.IFLA_INFO_DATA))...)
	kindBridge = attr(unix.IFLA_LINKINFO, attr(unix.IFLA_INFO_KIND, []byte("bridge")...)...)
	ifname     = attr(unix.IFLA_IFNAME, []byte("vethab\x00")...)
)

func TestParseLink(t *testing.T) {
	got, ok, err := parseLink(linkBody(12, ifname, attr(unix.IFLA_LINK, u32(2)...), kindVeth, attr(unix.IFLA_LINK_NETNSID, u32(0)...)))
	if want := (link{index: 12, peer: 2, nsid: 0}); err != nil || !ok || got != want {
		t.Errorf("got %+v, %v, %v, want %+v", got, ok, err, want)
	}
	for name, body := range map[string][]byte{
		"a bridge":               linkBody(3, ifname, kindBridge),
		"a vlan of another":      linkBody(3, attr(unix.IFLA_LINK, u32(2)...), attr(unix.IFLA_LINK_NETNSID, u32(0)...)),
		"a pair within":          linkBody(3, kindVeth, attr(unix.IFLA_LINK, u32(4)...)),
		"a namespace without id": linkBody(3, kindVeth, attr(unix.IFLA_LINK, u32(4)...), attr(unix.IFLA_LINK_NETNSID, u32(math.MaxUint32)...)),
		"no attributes":          linkBody(3),
	} {
		if got, ok, err := parseLink(body); ok || err != nil {
			t.Errorf("%s: got %+v, %v, %v, want nothing", name, got, ok, err)
		}
	}
	for name, body := range map[string][]byte{
		"short":               make([]byte, linkBodyLen-1),
		"attribute too long":  linkBody(3, []byte{200, 0, 3, 0}),
		"attribute too short": linkBody(3, []byte{3, 0, 3, 0}),
		"link of 2 bytes":     linkBody(3, attr(unix.IFLA_LINK, 1, 2)),
		"nested too long":     linkBody(3, attr(unix.IFLA_LINKINFO, 200, 0, 1, 0)),
	} {
		if _, ok, err := parseLink(body); ok || !errors.Is(err, errMessage) {
			t.Errorf("%s: got %v, %v, want malformed", name, ok, err)
		}
	}
}

func TestParseStats(t *testing.T) {
	got, err := parseStats(statsBody(9, counters(1<<63, 5)))
	if want := (stats{index: 9, receive: 1 << 63, transmit: 5, known: true}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got, err := parseStats(statsBody(9)); err != nil || got.known {
		t.Errorf("no counters: got %+v, %v", got, err)
	}
	for name, body := range map[string][]byte{
		"short":          make([]byte, statsBodyLen-1),
		"short counters": statsBody(9, attr(unix.IFLA_STATS_LINK_64, make([]byte, 31)...)),
	} {
		if _, err := parseStats(body); !errors.Is(err, errMessage) {
			t.Errorf("%s: got %v, want malformed", name, err)
		}
	}
}

func TestParseNSID(t *testing.T) {
	for name, c := range map[string]struct {
		body []byte
		want int32
		bad  bool
	}{
		"an id":        {body: append(make([]byte, 4), attr(unix.NETNSA_NSID, u32(31)...)...), want: 31},
		"not assigned": {body: append(make([]byte, 4), attr(unix.NETNSA_NSID, u32(math.MaxUint32)...)...), want: noNSID},
		"none":         {body: make([]byte, 4), want: noNSID, bad: true},
		"short":        {body: make([]byte, 3), want: noNSID, bad: true},
		"of one byte":  {body: append(make([]byte, 4), attr(unix.NETNSA_NSID, 1)...), want: noNSID, bad: true},
	} {
		if got, err := parseNSID(c.body); got != c.want || (err != nil) != c.bad {
			t.Errorf("%s: got %d, %v, want %d", name, got, err, c.want)
		}
	}
}

func TestMessage_failure(t *testing.T) {
	code := int32(-int(unix.ENODEV))
	m, rest, err := split(msg(unix.NLMSG_ERROR, u32(uint32(code)), make([]byte, 16)))
	if err != nil || len(rest) != 0 || !errors.Is(m.failure(), unix.ENODEV) {
		t.Errorf("got %v, %d left, %v, want ENODEV", m.failure(), len(rest), err)
	}
	for name, c := range map[string]struct {
		m   message
		bad bool
	}{
		"acknowledged": {m: message{kind: unix.NLMSG_ERROR, body: u32(0)}},
		"done":         {m: message{kind: unix.NLMSG_DONE, body: u32(0)}},
		"done, bare":   {m: message{kind: unix.NLMSG_DONE}},
		"error, bare":  {m: message{kind: unix.NLMSG_ERROR}, bad: true},
	} {
		if err := c.m.failure(); (err != nil) != c.bad {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

const netDev = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0       0          0
  eth0:18446744073709551615     988    0    0    0     0          0         0   345645     877    0    0    0     0       0          0
eth0.5:     1      2    0    0    0     0          0         0   6     7    0    0    0     0       0          0
`

func TestAppendDevices(t *testing.T) {
	got, err := appendDevices(nil, []byte(netDev))
	want := []device{{name: "eth0", receive: math.MaxUint64, transmit: 345645}, {name: "eth0.5", receive: 1, transmit: 6}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"eth0: 1 2 3\n", "eth0: 1 2 3 4 5 6 7 8 x 1 1\n", "eth0: 18446744073709551616 2 3 4 5 6 7 8 9\n"} {
		if got, err := appendDevices(nil, []byte(bad)); got != nil || !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: got %+v, %v, want nothing and invalid", bad, got, err)
		}
	}
}

func TestFindDevice(t *testing.T) {
	if receive, transmit, ok := findDevice([]byte(netDev), "eth0.5"); receive != 1 || transmit != 6 || !ok {
		t.Errorf("got %d, %d, %v, want 1, 6", receive, transmit, ok)
	}
	for name, text := range map[string]string{
		"another name":  netDev,
		"a line cut":    "  eth1: 1 2 3 4 5 6 7 8 9",
		"a line broken": "  eth1: 1 2\n",
	} {
		if receive, transmit, ok := findDevice([]byte(text), "eth1"); ok || receive != 0 || transmit != 0 {
			t.Errorf("%s: got %d, %d, %v, want nothing", name, receive, transmit, ok)
		}
	}
}

const (
	routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
		"eth0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n" +
		"*\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\n" +
		"eth9\t00000000\t010011AC\t0002\t0\t0\t0\t00000000\t0\t0\t0\n" +
		"eth1\t00000000\t010011AC\t0003\t0\t0\t100\t00000000\t0\t0\t0\n" +
		"eth2\t00000000\t010011AC\t0003\t0\t0\t50\t00000000\t0\t0\t0\n" +
		"tun0\t00000000\t010011AC\t0003\t0\t0\t0\t00000080\t0\t0\t0\n"
	routes6 = "fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n" +
		"00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000002 00000000 00000003     eth1\n" +
		"00000000000000000000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000002 00000000 80200001       lo\n" +
		"00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n"
)

func TestDefaultRoute(t *testing.T) {
	if got := defaultRoute([]byte(routes)); got != "eth2" {
		t.Errorf("got %q, want eth2", got)
	}
	if got := defaultRoute6([]byte(routes6)); got != "eth1" {
		t.Errorf("IPv6: got %q, want eth1", got)
	}
	if got := defaultRoute([]byte("Iface\tDestination\n")) + defaultRoute6(nil); got != "" {
		t.Errorf("none: got %q", got)
	}
}

func TestUplink(t *testing.T) {
	for name, c := range map[string]struct {
		devices []string
		gateway string
		want    string
	}{
		"the only one":                 {devices: []string{"eth0"}, want: "eth0"},
		"nothing yet":                  {},
		"not named yet":                {devices: []string{"veth12"}},
		"default devices only":         {devices: []string{"tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0"}},
		"inner networks beside":        {devices: []string{"br-12", "docker0", "eth0", "veth12"}, want: "eth0"},
		"the default route's":          {devices: []string{"eth0", "eth1"}, gateway: "eth1", want: "eth1"},
		"a tunnel over the uplink":     {devices: []string{"eth0", "tun0"}, gateway: "tun0", want: "eth0"},
		"a tap is all there is":        {devices: []string{"tap0"}, gateway: "tap0", want: "tap0"},
		"a route of a device not told": {devices: []string{"eth0"}, gateway: "eth7", want: "eth0"},
	} {
		var devices []device
		for _, n := range c.devices {
			devices = append(devices, device{name: n})
		}
		if got, ok := uplink(devices, c.gateway); got.name != c.want || ok != (c.want != "") {
			t.Errorf("%s: got %q, %v, want %q", name, got.name, ok, c.want)
		}
	}
}

func TestIndexIn(t *testing.T) {
	for name, c := range map[string]struct {
		text              string
		index, name, base int
	}{
		"dev_mcast":  {text: "2    ifb0            1     0     333300000001\n4    eth0            1     0     01005e000001\n", index: 0, name: 1, base: 10},
		"igmp":       {text: "Idx\tDevice    : Count Querier\n4\teth0      :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n", index: 0, name: 1, base: 10},
		"igmp, long": {text: "4\teth0:     1      V3\n", index: 0, name: 1, base: 10},
		"if_inet6":   {text: "fd000000000000000000000000000002 04 80 00 80     eth0\n", index: 1, name: 5, base: 16},
	} {
		if got := indexIn([]byte(c.text), "eth0", c.index, c.name, c.base); got != 4 {
			t.Errorf("%s: got %d, want 4", name, got)
		}
		if got := indexIn([]byte(c.text), "eth1", c.index, c.name, c.base); got != 0 {
			t.Errorf("%s, another: got %d, want 0", name, got)
		}
	}
}

func FuzzMessages(f *testing.F) {
	code := int32(-int(unix.ENODEV))
	f.Add(slices.Concat(
		msg(unix.RTM_NEWLINK, linkBody(12, ifname, attr(unix.IFLA_LINK, u32(2)...), kindVeth, attr(unix.IFLA_LINK_NETNSID, u32(0)...))),
		msg(unix.RTM_NEWSTATS, statsBody(12, counters(1, 2))),
		msg(unix.RTM_NEWNSID, make([]byte, 4), attr(unix.NETNSA_NSID, u32(1)...)),
		msg(unix.NLMSG_DONE, u32(0)),
	))
	f.Add(msg(unix.NLMSG_ERROR, u32(uint32(code))))
	f.Add([]byte{17, 0, 0, 0, 93, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			m, rest, err := split(b)
			if err != nil {
				return
			}
			if len(rest) >= len(b) {
				t.Fatal("no progress")
			}
			m.failure()
			if l, ok, err := parseLink(m.body); ok && (err != nil || l.index <= 0 || l.peer <= 0 || l.nsid < 0) {
				t.Errorf("link %+v, %v", l, err)
			}
			if s, err := parseStats(m.body); err != nil && s != (stats{}) {
				t.Errorf("error with a result: %+v, %v", s, err)
			}
			if id, err := parseNSID(m.body); id < noNSID || err != nil && id != noNSID {
				t.Errorf("id %d, %v", id, err)
			}
			b = rest
		}
	})
}

func FuzzDevices(f *testing.F) {
	f.Add([]byte(netDev))
	f.Add([]byte("eth0:1: 1 2 3 4 5 6 7 8 9\n"))
	f.Add([]byte(":\n:"))
	f.Fuzz(func(t *testing.T, b []byte) {
		devices, err := appendDevices(nil, append(b, '\n'))
		if err != nil {
			return
		}
		for i, d := range devices {
			receive, transmit, ok := findDevice(append(b, '\n'), d.name)
			first := slices.IndexFunc(devices, func(o device) bool { return o.name == d.name }) == i
			if first && (!ok || receive != d.receive || transmit != d.transmit) {
				t.Errorf("%q: found %d, %d, %v, listed %+v", d.name, receive, transmit, ok, d)
			}
		}
	})
}

func FuzzRoutes(f *testing.F) {
	f.Add([]byte(routes))
	f.Add([]byte(routes6))
	f.Add([]byte("2    eth0            1     0     333300000001\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		defaultRoute(b)
		defaultRoute6(b)
		if i := indexIn(b, "eth0", 0, 1, 10); i < 0 {
			t.Errorf("index %d", i)
		}
		if i := indexIn(b, "eth0", 1, 5, 16); i < 0 {
			t.Errorf("index %d", i)
		}
	})
}

func TestPick(t *testing.T) {
	links := []link{{index: 3, peer: 2, nsid: 1}, {index: 4, peer: 2, nsid: 5}, {index: 6, peer: 7, nsid: 5}}
	for name, c := range map[string]struct {
		nsid, peer, want int32
	}{
		"the only one of its namespace": {nsid: 1, want: 3},
		"one of two, by its peer":       {nsid: 5, peer: 7, want: 6},
		"one of two":                    {nsid: 5},
		"a peer in another namespace":   {nsid: 1, peer: 7},
		"none":                          {nsid: 8, peer: 2},
	} {
		if got, ok := pick(links, c.nsid, c.peer); got.index != c.want || ok != (c.want != 0) {
			t.Errorf("%s: interface %d, %v, want %d", name, got.index, ok, c.want)
		}
	}
}

// A dump may be older than what a read from proc has shown.
func TestHandle_set(t *testing.T) {
	var h Handle
	h.set(10, 20)
	h.set(9, 30)
	h.set(11, 29)
	if h.receive != 11 || h.transmit != 30 {
		t.Errorf("received %d, sent %d: want 11 and 30", h.receive, h.transmit)
	}
}

// The answer to a question that was given up comes before that to the next one.
func TestConn_next_late(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	c := &conn{fd: fds[0], sequence: 7, buf: make([]byte, chunk)} // the sequence number of msg
	defer c.close()
	late := msg(unix.RTM_NEWSTATS, statsBody(1))
	order.PutUint32(late[8:], 6)
	for _, m := range [][]byte{late, msg(unix.RTM_NEWSTATS, statsBody(2))} {
		if _, err := unix.Write(fds[1], m); err != nil {
			t.Fatal(err)
		}
	}
	m, more, err := c.next()
	if err != nil || !more {
		t.Fatalf("%v, %v", more, err)
	}
	if s, err := parseStats(m.body); err != nil || s.index != 2 {
		t.Errorf("interface %d, %v: want the answer to the second question", s.index, err)
	}
}
