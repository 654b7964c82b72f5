package cgroup

import (
	"bytes"
	"fmt"
	"math"

	"github.com/cimeter/cimeter"
)

// Units of the kernel's files, in nanoseconds.
const (
	nanosPerMicro = 1_000
	// nanosPerTick is one tick of USER_HZ, which is 100 on every architecture
	// that Go runs on (include/asm-generic/param.h).
	nanosPerTick = 10_000_000
)

// digits parses the decimal number that b starts with. n is how many bytes it
// took: 0 when there is none or it does not fit.
func digits(b []byte) (v uint64, n int) {
	for n < len(b) {
		c := b[n] - '0'
		if c > 9 {
			break
		}
		if v > (math.MaxUint64-uint64(c))/10 {
			return 0, 0
		}
		v = v*10 + uint64(c)
		n++
	}
	return v, n
}

// number parses b, all of it, as a decimal number.
func number(b []byte) (uint64, bool) {
	v, n := digits(b)
	return v, n > 0 && n == len(b)
}

// scaled is number times unit, false also when the product does not fit.
func scaled(b []byte, unit uint64) (uint64, bool) {
	v, ok := number(b)
	return v * unit, ok && v <= math.MaxUint64/unit
}

// trim returns b without spaces and newlines at its end.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == ' ') {
		b = b[:len(b)-1]
	}
	return b
}

// line splits b after its first line; the line comes without its newline.
func line(b []byte) (first, rest []byte) {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return b[:i], b[i+1:]
	}
	return b, nil
}

// word splits b after its first word; words stand apart by one or more spaces.
func word(b []byte) (first, rest []byte) {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	if i := bytes.IndexByte(b, ' '); i >= 0 {
		return b[:i], b[i+1:]
	}
	return b, nil
}

// malformed says what a file held and what was wanted. At most 40 bytes of the
// file are quoted.
func malformed(what string, got []byte, want string) error {
	if len(got) > 40 {
		got = got[:40]
	}
	return fmt.Errorf("%s %q: want %s: %w", what, got, want, cimeter.ErrInvalid)
}

// parseNumber parses a file of one number: cpuacct.usage (nanoseconds),
// memory.current, memory.usage_in_bytes (bytes), pids.current (tasks).
//
//	20520960
func parseNumber(b []byte) (uint64, error) {
	if v, ok := number(trim(b)); ok {
		return v, nil
	}
	return 0, malformed("value", trim(b), "a number")
}

// pair returns the key and value of the next line of a flat keyed file and
// what follows; ok is false at the end. Empty lines are skipped. A line without
// a value is an error, for it is in no such file.
func pair(b []byte) (key, value, rest []byte, ok bool, err error) {
	for len(b) > 0 {
		var l []byte
		if l, b = line(b); len(l) == 0 {
			continue
		}
		i := bytes.IndexByte(l, ' ')
		if i <= 0 {
			return nil, nil, nil, false, malformed("line", l, "a key and a value")
		}
		return l[:i], trim(l[i+1:]), b, true, nil
	}
	return nil, nil, nil, false, nil
}

// reading is one value of a keyed file, in the order of the parser's result,
// and whether the file had it.
type reading struct {
	value uint64
	known bool
}

func (r *reading) set(key, value []byte, unit uint64) error {
	v, ok := scaled(value, unit)
	if !ok {
		return malformed(string(key), value, "a number")
	}
	r.value, r.known = v, true
	return nil
}

// cpuStat is cpu.stat of either version. Times are nanoseconds.
type cpuStat struct {
	usage, user, system                  reading // v2 only
	periods, throttledPeriods, throttled reading // with the cpu controller
}

// parseCPUStat parses cpu.stat. v2 (microseconds; the first three are there
// even where the cpu controller is off):
//
//	usage_usec 68161668
//	user_usec 43995232
//	system_usec 24166436
//	nr_periods 0
//	nr_throttled 0
//	throttled_usec 0
//
// v1 (nanoseconds):
//
//	nr_periods 0
//	nr_throttled 0
//	throttled_time 0
func parseCPUStat(b []byte) (cpuStat, error) {
	var st cpuStat
	known := false
	for {
		key, value, rest, ok, err := pair(b)
		if err != nil {
			return cpuStat{}, err
		}
		if !ok {
			break
		}
		b = rest
		var r *reading
		unit := uint64(1)
		switch string(key) {
		case "usage_usec":
			r, unit = &st.usage, nanosPerMicro
		case "user_usec":
			r, unit = &st.user, nanosPerMicro
		case "system_usec":
			r, unit = &st.system, nanosPerMicro
		case "nr_periods":
			r = &st.periods
		case "nr_throttled":
			r = &st.throttledPeriods
		case "throttled_usec":
			r, unit = &st.throttled, nanosPerMicro
		case "throttled_time":
			r = &st.throttled
		default:
			continue
		}
		if err := r.set(key, value, unit); err != nil {
			return cpuStat{}, err
		}
		known = true
	}
	if !known {
		return cpuStat{}, malformed("cpu.stat", nil, "usage_usec or nr_periods")
	}
	return st, nil
}

// parseCPUAcctStat parses cpuacct.stat (USER_HZ ticks) to nanoseconds. Some
// kernels have more lines (opencontainers/runc#1844).
//
//	user 8634978
//	system 11319890
func parseCPUAcctStat(b []byte) (user, system uint64, err error) {
	var u, s reading
	for {
		key, value, rest, ok, err := pair(b)
		if err != nil {
			return 0, 0, err
		}
		if !ok {
			break
		}
		b = rest
		switch string(key) {
		case "user":
			err = u.set(key, value, nanosPerTick)
		case "system":
			err = s.set(key, value, nanosPerTick)
		}
		if err != nil {
			return 0, 0, err
		}
	}
	if !u.known || !s.known {
		return 0, 0, malformed("cpuacct.stat", nil, "user and system")
	}
	return u.value, s.value, nil
}

// memoryStat is what is used of memory.stat, in bytes.
type memoryStat struct {
	anon, file, kernel, inactiveFile, swap reading
}

// parseMemoryStat parses memory.stat. v2 (kernel since Linux 5.18):
//
//	anon 1257472
//	file 14888960
//	kernel 540672
//	inactive_file 12210176
//
// v1, where only the total_ lines count what is below, too:
//
//	total_cache 14888960
//	total_rss 1257472
//	total_swap 0
//	total_inactive_file 12210176
func parseMemoryStat(b []byte, v2 bool) (memoryStat, error) {
	var st memoryStat
	known := false
	for {
		key, value, rest, ok, err := pair(b)
		if err != nil {
			return memoryStat{}, err
		}
		if !ok {
			break
		}
		b = rest
		var r *reading
		if v2 {
			switch string(key) {
			case "anon":
				r = &st.anon
			case "file":
				r = &st.file
			case "kernel":
				r = &st.kernel
			case "inactive_file":
				r = &st.inactiveFile
			}
		} else if key[0] == 't' {
			switch string(key) {
			case "total_rss":
				r = &st.anon
			case "total_cache":
				r = &st.file
			case "total_swap":
				r = &st.swap
			case "total_inactive_file":
				r = &st.inactiveFile
			}
		}
		if r == nil {
			continue
		}
		if err := r.set(key, value, 1); err != nil {
			return memoryStat{}, err
		}
		known = true
	}
	if !known {
		return memoryStat{}, malformed("memory.stat", nil, "anon or total_rss")
	}
	return st, nil
}

// parseKey returns the number of one key of a flat keyed file: populated of
// cgroup.events, oom_kill of memory.events, memory.events.local and
// memory.oom_control (since Linux 4.13). known is false where the well-formed
// file does not have it.
//
//	low 0
//	high 0
//	max 0
//	oom 0
//	oom_kill 0
func parseKey(b []byte, want string) (v uint64, known bool, err error) {
	lines := 0
	for {
		key, value, rest, ok, err := pair(b)
		if err != nil {
			return 0, false, err
		}
		if !ok {
			break
		}
		b = rest
		lines++
		if string(key) != want {
			continue
		}
		if v, known = number(value); !known {
			return 0, false, malformed(want, value, "a number")
		}
	}
	if lines == 0 {
		return 0, false, malformed("file", nil, want)
	}
	return v, known, nil
}

// parsePressure parses cpu.pressure, memory.pressure and io.pressure: total is
// in microseconds and returned in nanoseconds. cpu.pressure has no full line
// before Linux 5.13.
//
//	some avg10=2.65 avg60=2.78 avg300=2.92 total=111749368752
//	full avg10=0.00 avg60=0.00 avg300=0.00 total=0
func parsePressure(b []byte) (some, full reading, err error) {
	for len(b) > 0 {
		var l []byte
		l, b = line(b)
		kind, rest := word(l)
		var r *reading
		switch string(kind) {
		case "some":
			r = &some
		case "full":
			r = &full
		default:
			continue
		}
		for len(rest) > 0 {
			var w []byte
			w, rest = word(rest)
			if value, ok := bytes.CutPrefix(w, []byte("total=")); ok {
				if err := r.set([]byte("total"), value, nanosPerMicro); err != nil {
					return reading{}, reading{}, err
				}
			}
		}
		if !r.known {
			return reading{}, reading{}, malformed("pressure", l, "total=")
		}
	}
	if !some.known {
		return reading{}, reading{}, malformed("pressure", nil, "a line some")
	}
	return some, full, nil
}
