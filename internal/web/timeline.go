package web

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"

	"github.com/cimeter/cimeter"
)

// queueShare bounds how much of the time axis the wait before the start takes:
// an hour in the queue must not squeeze a minute of work.
const queueShare = 0.12

// axis is a span of time in seconds since the build's start.
type axis struct{ From, To float64 }

func (a axis) length() float64 { return a.To - a.From }

// share is where t lies on the axis, 0 to 1 and beyond.
func (a axis) share(t float64) float64 { return (t - a.From) / a.length() }

// wholeAxis is the build with what of its queue fits.
func wholeAxis(r *cimeter.Record) axis {
	row := RowOf(r)
	length := row.WallSeconds
	for i := range r.Stages {
		length = max(length, r.Stages[i].EndedAt.Sub(r.StartedAt).Seconds())
	}
	if length <= 0 || math.IsNaN(length) {
		length = 1
	}
	return axis{-min(row.Queue().Value, queueShare*length), length}
}

// zoomed reads from and to of a URL; bad tells what was wanted.
func (a axis) zoomed(q url.Values) (z axis, isZoomed bool, bad string) {
	z = a
	for key, v := range map[string]*float64{"from": &z.From, "to": &z.To} {
		if s := q.Get(key); s != "" {
			f, err := strconv.ParseFloat(s, 64)
			if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
				return a, false, key + ": want seconds since the build's start, such as 12.5"
			}
			*v = min(a.To, max(a.From, f))
		}
	}
	if z.length() < 1e-3 {
		if z != a {
			return a, false, "from and to: want a span inside the build"
		}
		return a, false, ""
	}
	return z, z != a, ""
}

// lane is a row of blocks on the time axis.
type lane struct {
	Name   string
	Blocks []block
}

// block is a stage, or the queue, on a lane. X and W are shares of the lane's
// width in percent, as SVG attributes.
type block struct {
	X, W     string
	From, To float64 // seconds
	Label    string
	Beside   string // where a label stands that does not fit: its x in percent
	Tiny     bool   // the label does not fit inside
	URL      string
	Title    string
	Class    string
}

// letters is how many letters of a label fit into a whole lane of a wide page.
const letters = 150

// lanes puts the queue and the stages on the first lane, what ran alongside on
// lanes of its own, and what overlaps on the next free one.
func lanes(r *cimeter.Record, a axis, zoom func(from, to float64) string) []lane {
	var own, beside []block
	if a.From < 0 {
		q := rowQueue(r)
		b := a.block(a.From, 0, "queue", zoom(a.From, 0))
		b.Class, b.Title = "queue", "queue, "+seconds(q)
		own = append(own, b)
	}
	most := costliest(r)
	for i := range r.Stages {
		s := &r.Stages[i]
		if s.StartedAt.IsZero() || s.EndedAt.Before(s.StartedAt) {
			continue
		}
		from, to := s.StartedAt.Sub(r.StartedAt).Seconds(), s.EndedAt.Sub(r.StartedAt).Seconds()
		if to < a.From || from > a.To {
			continue
		}
		b := a.block(from, to, stageLabel(s), zoom(from, to))
		b.Title = stageLabel(s) + ", " + seconds(to-from)
		if c := s.Usage.CPUSeconds.Total; c.Known {
			b.Title += ", " + cpuTime(c.Value) + " CPU"
		}
		b.Class = "stage"
		switch {
		case s.Usage.OOMKills.Value+s.Usage.OOMKillsNested.Value > 0:
			b.Class, b.Title = "stage bad", b.Title+", out of memory"
		case s.ExitCode.Known && s.ExitCode.Value != 0:
			b.Class, b.Title = "stage bad", b.Title+fmt.Sprintf(", exit code %d", s.ExitCode.Value)
		case s == most:
			b.Class = "stage most"
		}
		if s.Alongside {
			beside = append(beside, b)
		} else {
			own = append(own, b)
		}
	}
	ls := pack(nil, own)
	for i := range ls {
		ls[i].Name = "Stages"
	}
	ls = pack(ls, beside)
	for i := range ls {
		if ls[i].Name == "" {
			ls[i].Name = "Ran alongside"
		}
	}
	return ls
}

func rowQueue(r *cimeter.Record) float64 {
	row := RowOf(r)
	return row.Queue().Value
}

// costliest is the stage that took the most CPU time.
func costliest(r *cimeter.Record) *cimeter.Stage {
	var most *cimeter.Stage
	for i := range r.Stages {
		if s := &r.Stages[i]; s.Usage.CPUSeconds.Total.Value > 0 && (most == nil || s.Usage.CPUSeconds.Total.Value > most.Usage.CPUSeconds.Total.Value) {
			most = s
		}
	}
	return most
}

// stageLabel is a stage's name, with its attempt when it was retried.
func stageLabel(s *cimeter.Stage) string {
	label := name(s.Name)
	if label == "" {
		label = "(no name)"
	}
	if s.Attempt > 1 {
		label += fmt.Sprintf(" (%d)", s.Attempt)
	}
	return label
}

func (a axis) block(from, to float64, label, url string) block {
	x, end := clamp(a.share(from)), clamp(a.share(to))
	b := block{From: from, To: to, X: pct(x), W: pct(max(end-x, 0.0008)), Label: label, URL: url}
	if float64(len(label)) > (end-x)*letters {
		if b.Tiny = true; end < 0.93 {
			b.Beside = pct(end)
		}
	}
	return b
}

// maxLanes bounds the lanes: what a page can show.
const maxLanes = 12

// pack puts blocks on lanes after those of ls, each on the first where it
// overlaps nothing.
func pack(ls []lane, blocks []block) []lane {
	slices.SortStableFunc(blocks, func(a, b block) int {
		switch {
		case a.From < b.From:
			return -1
		case a.From > b.From:
			return 1
		}
		return 0
	})
	first := len(ls)
next:
	for _, b := range blocks {
		for i := first; i < len(ls); i++ {
			if last := ls[i].Blocks[len(ls[i].Blocks)-1]; b.From >= last.To-1e-3 {
				ls[i].Blocks = append(ls[i].Blocks, b)
				continue next
			}
		}
		if len(ls) < maxLanes {
			ls = append(ls, lane{Blocks: []block{b}})
		}
	}
	// A label beside its block must not run into the next block.
	for i := range ls {
		bs := ls[i].Blocks
		for j := range bs {
			if bs[j].Beside != "" && j+1 < len(bs) {
				bs[j].Beside = ""
			}
		}
	}
	return ls
}

func pct(share float64) string { return strconv.FormatFloat(100*share, 'f', 2, 64) + "%" }
