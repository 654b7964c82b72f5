package summary

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/cimeter/cimeter"
)

const (
	mib = 1 << 20
	gib = 1 << 30

	dash = "-" // what is not known
)

type opt = cimeter.Opt[float64]

func some(v float64) opt { return cimeter.Some(v) }

// known makes an optional integer a float64.
func known(o cimeter.Opt[uint64]) opt { return opt{Value: float64(o.Value), Known: o.Known} }

// sig3 writes v with three significant digits: 0, 0.34, 5.80, 41.2, 392, 1204.
func sig3(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return thousands(v)
}

// thousands writes v rounded, with commas: 41,210.
func thousands(v float64) string {
	if v >= 1e15 || math.IsNaN(v) {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

// short writes v without trailing zeros: 2, 1.5, 0.25.
func short(v float64) string {
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
}

// rate writes v with two significant digits below 100: 5.4, 14, 163.
func rate(v float64) string {
	if v > 0 && v < 9.95 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return thousands(v)
}

// unit returns the unit to show bytes in: one for all values of a group.
func unit(largest float64) (name string, size float64) {
	switch {
	case largest >= 1024*gib:
		return "TiB", 1024 * gib
	case largest >= 0.9995*gib:
		return "GiB", gib
	case largest >= 0.9995*mib || largest == 0:
		return "MiB", mib
	}
	return "KiB", 1024
}

// size writes bytes in their own unit: 3.58 GiB.
func size(v float64) string {
	in, u := unit(v)
	return sig3(v/u) + " " + in
}

// perSecond writes bytes a second in their own unit: 5.4 MiB/s.
func perSecond(v float64) string {
	in, u := unit(v)
	return rate(v/u) + " " + in + "/s"
}

// seconds writes a duration: 4.21 ms, 0.34 s, 5.8 s, 4 m 12 s, 2 h 05 m.
func seconds(v float64) string {
	switch {
	case v > 0 && v < 0.0995:
		return sig3(v*1000) + " ms"
	case v < 0.9995:
		return strconv.FormatFloat(v, 'f', 2, 64) + " s"
	case v < 59.95:
		return strconv.FormatFloat(v, 'f', 1, 64) + " s"
	case v < 3599.5:
		s := int64(math.Round(v))
		return fmt.Sprintf("%d m %d s", s/60, s%60)
	case v < 1e9:
		m := int64(math.Round(v / 60))
		return fmt.Sprintf("%d h %02d m", m/60, m%60)
	}
	return dash
}

// percent writes a share of 0 to 1: 77 %.
func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 0, 64) + " %" }

// column writes v so that it leaves at least one space in a column of the given
// width, with fewer decimals where it must.
func column(v opt, width, decimals int) string {
	s := dash
	if v.Known && v.Value >= 0 { // a figure below zero, or none at all, is not known
		for s = strconv.FormatFloat(v.Value, 'f', decimals, 64); len(s) >= width && decimals > 0; {
			decimals--
			s = strconv.FormatFloat(v.Value, 'f', decimals, 64)
		}
		if len(s) >= width {
			s = strconv.FormatFloat(v.Value, 'g', 1, 64)
		}
		if len(s) >= width {
			s = dash
		}
	}
	return fmt.Sprintf("%*s", width, s)
}

// queued is how long the build waited; absent when the CI system did not tell
// or its clock was ahead.
func queued(r *cimeter.Record) opt {
	if r.QueuedAt.IsZero() || r.StartedAt.Before(r.QueuedAt) {
		return opt{}
	}
	return some(r.StartedAt.Sub(r.QueuedAt).Seconds())
}

// Wall is how long a build took, in seconds: of one that no agent metered, from
// its start to its end, where its CI server told both.
func Wall(r *cimeter.Record) cimeter.Opt[float64] { return wall(&r.Usage, r.StartedAt, r.EndedAt) }

// wall is a usage's time, else the distance of its bounds.
func wall(u *cimeter.Usage, from, to time.Time) opt {
	if u.WallSeconds > 0 {
		return some(u.WallSeconds)
	}
	if from.IsZero() || to.Before(from) {
		return opt{}
	}
	return some(to.Sub(from).Seconds())
}

// peak is the kernel's own maximum of memory, else the largest sample.
func peak(u *cimeter.Usage) opt {
	switch {
	case u.MemoryBytes == nil:
		return opt{}
	case u.MemoryBytes.Peak.Known:
		return known(u.MemoryBytes.Peak)
	}
	return some(u.MemoryBytes.Max)
}

// disk is what was read and written together, in bytes.
func disk(u *cimeter.Usage) opt {
	if u.IOBytes == nil {
		return opt{}
	}
	return some(float64(u.IOBytes.Read) + float64(u.IOBytes.Write))
}

// net is what was received and sent together, in bytes.
func net(u *cimeter.Usage) opt {
	if u.NetworkBytes == nil {
		return opt{}
	}
	return some(float64(u.NetworkBytes.Receive) + float64(u.NetworkBytes.Transmit))
}

// both joins the rates of two directions. The largest of the sum is not
// recorded; what is returned is the most that surely was reached: the busier
// direction's, or the average.
func both(a, b cimeter.Stat) (avg, largest float64) {
	avg = a.Avg + b.Avg
	return avg, max(a.Max, b.Max, avg)
}
