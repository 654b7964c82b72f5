package cgroup

import "bytes"

// deviceID is major << 32 | minor.
type deviceID uint64

// transfer is what moved to and from block devices: bytes, and operations.
type transfer struct {
	readBytes, writeBytes, reads, writes uint64
}

func (t *transfer) add(o *transfer) {
	t.readBytes += o.readBytes
	t.writeBytes += o.writeBytes
	t.reads += o.reads
	t.writes += o.writes
}

// raise makes each member of t at least that of o.
func (t *transfer) raise(o *transfer) {
	t.readBytes = max(t.readBytes, o.readBytes)
	t.writeBytes = max(t.writeBytes, o.writeBytes)
	t.reads = max(t.reads, o.reads)
	t.writes = max(t.writes, o.writes)
}

// deviceIO is the transfer on one device.
type deviceIO struct {
	device deviceID
	transfer
}

// parseDevice parses major:minor.
func parseDevice(b []byte) (deviceID, bool) {
	major, n := digits(b)
	if n == 0 || n >= len(b) || b[n] != ':' || major > 1<<31 {
		return 0, false
	}
	minor, ok := number(b[n+1:])
	if !ok || minor > 1<<31 {
		return 0, false
	}
	return deviceID(major<<32 | minor), true
}

// unnamed reports whether b stands for a device without a name, which some
// kernels list (hidden paths of multipath devices).
func unnamed(b []byte) bool { return bytes.Equal(b, []byte("(unknown)")) }

// parseIOStat appends the devices of io.stat to dst. Keys come in any number
// and order, unknown ones are skipped (discards, cost.*, io.latency's), and so
// is a device without any (canonical/lxd#10052).
//
//	8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0
//	8:0
func parseIOStat(b []byte, dst []deviceIO) ([]deviceIO, error) {
	for len(b) > 0 {
		var l []byte
		l, b = line(b)
		name, rest := word(l)
		if len(name) == 0 || unnamed(name) {
			continue
		}
		id, ok := parseDevice(name)
		if !ok {
			return dst, malformed("io.stat device", name, "major:minor")
		}
		d := deviceIO{device: id}
		some := false
		for len(rest) > 0 {
			var w []byte
			w, rest = word(rest)
			i := bytes.IndexByte(w, '=')
			if i < 0 {
				continue
			}
			var to *uint64
			switch string(w[:i]) {
			case "rbytes":
				to = &d.readBytes
			case "wbytes":
				to = &d.writeBytes
			case "rios":
				to = &d.reads
			case "wios":
				to = &d.writes
			default:
				continue
			}
			if *to, ok = number(w[i+1:]); !ok {
				return dst, malformed("io.stat", w, "a number")
			}
			some = true
		}
		if some {
			dst = append(dst, d)
		}
	}
	return dst, nil
}

// parseBlkio appends the devices of blkio.throttle.io_service_bytes (bytes) or,
// with operations, of blkio.throttle.io_serviced to dst. Only the lines Read
// and Write are taken: Sync and Async count the same once more, Total includes
// Discard.
//
//	8:0 Read 4096
//	8:0 Write 2097152
//	8:0 Sync 2101248
//	8:0 Async 0
//	8:0 Discard 0
//	8:0 Total 2101248
//	Total 2101248
func parseBlkio(b []byte, operations bool, dst []deviceIO) ([]deviceIO, error) {
	start := len(dst)
	for len(b) > 0 {
		var l []byte
		l, b = line(b)
		name, rest := word(l)
		if len(name) == 0 || unnamed(name) || string(name) == "Total" {
			continue
		}
		id, ok := parseDevice(name)
		if !ok {
			return dst, malformed("blkio device", name, "major:minor")
		}
		kind, rest := word(rest)
		if len(kind) == 0 {
			continue
		}
		if len(dst) == start || dst[len(dst)-1].device != id {
			dst = append(dst, deviceIO{device: id})
		}
		d := &dst[len(dst)-1]
		var to *uint64
		switch {
		case string(kind) == "Read" && operations:
			to = &d.reads
		case string(kind) == "Read":
			to = &d.readBytes
		case string(kind) == "Write" && operations:
			to = &d.writes
		case string(kind) == "Write":
			to = &d.writeBytes
		default:
			continue
		}
		if *to, ok = number(trim(rest)); !ok {
			return dst, malformed("blkio", l, "a number")
		}
	}
	return dst, nil
}

// disk is one line of /proc/diskstats.
type disk struct {
	device deviceID
	name   string
	transfer
}

// sectorBytes is the unit of sectors in /proc/diskstats, whatever the sector
// size of the disk (Documentation/admin-guide/iostats.rst).
const sectorBytes = 512

// parseDiskstats parses /proc/diskstats, of 14 fields and those of newer
// kernels (18 since Linux 4.18, 20 since 5.5).
//
//	254 0 vda 69005 24067 2290986 8155 10375 19671 2411512 5567 0 5844 14094 3884 56 332664 316 1211 53
func parseDiskstats(b []byte) ([]disk, error) {
	var disks []disk
	for len(b) > 0 {
		var l []byte
		l, b = line(b)
		f := bytes.Fields(l)
		if len(f) == 0 {
			continue
		}
		if len(f) < 14 {
			return nil, malformed("diskstats", l, "14 fields or more")
		}
		var v [14]uint64
		for i := range v {
			var ok bool
			if i == 2 {
				continue
			}
			if v[i], ok = number(f[i]); !ok {
				return nil, malformed("diskstats", f[i], "a number")
			}
		}
		if v[0] > 1<<31 || v[1] > 1<<31 {
			return nil, malformed("diskstats", l, "major and minor numbers")
		}
		disks = append(disks, disk{
			device: deviceID(v[0]<<32 | v[1]),
			name:   string(f[2]),
			transfer: transfer{
				reads: v[3], readBytes: v[5] * sectorBytes,
				writes: v[7], writeBytes: v[9] * sectorBytes,
			},
		})
	}
	return disks, nil
}
