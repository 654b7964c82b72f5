package statsd

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/series"
)

// flaky is a connection whose writes fail from one on, as those of UDP do when
// the machine refused the datagram before.
type flaky struct {
	net.Conn
	writes, failAt int
	err            error
	got            []string
}

// Write implements net.Conn.
func (f *flaky) Write(b []byte) (int, error) {
	if f.writes++; f.writes == f.failAt {
		return 0, f.err
	}
	f.got = append(f.got, string(b))
	return len(b), nil
}

func (f *flaky) SetWriteDeadline(time.Time) error { return nil }
func (f *flaky) Close() error                     { return nil }

// A refusal tells of the datagram before: that one is told again, and no other.
// Any other error is of the datagram that was being sent.
func TestSink_refusal(t *testing.T) {
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		err  error
		lost int // datagrams at the receiver's side that never arrived, of those written
	}{
		"refused":   {syscall.ECONNREFUSED, 1},
		"no memory": {syscall.ENOBUFS, 0},
	} {
		for failAt := 1; failAt <= 5; failAt++ {
			s, err := New(Options{Address: "127.0.0.1:1", MaxPacket: 64, Started: start})
			if err != nil {
				t.Fatal(err)
			}
			f := series.Family{Name: "n_total", Kind: series.Counter}
			for i := range 40 {
				l := []series.Label{{Name: "i", Value: fmt.Sprint(i)}}
				f.Points = append(f.Points, series.Point{Key: series.Key(f.Name, l), Labels: l, Value: 1, Start: start})
			}
			conn := &flaky{failAt: failAt, err: c.err}
			s.link.conn, s.link.dialed = conn, start
			sent, err := s.Send(t.Context(), start, []series.Family{f})
			if !errors.Is(err, c.err) || s.link.conn != nil {
				t.Fatalf("%s at %d: %v, connection %v: want it closed and %v", name, failAt, err, s.link.conn, c.err)
			}
			arrived := conn.got[:max(0, len(conn.got)-c.lost)]
			if n := strings.Count(strings.Join(arrived, "\n"), "|c"); sent.Points != n {
				t.Errorf("%s at %d: %d points sent, %d arrived", name, failAt, sent.Points, n)
			}
			again := &flaky{}
			s.link.conn = again
			if sent, err := s.Send(t.Context(), start.Add(time.Second), []series.Family{f}); err != nil || sent.Points != 40 {
				t.Fatalf("%+v, %v", sent, err)
			}
			all := strings.Split(strings.Join(append(arrived, again.got...), "\n"), "\n")
			seen := map[string]int{}
			for _, l := range all {
				seen[l]++
			}
			if len(all) != 40 || len(seen) != 40 {
				t.Errorf("%s at %d: %d lines, %d different ones: want 40", name, failAt, len(all), len(seen))
			}
		}
	}
}
