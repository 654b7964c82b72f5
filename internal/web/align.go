package web

import (
	"math"
	"time"

	"github.com/cimeter/cimeter"
)

// alignByStages is the value of align in an address that asks for it.
const alignByStages = "stages"

// segment is a piece of a build's life, a stage and what follows it, in seconds since the
// build's start, and where it is shown. A stage that the build does not have is of no
// length.
type segment struct{ from, to, at float64 }

// align returns copies of two builds in which each stage that both have begins at the
// same time: the shorter of the two is followed by nothing until the longer ends. False:
// they have no stage in common.
func align(a, b *cimeter.Record) (x, y *cimeter.Record, ok bool) {
	as, bs := ownStages(a), ownStages(b)
	var sa, sb []segment
	total := 0.0
	add := func(p, q segment) {
		p.at, q.at = total, total
		sa, sb = append(sa, p), append(sb, q)
		total += max(p.to-p.from, q.to-q.from)
	}
	j := 0
	for i := range as {
		k := j
		for k < len(bs) && bs[k].name != as[i].name {
			k++
		}
		if k == len(bs) { // A alone has it
			add(as[i].segment, segment{})
			continue
		}
		for ; j < k; j++ {
			add(segment{}, bs[j].segment)
		}
		add(as[i].segment, bs[j].segment)
		j, ok = j+1, true
	}
	for ; j < len(bs); j++ {
		add(segment{}, bs[j].segment)
	}
	if !ok || total <= 0 {
		return nil, nil, false
	}
	return relaid(a, sa, total), relaid(b, sb, total), true
}

type ownStage struct {
	name string
	segment
}

// ownStages are a build's stages in order without those that ran alongside; each lasts
// until the next begins, the last until the build ends.
func ownStages(r *cimeter.Record) (stages []ownStage) {
	end := r.EndedAt.Sub(r.StartedAt).Seconds()
	for i := range r.Stages {
		s := &r.Stages[i]
		if s.Alongside || s.StartedAt.IsZero() || s.EndedAt.Before(s.StartedAt) {
			continue
		}
		from := s.StartedAt.Sub(r.StartedAt).Seconds()
		if n := len(stages); n > 0 {
			if from < stages[n-1].from {
				continue
			}
			stages[n-1].to = from
		}
		end = max(end, s.EndedAt.Sub(r.StartedAt).Seconds())
		stages = append(stages, ownStage{s.Name, segment{from: from}})
	}
	if n := len(stages); n > 0 {
		stages[n-1].to = max(end, stages[n-1].from)
	}
	return stages
}

// relaid is a copy of r whose stages and trace stand where their segments do.
func relaid(r *cimeter.Record, segments []segment, total float64) *cimeter.Record {
	c := *r
	c.Stages, c.QueuedAt = nil, time.Time{}
	c.EndedAt = c.StartedAt.Add(time.Duration(total * float64(time.Second)))
	c.Usage.WallSeconds = total
	for i := range r.Stages {
		s := r.Stages[i]
		from := s.StartedAt.Sub(r.StartedAt).Seconds()
		for _, g := range segments {
			if !s.Alongside && !s.StartedAt.IsZero() && g.to > g.from && math.Abs(from-g.from) < 1e-6 {
				by := time.Duration(math.Round((g.at-g.from)*1e6)) * time.Microsecond
				s.StartedAt, s.EndedAt = s.StartedAt.Add(by), s.EndedAt.Add(by)
				c.Stages = append(c.Stages, s)
				break
			}
		}
	}
	t := r.Trace
	if t == nil || !(t.StepSeconds > 0) {
		return &c
	}
	place := func(vs []cimeter.Opt[int64]) []cimeter.Opt[int64] {
		if len(vs) == 0 {
			return nil
		}
		out := make([]cimeter.Opt[int64], int(math.Ceil(total/t.StepSeconds)))
		for _, g := range segments {
			for i := int(g.at / t.StepSeconds); i < len(out); i++ {
				at := (float64(i)+0.5)*t.StepSeconds - g.at + g.from
				if at >= g.to {
					break
				}
				if k := int(at / t.StepSeconds); at >= g.from && k < len(vs) {
					out[i] = vs[k]
				}
			}
		}
		return out
	}
	c.Trace = &cimeter.Trace{StepSeconds: t.StepSeconds, CPUMillicores: place(t.CPUMillicores), MemoryKiB: place(t.MemoryKiB), IOReadBytesPerSecond: place(t.IOReadBytesPerSecond),
		IOWriteBytesPerSecond: place(t.IOWriteBytesPerSecond), NetworkReceivePerSec: place(t.NetworkReceivePerSec), NetworkTransmitPerSec: place(t.NetworkTransmitPerSec)}
	return &c
}
