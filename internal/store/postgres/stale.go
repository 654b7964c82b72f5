package postgres

import (
	"context"
	"net"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"
)

// ask says whether a connection taken from the pool is to be asked before it is
// used, which costs a journey: one that was idle for a second, and one whose
// socket has something to read, as nothing is due on an idle connection but a
// database's farewell. So nothing is asked of a connection that died with a
// database which has long been back.
func ask(_ context.Context, p pgxpool.ShouldPingParams) bool {
	return p.IdleDuration > time.Second || readable(p.Conn.PgConn().Conn())
}

// readable reports whether a read would not wait: for bytes, an end or an error.
// It asks the kernel only. TLS is looked through.
func readable(c net.Conn) bool {
	if wrapped, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = wrapped.NetConn()
	}
	socket, ok := c.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	waits := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		waits = err == unix.EAGAIN || err == unix.EINTR
	})
	return err != nil || !waits
}
