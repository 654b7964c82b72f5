package machine

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
)

func oneLine(b []byte) []byte {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return bytes.TrimSpace(line)
}

// parseMemory reads /proc/meminfo; its unit is 1,024 bytes.
//
//	MemTotal:       16374572 kB
//	MemFree:          918876 kB
//	MemAvailable:   11918876 kB
func parseMemory(b []byte) (total, available cimeter.Opt[uint64]) {
	for line := range bytes.Lines(b) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		var to *cimeter.Opt[uint64]
		switch string(name) {
		case "MemTotal":
			to = &total
		case "MemAvailable":
			to = &available
		default:
			continue
		}
		fields := bytes.Fields(rest)
		if len(fields) != 2 || string(fields[1]) != "kB" {
			continue
		}
		if v, err := strconv.ParseUint(string(fields[0]), 10, 54); err == nil {
			*to = cimeter.Some(v << 10)
		}
	}
	if available.Known && (!total.Known || available.Value > total.Value) {
		available = cimeter.Opt[uint64]{}
	}
	return total, available
}

// parsePressure reads a file of /proc/pressure; total is in microseconds.
//
//	some avg10=0.00 avg60=0.06 avg300=0.05 total=2196344
//	full avg10=0.00 avg60=0.00 avg300=0.00 total=0
func parsePressure(b []byte) (some, full cimeter.Opt[float64]) {
	for line := range bytes.Lines(b) {
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			continue
		}
		var to *cimeter.Opt[float64]
		switch string(fields[0]) {
		case "some":
			to = &some
		case "full":
			to = &full
		default:
			continue
		}
		for _, f := range fields[1:] {
			if v, ok := bytes.CutPrefix(f, []byte("total=")); ok {
				if us, err := strconv.ParseUint(string(v), 10, 64); err == nil {
					*to = cimeter.Some(float64(us) / 1e6)
				}
			}
		}
	}
	return some, full
}

// parseBoot reads the time of the boot from /proc/stat.
//
//	btime 1796000000
func parseBoot(b []byte) time.Time {
	for line := range bytes.Lines(b) {
		if v, ok := bytes.CutPrefix(line, []byte("btime ")); ok {
			if s, err := strconv.ParseUint(string(bytes.TrimSpace(v)), 10, 40); err == nil && s > 0 {
				return time.Unix(int64(s), 0).UTC()
			}
		}
	}
	return time.Time{}
}

// maxOS bounds the name of a system, in bytes.
const maxOS = 100

// parseOS reads the name for people from os-release, which is a shell's
// assignments.
//
//	PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
func parseOS(b []byte) string {
	for line := range bytes.Lines(b) {
		v, ok := bytes.CutPrefix(line, []byte("PRETTY_NAME="))
		if !ok {
			continue
		}
		s := strings.Trim(string(bytes.TrimSpace(v)), `"'`)
		if len(s) > maxOS {
			s = s[:maxOS]
		}
		return strings.ToValidUTF8(s, "")
	}
	return ""
}

// sectorBytes is the kernel's unit of block statistics, whatever the disk's is.
const sectorBytes = 512

// parseDisk reads /sys/block/X/stat: the third number is sectors read, the
// seventh sectors written.
//
//	8405 3072 618190 6122 11811 12063 1205216 17166 0 15252 23289
func parseDisk(b []byte) (read, written uint64, ok bool) {
	fields := bytes.Fields(b)
	if len(fields) < 11 {
		return 0, 0, false
	}
	r, err := strconv.ParseUint(string(fields[2]), 10, 54)
	if err != nil {
		return 0, 0, false
	}
	w, err := strconv.ParseUint(string(fields[6]), 10, 54)
	return r * sectorBytes, w * sectorBytes, err == nil
}

// inside are the beginnings of the names of interfaces between a machine and
// its own containers and guests.
var inside = []string{"lo", "veth", "docker", "br-", "cni", "podman", "virbr", "tap", "tun", "flannel", "cali", "dummy", "bond", "ifb", "vnet"}

// sumNetwork adds up the bytes of /proc/net/dev: received is the first number
// after the name, sent the ninth.
//
//	Inter-|   Receive                                                |  Transmit
//	 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets ...
//	  eth0: 1296574    1200    0    0    0     0          0         0   312340     900 ...
func sumNetwork(b []byte, device func(name string) bool) *cimeter.ReceiveTransmit[uint64] {
	var real, others cimeter.ReceiveTransmit[uint64]
	reals, rest := 0, 0
	for line := range bytes.Lines(b) {
		i := bytes.LastIndexByte(line, ':')
		if i < 0 {
			continue
		}
		name := string(bytes.TrimSpace(line[:i]))
		fields := bytes.Fields(line[i+1:])
		if len(fields) < 16 || name == "" || strings.ContainsAny(name, "/ ") || strings.HasPrefix(name, ".") {
			continue
		}
		r, err1 := strconv.ParseUint(string(fields[0]), 10, 63)
		t, err2 := strconv.ParseUint(string(fields[8]), 10, 63)
		if err1 != nil || err2 != nil || r > math.MaxUint64/maxDevices || t > math.MaxUint64/maxDevices || reals+rest >= maxDevices {
			continue
		}
		switch {
		case device(name):
			real.Receive, real.Transmit, reals = real.Receive+r, real.Transmit+t, reals+1
		case !isInside(name):
			others.Receive, others.Transmit, rest = others.Receive+r, others.Transmit+t, rest+1
		}
	}
	switch {
	case reals > 0:
		return &real
	case rest > 0:
		return &others
	}
	return nil
}

func isInside(name string) bool {
	for _, p := range inside {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
