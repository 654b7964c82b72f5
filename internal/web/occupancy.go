package web

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// occupancyBlocks bounds the builds that a place's lanes show, a block each: with
	// more of them it is how many ended in each hour or day.
	occupancyBlocks = 500
	// occupancyPieces are the links over the lanes.
	occupancyPieces = 24
	// laneWidth is the coordinates of a lane: whole numbers of it are finer than a pixel.
	laneWidth = 2000
)

// occupancy is a place's builds over time. A block is no element of its own, a page must
// stay small: links of pieces of the time lie over the lanes, each to the builds that
// ended in it, and the script points the one under the pointer at the build there, and
// goes from block to block by keys.
type occupancy struct {
	Lanes    []occupancyLane
	Pieces   []piece
	Counts   []piece // of builds that ended; where there are too many for lanes
	CountOf  string
	Most     string
	From, To int64 // seconds since 1970
	Note     string
	XTicks   []tick
}

// occupancyLane is a row of builds that ran one after the other.
type occupancyLane struct{ Paths []lanePath }

// lanePath are the builds of a lane that ended the same way, each a stroke of Path. Builds
// has a line for each: its key, as an address has it, what it is called and how long it
// took; Word is how they ended.
type lanePath struct{ Class, Word, Path, Builds string }

// piece is a part of the time with a link to its builds.
type piece struct{ X, W, Y, H, Path, URL, Title string }

// lanesOf puts builds on as many lanes as ran at once; list is the URL of those that
// ended in a time.
func lanesOf(rows []Row, from, to time.Time, list func(from, to time.Time) string) *occupancy {
	a := axis{0, to.Sub(from).Seconds()}
	if len(rows) == 0 || a.length() <= 0 {
		return nil
	}
	blocks := make([]block, 0, len(rows))
	words := map[string]string{}
	for i := range rows {
		r := &rows[i]
		res := resultOf(r.Result, r.Running)
		if words[res.Class] == "" {
			words[res.Class] = res.Word
		} else if words[res.Class] != res.Word { // canceled, or not known
			res.Class += " " + strings.ReplaceAll(res.Word, " ", "-")
			words[res.Class] = res.Word
		}
		blocks = append(blocks, block{From: r.StartedAt.Sub(from).Seconds(), To: r.EndedAt.Sub(from).Seconds(), URL: pathOf(r.Key), Class: res.Class,
			Title: label(&r.Build) + "\t" + optional(r.Wall(), seconds)})
	}
	o := &occupancy{From: from.Unix(), To: to.Unix(), XTicks: dateTicks(from, to)}
	for _, l := range pack(nil, blocks) {
		o.Lanes = append(o.Lanes, laneOf(l.Blocks, words, a))
	}
	length := to.Sub(from)
	for i := range occupancyPieces {
		start, end := from.Add(length*time.Duration(i)/occupancyPieces), from.Add(length*time.Duration(i+1)/occupancyPieces)
		o.Pieces = append(o.Pieces, piece{URL: list(start, end), Title: "builds that ended " + between(start, end)})
	}
	return o
}

func laneOf(blocks []block, words map[string]string, a axis) occupancyLane {
	paths := map[string]*[2]strings.Builder{}
	for _, b := range blocks {
		x0 := math.Floor(laneWidth * clamp(a.share(b.From)))
		x1 := max(math.Round(laneWidth*clamp(a.share(b.To))), x0+2)
		if x1 > x0+4 {
			x1-- // those that follow each other are told apart
		}
		p := paths[b.Class]
		if p == nil {
			p = &[2]strings.Builder{}
			paths[b.Class] = p
		}
		fmt.Fprintf(&p[0], "M%g 13h%g", x0, x1-x0)
		if p[1].Len() > 0 {
			p[1].WriteByte('\n')
		}
		p[1].WriteString(b.URL + "\t" + b.Title)
	}
	var l occupancyLane
	for _, class := range slices.Sorted(maps.Keys(paths)) {
		l.Paths = append(l.Paths, lanePath{class, words[class], paths[class][0].String(), paths[class][1].String()})
	}
	return l
}

// barChart is CPU time over a range, a bar for each bucket.
type barChart struct {
	Bars  []piece // to the builds that ended in each
	Ticks []tick
	Grid  string
	Unit  string
	Title string
	Rows  [][2]string // the same as a table
}

// barsOf draws the average number of busy cores in each bucket.
func barsOf(bs []Bucket, from, to time.Time, bucket time.Duration, list func(from, to time.Time) string) *barChart {
	if len(bs) == 0 || !to.After(from) {
		return nil
	}
	top := 0.0
	for _, b := range bs {
		top = max(top, b.CPUSeconds/bucket.Seconds())
	}
	if top == 0 {
		return nil
	}
	c := &barChart{Unit: "cores", Title: "CPU of builds, average of each " + bucketWord(bucket)}
	hi := top * 1.08
	length := float64(to.Sub(from))
	for _, b := range bs {
		end := b.Start.Add(bucket)
		x0, x1 := clamp(float64(b.Start.Sub(from))/length), clamp(float64(end.Sub(from))/length)
		cores := sig3(b.CPUSeconds / bucket.Seconds())
		c.Rows = append(c.Rows, [2]string{b.Start.UTC().Format("Jan 2 15:04"), cores})
		if b.Builds == 0 || x1 <= x0 {
			continue
		}
		gap := 0.08 * (x1 - x0)
		c.Bars = append(c.Bars, piece{Path: fmt.Sprintf("M%s %dV%sH%sV%dz", coord(plotWidth*(x0+gap)), plotHeight, coord(plotHeight*(1-b.CPUSeconds/bucket.Seconds()/hi)), coord(plotWidth*(x1-gap)), plotHeight),
			URL: list(b.Start, end), Title: cores + " cores, " + builds(b.Builds) + " ended " + between(b.Start, end)})
	}
	for _, t := range ticks(0, hi, 4) {
		c.Ticks = append(c.Ticks, tick{pct(1 - t/hi), short(t)})
		c.Grid += fmt.Sprintf("M0 %sH%d", coord(plotHeight*(1-t/hi)), plotWidth)
	}
	return c
}

// bucketOf is the grain of a range, some forty buckets of it at most: a page is to be
// small.
func bucketOf(from, to time.Time) time.Duration {
	const day = 24 * time.Hour
	switch length := to.Sub(from); {
	case length <= 2*day:
		return time.Hour
	case length <= 40*day:
		return day
	case length <= 40*7*day:
		return 7 * day
	}
	return 28 * day
}

func bucketWord(bucket time.Duration) string {
	switch {
	case bucket <= time.Hour:
		return "hour"
	case bucket <= 24*time.Hour:
		return "day"
	case bucket <= 7*24*time.Hour:
		return "week"
	}
	return "four weeks"
}

// countsOf is how many builds ended in each bucket.
func countsOf(bs []Bucket, from, to time.Time, bucket time.Duration, list func(from, to time.Time) string) *occupancy {
	o := &occupancy{From: from.Unix(), To: to.Unix(), XTicks: dateTicks(from, to), CountOf: bucketWord(bucket)}
	most := int64(0)
	for i := range bs {
		most = max(most, bs[i].Builds)
	}
	o.Most = builds(most)
	length := float64(to.Sub(from))
	for i := range bs {
		b := &bs[i]
		x0, x1 := clamp(float64(b.Start.Sub(from))/length), clamp(float64(b.Start.Add(bucket).Sub(from))/length)
		if b.Builds == 0 || x1 <= x0 {
			continue
		}
		share := float64(b.Builds) / float64(most)
		o.Counts = append(o.Counts, piece{X: pct(x0 + 0.04*(x1-x0)), W: pct(0.92 * (x1 - x0)), Y: pct(1 - 0.95*share), H: pct(0.95 * share), URL: list(b.Start, b.Start.Add(bucket)),
			Title: builds(b.Builds) + " ended " + between(b.Start, b.Start.Add(bucket))})
	}
	return o
}

func between(from, to time.Time) string {
	from, to = from.UTC(), to.UTC()
	form := "15:04"
	if from.YearDay() != to.YearDay() {
		form = "Jan 2 15:04"
	}
	return "from " + from.Format("Jan 2 15:04") + " to " + to.Format(form) + " UTC"
}

// minute is a time as the inputs and the addresses of lists have it.
func minute(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04")
}
