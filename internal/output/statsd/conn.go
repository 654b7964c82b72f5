package statsd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/cimeter/cimeter"
)

const (
	packetUDP  = 1432  // what Ethernet carries in one piece, with room for tunnels
	packetUnix = 8192  // what Datadog's own clients send
	maxPacket  = 65507 // of UDP over IPv4
	// dialAgain is how long an address is trusted: servers move.
	dialAgain = time.Minute
	dialTime  = 2 * time.Second
	// A server's socket holds some 90 datagrams where nobody made it larger. So
	// that a flush does not run over it, a short pause follows each burst.
	burst = 16
	pause = 2 * time.Millisecond
)

// failure is an error of the network. It is [cimeter.ErrUnavailable].
type failure struct {
	to  string
	err error
}

// Error implements error.
func (f *failure) Error() string { return "send to " + f.to + ": " + f.err.Error() }

// Unwrap implements errors.Unwrap.
func (f *failure) Unwrap() []error { return []error{cimeter.ErrUnavailable, f.err} }

// link is the way to one server.
type link struct {
	network string // udp, unixgram or unix
	address string

	conn   net.Conn // nil: none
	dialed time.Time
	frame  []byte // of a stream
	sent   int    // datagrams since the last pause
}

// parseAddress reads where a server is. The error is [cimeter.ErrInvalid].
func parseAddress(s string) (link, error) {
	for scheme, network := range map[string]string{"unix://": "unixgram", "unixgram://": "unixgram", "unixstream://": "unix"} {
		if p, ok := strings.CutPrefix(s, scheme); ok {
			if !strings.HasPrefix(p, "/") {
				return link{}, fmt.Errorf("address %q: want %s/PATH: %w", s, scheme, cimeter.ErrInvalid)
			}
			return link{network: network, address: p}, nil
		}
	}
	a := strings.TrimPrefix(s, "udp://")
	if host, port, err := net.SplitHostPort(a); err != nil || host == "" || port == "" {
		return link{}, fmt.Errorf("address %q: want HOST:PORT: %w", s, cimeter.ErrInvalid)
	}
	return link{network: "udp", address: a}, nil
}

// open makes a connection where there is none, or an old one of UDP: the name
// may mean another address by now. One that cannot be made anew stays.
func (l *link) open(ctx context.Context, at time.Time) error {
	if l.conn != nil && (l.network != "udp" || at.Sub(l.dialed) < dialAgain) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, l.network, l.address)
	if err != nil && l.conn == nil {
		return &failure{l.address, err}
	}
	l.dialed = at
	if err == nil {
		l.close()
		l.conn = conn
	}
	return nil
}

// send sends one packet.
func (l *link) send(ctx context.Context, packet []byte) error {
	if l.network == "udp" {
		if l.sent++; l.sent > burst {
			l.sent = 1
			timer := time.NewTimer(pause)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}
	if err := ctx.Err(); err != nil {
		return &failure{l.address, err}
	}
	if l.network == "unix" {
		l.frame = append(binary.LittleEndian.AppendUint32(l.frame[:0], uint32(len(packet))), packet...)
		packet = l.frame
	}
	if _, err := l.conn.Write(packet); err != nil {
		l.close() // a frame may have been cut
		return &failure{l.address, err}
	}
	return nil
}

// refused returns the error that came back for what was sent before, if any.
func (l *link) refused() error {
	c, ok := l.conn.(syscall.Conn)
	if !ok || l.network != "udp" {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	number := 0
	if raw.Control(func(fd uintptr) { number, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR) }) != nil || number == 0 {
		return nil
	}
	l.close()
	return &failure{l.address, syscall.Errno(number)}
}

// behind reports whether err tells of a datagram before the one that was being
// sent: the machine has no socket at that port.
func (l *link) behind(err error) bool {
	return l.network == "udp" && errors.Is(err, syscall.ECONNREFUSED)
}

// answers makes a connection and says what it found. Over UDP it sends a datagram
// without a byte, which servers pass over: this machine, and some others, say at
// once when nobody has the port.
func (l *link) answers(ctx context.Context) (string, error) {
	defer l.close()
	if err := l.open(ctx, time.Time{}); err != nil {
		return "", err
	}
	to := l.conn.RemoteAddr().String()
	if l.network != "udp" {
		return to + " is there", nil
	}
	l.conn.Write(nil)
	if err := l.refused(); err != nil {
		return "", err
	}
	if to == l.address {
		return to + ", where nothing says whether anybody listens", nil
	}
	return l.address + " is " + to + ", where nothing says whether anybody listens", nil
}

func (l *link) close() {
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}
