package section_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/section"
)

var t0 = time.Date(2026, 8, 24, 10, 0, 0, 0, time.UTC)

func at(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }

// record has get_sources of 10 s and step_script of 90 s, in which the CPU is busy
// from 20 to 40 s alone.
func record() *cimeter.Record {
	r := &cimeter.Record{StartedAt: at(0), EndedAt: at(100), Trace: &cimeter.Trace{StepSeconds: 1}}
	for i := range 100 {
		cpu := int64(0)
		if i >= 20 && i < 40 {
			cpu = 1000
		}
		r.Trace.CPUMillicores = append(r.Trace.CPUMillicores, cimeter.Some(cpu))
		r.Trace.MemoryKiB = append(r.Trace.MemoryKiB, cimeter.Some(int64(i)*1024))
	}
	r.Stages = []cimeter.Stage{
		{Name: "get_sources", Attempt: 1, Boundary: cimeter.BoundaryContainer, StartedAt: at(0), EndedAt: at(10)},
		{Name: "step_script", Attempt: 1, Boundary: cimeter.BoundaryContainer, StartedAt: at(10), EndedAt: at(100), Usage: cimeter.Usage{
			WallSeconds: 90, CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(20.0), User: cimeter.Some(15.000000001)},
			IOBytes: &cimeter.ReadWrite[uint64]{Read: math.MaxUint64, Write: 7}, NetworkBytes: &cimeter.ReceiveTransmit[uint64]{Receive: 91},
		}},
		{Name: "service:postgres", Attempt: 1, Boundary: cimeter.BoundaryContainer, Alongside: true, StartedAt: at(0), EndedAt: at(100)},
	}
	return r
}

func log(stamped bool, sections ...section.Section) section.Log {
	return section.Log{Stamped: stamped, Sections: sections}
}

func sec(name string, from, to float64) section.Section {
	s := section.Section{Name: name, From: at(from), Stage: name == "get_sources" || name == "step_script" || name == "archive_cache"}
	if to > 0 {
		s.To = at(to)
	}
	return s
}

func told(p section.Parts) string {
	var lines []string
	for _, x := range p.Parts {
		lines = append(lines, fmt.Sprintf("%s/%s%s %g-%g cpu %g", x.Stage, strings.Repeat(">", x.Depth), x.Name, x.StartedAt.Sub(t0).Seconds(), x.EndedAt.Sub(t0).Seconds(), x.Usage.CPUSeconds.Total.Value))
	}
	return strings.Join(lines, "\n")
}

func TestSplit(t *testing.T) {
	for name, c := range map[string]struct {
		log  section.Log
		want []string
		off  float64
		err  float64
	}{
		"two sections": {log(true, sec("build", 20, 30), sec("test", 30, 60)), []string{
			"step_script/ 10-20 cpu 0", "step_script/build 20-30 cpu 10", "step_script/test 30-60 cpu 10", "step_script/ 60-100 cpu 0"}, 0, 0.1},
		"nested": {log(true, sec("all", 15, 90), sec("build", 20, 30)), []string{
			"step_script/ 10-15 cpu 0", "step_script/all 15-20 cpu 0", "step_script/>build 20-30 cpu 10", "step_script/all 30-90 cpu 10", "step_script/ 90-100 cpu 0"}, 0, 0.1},
		"broken off":              {log(true, sec("build", 35, 0)), []string{"step_script/ 10-35 cpu 15", "step_script/build 35-100 cpu 5"}, 0, 0.1},
		"over the stage's bounds": {log(true, sec("build", 5, 30)), []string{"step_script/build 10-30 cpu 10", "step_script/ 30-100 cpu 10", "get_sources/ 0-5 cpu 0", "get_sources/build 5-10 cpu 0"}, 0, 0.1},
		"outside of everything":   {log(true, sec("build", 200, 300), sec("past", -50, -20)), nil, 0, 0.1},
		"nothing":                 {log(true), nil, 0, 0.1},
		"a clock an hour ahead": {log(true, sec("get_sources", 3600, 3610), sec("step_script", 3610, 3700), sec("build", 3620, 3630)), []string{
			"step_script/ 10-20 cpu 0", "step_script/build 20-30 cpu 10", "step_script/ 30-100 cpu 10"}, 3600, 0.1},
		"a clock an hour behind, whole seconds, the job's own is right": {log(false, sec("get_sources", -3600, -3590), sec("step_script", -3590, -3500), sec("build", 20, 30)), []string{
			"step_script/ 10-20 cpu 0", "step_script/build 20-30 cpu 10", "step_script/ 30-100 cpu 10"}, -3600, 1},
		"a forged stage":              {log(true, sec("step_script", 30, 40), sec("archive_cache", 50, 60)), nil, 20, 0.1},
		"overlapping, not nested":     {log(true, sec("a", 20, 40), sec("b", 30, 50)), []string{"step_script/ 10-20 cpu 0", "step_script/a 20-30 cpu 10", "step_script/>b 30-40 cpu 10", "step_script/ 40-100 cpu 0"}, 0, 0.1},
		"a section that is the stage": {log(true, sec("all", 10, 100)), nil, 0, 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			p, ok := section.Split(record(), c.log)
			got := map[string]bool{}
			for l := range strings.SplitSeq(told(p), "\n") {
				got[l] = true
			}
			for _, l := range c.want {
				if !got[l] {
					t.Errorf("want %q in\n%s", l, told(p))
				}
			}
			if len(p.Parts) != len(c.want) || ok != (c.want != nil) || p.ClockSeconds != c.off || math.Abs(p.ErrorSeconds-c.err) > 1e-9 || p.Source != cimeter.BoundaryTrace {
				t.Errorf("%d parts, clock %g, error %g: want %d, %g, %g\n%s", len(p.Parts), p.ClockSeconds, p.ErrorSeconds, len(c.want), c.off, c.err, told(p))
			}
		})
	}
}

// A stage that only the order of things bounds is divided by the runner's sections.
func TestSplit_StagesOfOrder(t *testing.T) {
	r := record()
	r.Stages = r.Stages[1:2]
	r.Stages[0].Boundary, r.Stages[0].Name, r.Stages[0].StartedAt = cimeter.BoundaryOrder, "unknown", at(0)
	p, _ := section.Split(r, log(true, sec("get_sources", 0, 10), sec("step_script", 10, 100)))
	if got := told(p); got != "unknown/get_sources 0-10 cpu 0\nunknown/step_script 10-100 cpu 20" {
		t.Error(got)
	}
}

// Whatever the sections are, the parts of a stage follow one another and add up to it.
func TestSplit_Sums(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		r := record()
		if rnd.IntN(4) == 0 {
			r.Trace = nil
		}
		var l section.Log
		for range rnd.IntN(300) {
			from := rnd.Float64()*140 - 20
			l.Sections = append(l.Sections, sec(fmt.Sprint("s", rnd.IntN(5)), from, from+rnd.Float64()*60-5))
		}
		checkSums(t, r, l)
	}
}

func checkSums(t *testing.T, r *cimeter.Record, l section.Log) {
	t.Helper()
	p, ok := section.Split(r, l)
	if !ok {
		return
	}
	type sum struct {
		wall, cpu, user      int64
		read, write, receive uint64
		from, to             time.Time
		n                    int
	}
	sums := map[string]*sum{}
	ns := func(s float64) int64 { return int64(math.Round(s * 1e9)) }
	for _, x := range p.Parts {
		s := sums[x.Stage]
		if s == nil {
			s = &sum{from: x.StartedAt, to: x.StartedAt}
			sums[x.Stage] = s
		}
		if !x.StartedAt.Equal(s.to) || !x.EndedAt.After(x.StartedAt) {
			t.Fatalf("part %+v does not follow %v", x, s.to)
		}
		s.to = x.EndedAt
		s.n++
		u := x.Usage
		s.wall += ns(u.WallSeconds)
		s.cpu += ns(u.CPUSeconds.Total.Value)
		s.user += ns(u.CPUSeconds.User.Value)
		if u.IOBytes != nil {
			s.read += u.IOBytes.Read
			s.write += u.IOBytes.Write
		}
		if u.NetworkBytes != nil {
			s.receive += u.NetworkBytes.Receive
		}
		if u.CPUSeconds.System.Known || u.IOOperations != nil {
			t.Fatalf("knows what the stage does not: %+v", u)
		}
	}
	for _, st := range r.Stages {
		s := sums[st.Name]
		if s == nil {
			continue
		}
		if st.Alongside {
			t.Fatalf("a service is divided")
		}
		if !s.from.Equal(st.StartedAt) || !s.to.Equal(st.EndedAt) || s.wall != ns(st.Usage.WallSeconds) || s.cpu != ns(st.Usage.CPUSeconds.Total.Value) || s.user != ns(st.Usage.CPUSeconds.User.Value) {
			t.Fatalf("%s: %+v: want the stage's", st.Name, *s)
		}
		if b := st.Usage.IOBytes; b != nil && (s.read != b.Read || s.write != b.Write || s.receive != st.Usage.NetworkBytes.Receive) {
			t.Fatalf("%s: %+v: want %+v", st.Name, *s, b)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(10.0, 30.0, 20.0, 25.0, 1.0, int64(1000))
	f.Add(-1e9, 1e300, 0.0, -5.0, 1e-12, int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, a, b, c, d, step float64, cpu int64) {
		for _, v := range []float64{a, b, c, d} {
			if math.IsNaN(v) || math.Abs(v) > 1e9 {
				return
			}
		}
		r := record()
		r.Trace.StepSeconds = step
		for i := range r.Trace.CPUMillicores {
			r.Trace.CPUMillicores[i].Value *= cpu
		}
		checkSums(t, r, log(true, sec("a", a, b), sec("b", c, d), sec("step_script", b, c), sec("get_sources", d, a)))
	})
}

// What one section says of the log's clock moves nothing, nor what nobody's clock says.
func TestSplit_ForgedClock(t *testing.T) {
	r := record()
	r.Stages[1].EndedAt = at(90)
	r.Stages = append(r.Stages, cimeter.Stage{Name: "archive_cache", Attempt: 1, Boundary: cimeter.BoundaryContainer, StartedAt: at(90), EndedAt: at(100)})
	for name, forged := range map[string]section.Section{"an hour ahead": sec("archive_cache", 3690, 3700), "an hour behind": sec("archive_cache", -3510, -3500)} {
		if p, _ := section.Split(r, log(true, sec("get_sources", 0, 10), sec("step_script", 10, 90), sec("build", 20, 30), forged)); p.ClockSeconds != 0 || p.ErrorSeconds < 0.1 {
			t.Errorf("%s: clock %g, error %g: want the clock of the others", name, p.ClockSeconds, p.ErrorSeconds)
		}
	}
	if p, ok := section.Split(record(), log(true, sec("step_script", 1e6, 1e6+90), sec("build", 20, 30))); p.ClockSeconds != 0 || !ok {
		t.Errorf("clock %g, %v: want that no clock is eleven days ahead", p.ClockSeconds, ok)
	}
}
