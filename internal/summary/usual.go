package summary

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cimeter/cimeter"
)

// Usual is what stages of a job cost in its last builds: medians. A figure that
// no build knows is absent.
type Usual struct {
	Builds          int `json:"builds"`
	WallSeconds     opt `json:"wall_seconds,omitzero"`
	CPUSeconds      opt `json:"cpu_seconds,omitzero"`
	MemoryPeakBytes opt `json:"memory_peak_bytes,omitzero"`
	// Now is the same of the build that is compared.
	Now Figures `json:"now,omitzero"`
}

// Figures are the costs of some stages together.
type Figures struct {
	WallSeconds     opt `json:"wall_seconds,omitzero"` // of those that others wait for
	CPUSeconds      opt `json:"cpu_seconds,omitzero"`
	MemoryPeakBytes opt `json:"memory_peak_bytes,omitzero"` // the largest
}

// History is what the last builds of a job cost, stage by stage.
type History struct{ builds []map[string]Figures }

// maxHistoryStages bounds what is kept of one build.
const maxHistoryStages = 64

// NewHistory keeps of builds what Usual needs; nil: there is none.
func NewHistory(records []*cimeter.Record) *History {
	if len(records) == 0 {
		return nil
	}
	h := &History{}
	for _, r := range records {
		stages := map[string]Figures{}
		for i := range r.Stages[:min(len(r.Stages), maxHistoryStages)] {
			s := &r.Stages[i]
			stages[s.Name] = stages[s.Name].with(s)
		}
		h.builds = append(h.builds, stages)
	}
	return h
}

// with adds a stage.
func (f Figures) with(s *cimeter.Stage) Figures {
	add := func(to *opt, v opt) {
		if v.Known {
			*to = some(to.Value + v.Value)
		}
	}
	if !s.Alongside {
		add(&f.WallSeconds, wall(&s.Usage, s.StartedAt, s.EndedAt))
	}
	add(&f.CPUSeconds, s.Usage.CPUSeconds.Total)
	if p := peak(&s.Usage); p.Known {
		f.MemoryPeakBytes = some(max(f.MemoryPeakBytes.Value, p.Value))
	}
	return f
}

// and is both together.
func (f Figures) and(o Figures) Figures {
	if o.WallSeconds.Known {
		f.WallSeconds = some(f.WallSeconds.Value + o.WallSeconds.Value)
	}
	if o.CPUSeconds.Known {
		f.CPUSeconds = some(f.CPUSeconds.Value + o.CPUSeconds.Value)
	}
	if o.MemoryPeakBytes.Known {
		f.MemoryPeakBytes = some(max(f.MemoryPeakBytes.Value, o.MemoryPeakBytes.Value))
	}
	return f
}

// Usual is what is usual of the stages that r has, which may still run: those
// are compared that most builds have too. nil: there is nothing to compare.
func (h *History) Usual(r *cimeter.Record) *Usual {
	if h == nil {
		return nil
	}
	now := map[string]Figures{}
	for i := range r.Stages {
		s := &r.Stages[i]
		now[s.Name] = now[s.Name].with(s)
	}
	u := &Usual{Builds: len(h.builds)}
	sums := make([]Figures, len(h.builds))
	found := false
	for stage, f := range now {
		has := 0
		for _, b := range h.builds {
			if _, ok := b[stage]; ok {
				has++
			}
		}
		if 2*has <= len(h.builds) {
			continue
		}
		found = true
		u.Now = u.Now.and(f)
		for i, b := range h.builds {
			sums[i] = sums[i].and(b[stage])
		}
	}
	if !found {
		return nil
	}
	middle := func(get func(*Figures) opt) opt {
		var vs []float64
		for i := range sums {
			if v := get(&sums[i]); v.Known {
				vs = append(vs, v.Value)
			}
		}
		if len(vs) == 0 {
			return opt{}
		}
		slices.Sort(vs)
		return some((vs[(len(vs)-1)/2] + vs[len(vs)/2]) / 2)
	}
	u.WallSeconds = middle(func(f *Figures) opt { return f.WallSeconds })
	u.CPUSeconds = middle(func(f *Figures) opt { return f.CPUSeconds })
	u.MemoryPeakBytes = middle(func(f *Figures) opt { return f.MemoryPeakBytes })
	return u
}

// Line is: CPU +12 %, time +3 %, memory -1 % against the median of 20 builds.
// "" is nothing to say.
func (u *Usual) Line() string {
	if u == nil || u.Builds < 1 {
		return ""
	}
	var parts []string
	for _, f := range []struct {
		what       string
		usual, now opt
	}{{"CPU", u.CPUSeconds, u.Now.CPUSeconds}, {"time", u.WallSeconds, u.Now.WallSeconds}, {"memory", u.MemoryPeakBytes, u.Now.MemoryPeakBytes}} {
		if s := relative(f.usual, f.now); s != "" {
			parts = append(parts, f.what+" "+s)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	against := fmt.Sprintf("the median of %d builds", u.Builds)
	if u.Builds == 1 {
		against = "the last build"
	}
	return strings.Join(parts, ", ") + " against " + against
}
