package statsd

import "net"

// Onto makes the sink, whose network is none that is dialled anew, send on conn.
func (s *Sink) Onto(conn net.Conn) { s.link.conn = conn }
