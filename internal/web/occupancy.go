package web

import (
	"fmt"
	"strings"
	"time"
)

const (
	// occupancyBlocks bounds the builds that a place's lanes show, a block each: with
	// more of them it is how many ended in each hour or day.
	occupancyBlocks = 250
	// occupancyPieces are the links over the lanes.
	occupancyPieces = 24
)

// occupancy is a place's builds over time. A block is no element of its own, a page must
// stay small: links of pieces of the time lie over the lanes, each to the builds that
// ended in it, and the script points the one under the pointer at the build there.
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

// occupancyLane is a row of builds that ran one after the other. Blocks has a line for
// each: where it begins and ends, in parts of plotWidth, its page and its title.
type occupancyLane struct {
	Paths  []chartLine
	Blocks string
}

// piece is a part of the time with a link to its builds.
type piece struct{ X, W, Y, H, URL, Title string }

// lanesOf puts builds on as many lanes as ran at once; list is the URL of those that
// ended in a time.
func lanesOf(rows []Row, from, to time.Time, list func(from, to time.Time) string) *occupancy {
	a := axis{0, to.Sub(from).Seconds()}
	if len(rows) == 0 || a.length() <= 0 {
		return nil
	}
	blocks := make([]block, 0, len(rows))
	for i := range rows {
		r := &rows[i]
		res := resultOf(r.Result, r.Running)
		blocks = append(blocks, block{From: r.StartedAt.Sub(from).Seconds(), To: r.EndedAt.Sub(from).Seconds(), URL: buildURL(r.Key), Class: res.Class,
			Title: label(&r.Build) + ", " + res.Word + ", " + optional(r.Wall(), seconds)})
	}
	o := &occupancy{From: from.Unix(), To: to.Unix(), XTicks: dateTicks(from, to)}
	for _, l := range pack(nil, blocks) {
		o.Lanes = append(o.Lanes, laneOf(l.Blocks, a))
	}
	length := to.Sub(from)
	for i := range occupancyPieces {
		start, end := from.Add(length*time.Duration(i)/occupancyPieces), from.Add(length*time.Duration(i+1)/occupancyPieces)
		o.Pieces = append(o.Pieces, piece{X: pct(float64(i) / occupancyPieces), W: pct(1.0 / occupancyPieces), URL: list(start, end), Title: "builds that ended " + between(start, end)})
	}
	return o
}

func laneOf(blocks []block, a axis) occupancyLane {
	var l occupancyLane
	var told strings.Builder
	paths := map[string]*strings.Builder{}
	for _, b := range blocks {
		x0, x1 := plotWidth*clamp(a.share(b.From)), plotWidth*clamp(a.share(b.To))
		x1 = max(x1, x0+1)
		if paths[b.Class] == nil {
			paths[b.Class] = &strings.Builder{}
		}
		fmt.Fprintf(paths[b.Class], "M%s 1H%sV25H%sz", coord(x0), coord(max(x0+0.8, x1-0.4)), coord(x0))
		fmt.Fprintf(&told, "%s\t%s\t%s\t%s\n", coord(x0), coord(x1), b.URL, b.Title)
	}
	for _, class := range []string{"ok", "bad", "off", "running", ""} {
		if p := paths[class]; p != nil {
			l.Paths = append(l.Paths, chartLine{Class: class, Path: p.String()})
		}
	}
	l.Blocks = strings.TrimSuffix(told.String(), "\n")
	return l
}

// countsOf is how many builds ended in each bucket.
func countsOf(bs []Bucket, from, to time.Time, bucket time.Duration, list func(from, to time.Time) string) *occupancy {
	o := &occupancy{From: from.Unix(), To: to.Unix(), XTicks: dateTicks(from, to), CountOf: "day"}
	if bucket <= time.Hour {
		o.CountOf = "hour"
	}
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
	return "from " + from.UTC().Format("Jan 2 15:04") + " to " + to.UTC().Format("15:04") + " UTC"
}

// minute is a time as the inputs and the addresses of lists have it.
func minute(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04")
}
