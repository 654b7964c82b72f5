package web

import (
	"fmt"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// setting is something of a build that its figures depend on: a limit, the image, the
// size of the machine.
type setting struct {
	value string // equal where nothing changed
	text  string
	mark  string // in few words
}

// limitSetting is a limit; an absent one is a setting, too.
func limitSetting(o opt, write func(float64) string) setting {
	text := "none"
	if o.Known {
		text = write(o.Value)
	}
	return setting{fmt.Sprint(o.Known, o.Value), text, "limit " + text}
}

// imageSetting is the image that runs a build's commands.
func imageSetting(image string) setting {
	short := image[strings.LastIndexByte(image, '/')+1:]
	return setting{image, display.Fit(image, 60, "…"), display.Fit(short, 24, "…")}
}

// sizeSetting is how large a machine is. Memory is told to a quarter of a GiB: a kernel
// more or less takes some of it away.
func sizeSetting(h cimeter.HostSize) setting {
	const quarter = 1 << 28
	h.MemoryBytes = (h.MemoryBytes + quarter/2) / quarter * quarter
	text := plural(h.CPUs, "CPU")
	if h.MemoryBytes > 0 {
		text += ", " + amount(float64(h.MemoryBytes))
	}
	return setting{fmt.Sprint(h), text, text}
}

// held is how many builds in a row must have a setting for it to be one that was made:
// jobs whose builds take turns on machines of two sizes change nothing.
const held = 3

// settingShifts finds where a setting of a job changed: three builds had the one, the
// next three another. The latest three of each.
func settingShifts(rs []*cimeter.Record, now time.Time) (out []shift) {
	for _, c := range []struct {
		name, of string
		read     func(*cimeter.Record) (s setting, ok bool) // not ok: not known
	}{
		{"CPU limit", "cpu", func(r *cimeter.Record) (s setting, ok bool) {
			if r.Limits == nil {
				return s, false
			}
			return limitSetting(r.Limits.CPUCores, cores), true
		}},
		{"memory limit", "mem", func(r *cimeter.Record) (s setting, ok bool) {
			if r.Limits == nil {
				return s, false
			}
			return limitSetting(number(r.Limits.MemoryBytes), amount), true
		}},
		{"image", "", func(r *cimeter.Record) (setting, bool) { return imageSetting(r.Image), r.Image != "" }},
		{"machine", "", func(r *cimeter.Record) (setting, bool) { return sizeSetting(r.Host), r.Host.CPUs > 0 }},
	} {
		var of []*cimeter.Record
		var is []setting
		for _, r := range rs {
			if s, ok := c.read(r); ok {
				of, is = append(of, r), append(is, s)
			}
		}
		same := func(from, to int) bool {
			for i := from + 1; i < to; i++ {
				if is[i].value != is[from].value {
					return false
				}
			}
			return true
		}
		var found []shift
		for i := held; i <= len(of)-held; i++ {
			a, b := is[i-1], is[i]
			if a.value == b.value || !same(i-held, i) || !same(i, i+held) {
				continue
			}
			found = append(found, shift{
				Text: fmt.Sprintf("%s %s → %s since %s", c.name, a.text, b.text, stampOf(now, of[i].StartedAt).Text), Compare: href("/compare", "a", of[i-1].Key, "b", of[i].Key),
				At: of[i].EndedAt, Of: c.of, Mark: b.mark,
			})
		}
		out = append(out, found[max(0, len(found)-held):]...)
	}
	return out
}
