package web

import (
	"math"
	"net/http"
	"net/url"
	"slices"

	"github.com/cimeter/cimeter"
)

// draw lays the two over one time axis, both from their start, or each stage from its.
func (v *compareView) draw(a, b *cimeter.Record, q url.Values) {
	byStage := q.Get("align") == alignByStages
	if x, y, ok := align(a, b); ok {
		z := cloneValues(q)
		for _, key := range []string{"from", "to", "align"} {
			z.Del(key)
		}
		v.Aligns = []choice{{link{"from the start", "/compare?" + z.Encode() + "#timeline", "seconds since each began"}, !byStage}}
		z.Set("align", alignByStages)
		v.Aligns = append(v.Aligns, choice{link{"stage by stage", "/compare?" + z.Encode() + "#timeline", "each stage of the two begins at the same place"}, byStage})
		if byStage {
			a, b = x, y
		}
	} else {
		byStage = false
	}
	whole := compareAxis(a, b)
	x, zoomed, bad := whole.zoomed(q)
	if bad != "" {
		v.Problem = bad
	}
	to := func(from, to float64) string {
		z := cloneValues(q)
		z.Set("from", short(from))
		z.Set("to", short(to))
		return "/compare?" + z.Encode() + "#timeline"
	}
	v.Zoomed, v.From, v.To, v.XTicks = zoomed, short(x.From), short(x.To), xTicks(x)
	mid, half := (x.From+x.To)/2, x.length()/2
	v.ZoomIn, v.ZoomOut = to(mid-half/2, mid+half/2), to(max(whole.From, mid-2*half), min(whole.To, mid+2*half))
	z := cloneValues(q)
	z.Del("from")
	z.Del("to")
	v.Whole = "/compare?" + z.Encode() + "#timeline"
	v.Trace = href("/trace", "a", v.A, "b", v.B)
	if byStage {
		v.Trace = href("/trace", "a", v.A, "b", v.B, "align", alignByStages)
		v.AlignNote = "Each stage of the two begins at the same place; where one took less time, nothing is drawn until the other ends. The axis adds up the longer of each."
	}
	for _, r := range []*cimeter.Record{a, b} {
		ls := lanes(r, x, to)
		for _, l := range ls[:min(1, len(ls))] {
			l.Name = "Stages of " + map[bool]string{true: "A", false: "B"}[r == a]
			l.Blocks = slices.DeleteFunc(l.Blocks, func(b block) bool { return b.Class == "queue" })
			v.Lanes = append(v.Lanes, l)
		}
	}
	step, cols := compareColumnsOf(a, b, whole)
	for i, c := range []chart{{ID: "cpu", Title: "CPU", Unit: "cores"}, {ID: "mem", Title: "Memory"}, {ID: "disk", Title: "Disk"}, {ID: "net", Title: "Network"}} {
		scale := []float64{0.001, kib, 1, 1}[i]
		ya, yb := floats(cols[i][0], scale), floats(cols[i][1], scale)
		c.Series = []series{{Label: "A", Class: c.ID, ys: ya, Now: ""}, {Label: "B", Class: c.ID + " dash", ys: yb}}
		_, hi := extent(c.Series)
		u := 1.0
		if c.ID != "cpu" {
			c.Unit, u = unit(max(hi, kib))
			if c.ID != "mem" {
				c.Unit += "/s"
			}
		}
		c.scale(step, x, opt{}, u, nil)
		t := cloneValues(q)
		t.Del("tpage")
		if c.TableOn = q.Get("table") == c.ID; c.TableOn {
			t.Del("table")
		} else {
			t.Set("table", c.ID)
		}
		c.Table = "/compare?" + t.Encode() + "#" + c.ID
		if c.Series[0].Path == "" && c.Series[1].Path == "" {
			c.Absent = "Neither of the two has it."
		} else if c.TableOn {
			v.TraceRows = traceRows(&c, step, x, q, "/compare")
		}
		v.Charts = append(v.Charts, c)
	}
}

func compareAxis(a, b *cimeter.Record) axis {
	return axis{0, max(wholeAxis(a).To, wholeAxis(b).To)}
}

// compareSteps is how many steps the traces of two builds are brought to.
const compareSteps = 128

// compareColumnsOf brings both traces to one step: CPU, memory, disk, network,
// each of A and B.
func compareColumnsOf(a, b *cimeter.Record, x axis) (step float64, cols [4][2][]cimeter.Opt[int64]) {
	step = x.To / compareSteps
	add := func(p, q []cimeter.Opt[int64]) []cimeter.Opt[int64] {
		sum := make([]cimeter.Opt[int64], max(len(p), len(q)))
		for i := range sum {
			if i < len(p) && p[i].Known {
				sum[i] = p[i]
			}
			if i < len(q) && q[i].Known {
				sum[i] = cimeter.Some(sum[i].Value + q[i].Value)
			}
		}
		return sum
	}
	for i, r := range []*cimeter.Record{a, b} {
		t := r.Trace
		if t == nil || t.StepSeconds <= 0 {
			continue
		}
		for k, c := range [][]cimeter.Opt[int64]{t.CPUMillicores, t.MemoryKiB, add(t.IOReadBytesPerSecond, t.IOWriteBytesPerSecond), add(t.NetworkReceivePerSec, t.NetworkTransmitPerSec)} {
			cols[k][i] = resample(c, t.StepSeconds, step)
		}
	}
	return step, cols
}

// resample gives vs another step: each new step takes the mean of the old ones
// whose middle lies in it, or the one that its own middle lies in.
func resample(vs []cimeter.Opt[int64], from, to float64) []cimeter.Opt[int64] {
	if len(vs) == 0 {
		return nil
	}
	out := make([]cimeter.Opt[int64], min(compareSteps, int(math.Ceil(float64(len(vs))*from/to))))
	for i := range out {
		lo, hi := int(float64(i)*to/from), int(math.Ceil(float64(i+1)*to/from))
		var sum, n int64
		for j := max(0, lo); j < min(hi, len(vs)); j++ {
			if mid := (float64(j) + 0.5) * from; vs[j].Known && (hi-lo <= 1 || mid >= float64(i)*to && mid < float64(i+1)*to) {
				sum, n = sum+vs[j].Value, n+1
			}
		}
		if at := int((float64(i) + 0.5) * to / from); n == 0 && at < len(vs) && vs[at].Known {
			sum, n = vs[at].Value, 1
		}
		if n > 0 {
			out[i] = cimeter.Some(sum / n)
		}
	}
	return out
}

// compareTrace is GET /trace?a=&b=: the two traces on one axis.
func (p *Pages) compareTrace(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	a, b, err := p.sides(r.Context(), q.Get("a"), q.Get("b"))
	if err == nil {
		err = p.traced(r.Context(), &a, &b)
	}
	if err != nil {
		return err
	}
	if q.Get("align") == alignByStages {
		if x, y, ok := align(a.Record, b.Record); ok {
			a.Record, b.Record = x, y
		}
	}
	x := compareAxis(a.Record, b.Record)
	out := traceJSON{From: x.From, To: x.To, Compare: true, Stages: []traceStage{}}
	step, cols := compareColumnsOf(a.Record, b.Record, x)
	out.Step = step
	for i, to := range []*[]jsonColumn{&out.CPU, &out.Memory, &out.Disk, &out.Net} {
		*to = []jsonColumn{cols[i][0], cols[i][1]}
	}
	return p.sendTrace(w, r, &out)
}
