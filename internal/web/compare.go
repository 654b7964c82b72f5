package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// side is one of the two that are compared: a build, or the median of many.
type side struct {
	Record *cimeter.Record // of a median: its usage and its stages' are medians
	Link   link
	Median int // of how many builds; 0: of one
}

const wantSide = "want a build's key, median:20, last-green, or a branch such as main"

// resolve finds what a word means beside the build of another key.
func (p *Pages) resolve(ctx context.Context, word, other string) (side, error) {
	word = strings.TrimSpace(word)
	word = strings.TrimPrefix(word, "/builds/")
	if word == "" || len(word) > 4096 {
		return side{}, fmt.Errorf("%s: %w", wantSide, cimeter.ErrInvalid)
	}
	r, _, err := p.o.Source.Build(ctx, word)
	if err == nil {
		return side{Record: r, Link: link{label(&r.Build), buildURL(r.Key), title(r.Key)}}, nil
	}
	if !errors.Is(err, cimeter.ErrNotFound) {
		return side{}, err
	}
	of, _, err := p.o.Source.Build(ctx, strings.TrimPrefix(strings.TrimSpace(other), "/builds/"))
	if errors.Is(err, cimeter.ErrNotFound) {
		return side{}, fmt.Errorf("no build %s: %s: %w", display.Fit(word, 80, "…"), wantSide, cimeter.ErrNotFound)
	}
	if err != nil {
		return side{}, err
	}
	q := HistoryQuery{Project: of.Project, Name: of.Name, Before: of.EndedAt, Limit: peerCount}
	n, median := peerCount, false
	if count, ok := strings.CutPrefix(word, "median:"); ok || word == "median" {
		median = true
		if ok {
			if n, err = strconv.Atoi(count); err != nil || n < 2 || n > 100 {
				return side{}, fmt.Errorf("%s: want median:2 to median:100: %w", display.Fit(word, 40, "…"), cimeter.ErrInvalid)
			}
		}
		q.Limit = n
	} else if word == "last-green" {
		q.Limit = 100
	} else {
		q.Ref, q.Limit = word, 1
	}
	rs, err := p.o.Source.History(ctx, q)
	if err != nil {
		return side{}, err
	}
	rs = slices.DeleteFunc(rs, func(r *cimeter.Record) bool {
		return r.Key == of.Key || median && r.Result == "canceled" || word == "last-green" && r.Result != "success"
	})
	if len(rs) == 0 {
		return side{}, fmt.Errorf("no build before it for %s: %s: %w", display.Fit(word, 80, "…"), wantSide, cimeter.ErrNotFound)
	}
	if median {
		return side{Record: medianOf(rs), Link: link{fmt.Sprintf("median of %s", builds(int64(len(rs)))), href("/job", "project", of.Project, "name", of.Name), ""}, Median: len(rs)}, nil
	}
	return side{Record: rs[0], Link: link{label(&rs[0].Build), buildURL(rs[0].Key), title(rs[0].Key)}}, nil
}

// medianOf is a record whose figures are the medians of rs, stage by stage.
func medianOf(rs []*cimeter.Record) *cimeter.Record {
	m := &cimeter.Record{Complete: true, Build: cimeter.Build{Project: rs[0].Project, Name: rs[0].Name}, Limits: rs[0].Limits}
	var totals []*cimeter.Usage
	var queues []float64
	type stageKey struct {
		name    string
		attempt int
	}
	by := map[stageKey][]*cimeter.Usage{}
	var order []stageKey
	for _, r := range rs {
		totals = append(totals, &r.Usage)
		row := RowOf(r)
		if q := row.Queue(); q.Known {
			queues = append(queues, q.Value)
		}
		for i := range r.Stages {
			k := stageKey{r.Stages[i].Name, r.Stages[i].Attempt}
			if by[k] == nil {
				order = append(order, k)
				m.Stages = append(m.Stages, cimeter.Stage{Name: k.name, Attempt: k.attempt, Alongside: r.Stages[i].Alongside})
			}
			by[k] = append(by[k], &r.Stages[i].Usage)
		}
	}
	m.Usage = medianUsage(totals)
	for i, k := range order {
		m.Stages[i].Usage = medianUsage(by[k])
	}
	return m
}

func medianUsage(us []*cimeter.Usage) cimeter.Usage {
	of := func(f func(*cimeter.Usage) opt) opt {
		var vs []float64
		for _, u := range us {
			if v := f(u); v.Known {
				vs = append(vs, v.Value)
			}
		}
		if len(vs) == 0 {
			return opt{}
		}
		return some(spreadOf(vs).median)
	}
	u := cimeter.Usage{WallSeconds: of(func(u *cimeter.Usage) opt { return some(u.WallSeconds) }).Value}
	u.CPUSeconds.Total = of(func(u *cimeter.Usage) opt { return u.CPUSeconds.Total })
	u.CPUThrottledSeconds = of(func(u *cimeter.Usage) opt { return u.CPUThrottledSeconds })
	if p := of(peak); p.Known {
		u.MemoryBytes = &cimeter.MemoryStat{Peak: cimeter.Some(uint64(p.Value))}
	}
	if d := of(func(u *cimeter.Usage) opt {
		if u.IOBytes == nil {
			return opt{}
		}
		return some(float64(u.IOBytes.Read + u.IOBytes.Write))
	}); d.Known {
		u.IOBytes = &cimeter.ReadWrite[uint64]{Write: uint64(d.Value)}
	}
	if d := of(func(u *cimeter.Usage) opt {
		if u.NetworkBytes == nil {
			return opt{}
		}
		return some(float64(u.NetworkBytes.Receive + u.NetworkBytes.Transmit))
	}); d.Known {
		u.NetworkBytes = &cimeter.ReceiveTransmit[uint64]{Receive: uint64(d.Value)}
	}
	return u
}

type compareView struct {
	page
	A, B     string // as asked
	SideA    link
	SideB    link
	Swap     string
	Problem  string
	Notice   string
	Verdict  string
	Rows     []compareRow
	Totals   []compareRow
	Units    compareColumns
	Context  []contextRow
	Markdown string
	Spread   string
	timelineView
}

// timelineView is what the template of a timeline needs; the page of a build
// has the same fields.
type timelineView struct {
	Zoomed                 bool
	Whole, ZoomIn, ZoomOut string
	From, To               string
	Lanes                  []lane
	Bands                  []block
	Charts                 []chart
	XTicks                 []tick
	Trace                  string
	TraceRows              *traceTable
}

type compareColumns struct{ CPU, Wall, Memory string }

type compareRow struct {
	Name             string
	Only             string // A or B, when the other does not have it
	Small            bool   // within the spread
	CPUA, CPUB, CPU  string
	CPUBy            change
	WallA, WallB     string
	WallBy           change
	MemoryA, MemoryB string
	MemoryBy         change
	by               float64
}

type contextRow struct{ Label, A, B string }

func (p *Pages) compare(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	v := compareView{page: p.page(r, "Compare", "builds"), A: q.Get("a"), B: q.Get("b")}
	v.Crumbs = []link{{Text: "Builds", URL: "/builds"}}
	if marked := q["build"]; len(marked) == 2 { // the two marked in a list: the older is A
		http.Redirect(w, r, href("/compare", "a", marked[1], "b", marked[0]), http.StatusSeeOther)
		return nil
	} else if len(marked) > 0 {
		v.Problem = fmt.Sprintf("%d builds are marked: want two", len(marked))
	}
	if v.A == "" && v.B == "" {
		return p.render(w, r, http.StatusOK, "compare", v)
	}
	v.Swap = href("/compare", "a", v.B, "b", v.A)
	a, b, err := p.sides(r.Context(), v.A, v.B)
	if err != nil {
		if !errors.Is(err, cimeter.ErrInvalid) && !errors.Is(err, cimeter.ErrNotFound) {
			return err
		}
		v.Problem = display.Fit(strings.NewReplacer(": "+cimeter.ErrInvalid.Error(), "", ": "+cimeter.ErrNotFound.Error(), "").Replace(err.Error()), 400, "…")
		return p.render(w, r, http.StatusNotFound, "compare", v)
	}
	v.SideA, v.SideB = a.Link, b.Link
	if a.Record.Project != b.Record.Project || a.Record.Name != b.Record.Name {
		v.Notice = "These are different jobs."
	}
	var before []*cimeter.Record
	if of := b.Record; b.Median == 0 && of.Project != "" {
		if before, err = p.o.Source.History(r.Context(), HistoryQuery{Project: of.Project, Name: of.Name, Before: of.EndedAt, Limit: peerCount}); err != nil {
			return err
		}
	}
	v.fill(a, b, before)
	if a.Median == 0 && b.Median == 0 && a.Record.Trace != nil && b.Record.Trace != nil {
		v.Plots = true
		v.draw(a.Record, b.Record, q)
	}
	return p.render(w, r, http.StatusOK, "compare", v)
}

func (p *Pages) sides(ctx context.Context, a, b string) (sa, sb side, err error) {
	if sa, err = p.resolve(ctx, a, b); err != nil {
		return sa, sb, err
	}
	sb, err = p.resolve(ctx, b, a)
	return sa, sb, err
}

// stagePair joins the stages of two builds by name and attempt.
type stagePair struct {
	label string
	a, b  *cimeter.Usage
	name  string
}

func pairs(a, b *cimeter.Record) []stagePair {
	var ps []stagePair
	used := map[int]bool{}
	for i := range a.Stages {
		s := &a.Stages[i]
		p := stagePair{label: stageLabel(s), a: &s.Usage, name: s.Name}
		for j := range b.Stages {
			if t := &b.Stages[j]; !used[j] && t.Name == s.Name && t.Attempt == s.Attempt {
				used[j], p.b = true, &t.Usage
				break
			}
		}
		ps = append(ps, p)
	}
	for j := range b.Stages {
		if !used[j] {
			ps = append(ps, stagePair{label: stageLabel(&b.Stages[j]), b: &b.Stages[j].Usage, name: b.Stages[j].Name})
		}
	}
	return ps
}

func cpuOf(u *cimeter.Usage) opt {
	if u == nil {
		return opt{}
	}
	return u.CPUSeconds.Total
}

func wallOf(u *cimeter.Usage) opt {
	if u == nil {
		return opt{}
	}
	return some(u.WallSeconds)
}

func peakOf(u *cimeter.Usage) opt {
	if u == nil {
		return opt{}
	}
	return peak(u)
}

func (v *compareView) fill(a, b side, before []*cimeter.Record) {
	ps := pairs(a.Record, b.Record)
	ua, ub := &a.Record.Usage, &b.Record.Usage
	var cpus, walls, mems []opt
	for _, p := range append(ps, stagePair{a: ua, b: ub}) {
		cpus, walls, mems = append(cpus, cpuOf(p.a), cpuOf(p.b)), append(walls, wallOf(p.a), wallOf(p.b)), append(mems, peakOf(p.a), peakOf(p.b))
	}
	cc, wc, mc := timeColumn(largest(cpus...)), timeColumn(largest(walls...)), bytesColumn(largest(mems...))
	v.Units = compareColumns{cc.Unit, wc.Unit, mc.Unit}
	make := func(p stagePair, means bool) compareRow {
		ca, cb := cpuOf(p.a), cpuOf(p.b)
		row := compareRow{Name: p.label, CPUA: cc.cell(ca), CPUB: cc.cell(cb), CPU: dash, WallA: wc.cell(wallOf(p.a)), WallB: wc.cell(wallOf(p.b)), MemoryA: mc.cell(peakOf(p.a)), MemoryB: mc.cell(peakOf(p.b))}
		if ca.Known && cb.Known {
			d := cb.Value - ca.Value
			row.by, row.CPU = d, signed(d, cc)
			row.CPUBy = changeOf(cb.Value, ca.Value, means)
		} else {
			row.by = cb.Value - ca.Value
		}
		if x, y := wallOf(p.a), wallOf(p.b); x.Known && y.Known {
			row.WallBy = changeOf(y.Value, x.Value, false)
		}
		if x, y := peakOf(p.a), peakOf(p.b); x.Known && y.Known {
			row.MemoryBy = changeOf(y.Value, x.Value, math.Abs(y.Value-x.Value) >= 0.1*x.Value)
		}
		switch {
		case p.a == nil:
			row.Only = "only in B"
		case p.b == nil:
			row.Only = "only in A"
		default:
			row.Small = !means
		}
		return row
	}
	for _, p := range ps {
		s := spreadOf(stageValues(before, p.name))
		d := math.Abs(cpuOf(p.b).Value - cpuOf(p.a).Value)
		means := d > 3*s.mad && d >= 0.1*cpuOf(p.a).Value && d >= 0.05
		v.Rows = append(v.Rows, make(p, means))
	}
	slices.SortStableFunc(v.Rows, func(x, y compareRow) int { return cmp.Compare(math.Abs(y.by), math.Abs(x.by)) })
	total := spreadOf(totalValues(before))
	d := math.Abs(cpuOf(ub).Value - cpuOf(ua).Value)
	v.Totals = []compareRow{make(stagePair{label: "total", a: ua, b: ub}, d > 3*total.mad && d >= 0.1*cpuOf(ua).Value)}
	if total.n >= minPeers {
		v.Spread = fmt.Sprintf("Grey is within the spread of the job's last %d builds: under a tenth, or under three times their median deviation.", total.n)
	}
	v.Verdict = compareSentence(a, b, v.Rows, cc)
	v.context(a, b)
	v.Markdown = compareMarkdown(v, cc, wc, mc)
}

func stageValues(rs []*cimeter.Record, name string) []float64 {
	var vs []float64
	for _, r := range rs {
		if s := stageNamed(r, name); s != nil && s.Usage.CPUSeconds.Total.Known {
			vs = append(vs, s.Usage.CPUSeconds.Total.Value)
		}
	}
	return vs
}

func totalValues(rs []*cimeter.Record) []float64 {
	var vs []float64
	for _, r := range rs {
		if c := r.Usage.CPUSeconds.Total; c.Known {
			vs = append(vs, c.Value)
		}
	}
	return vs
}

func signed(d float64, c column) string {
	s := c.cell(some(math.Abs(d)))
	switch {
	case d > 0:
		return "+" + s
	case d < 0:
		return "−" + s
	}
	return s
}

// compareSentence is: B used 41 s more CPU (▲ 12 %), 38 s of it in step_script;
// memory the same; 9 s more queue.
func compareSentence(a, b side, rows []compareRow, cc column) string {
	var parts []string
	ca, cb := a.Record.Usage.CPUSeconds.Total, b.Record.Usage.CPUSeconds.Total
	if ca.Known && cb.Known {
		d := cb.Value - ca.Value
		s := "B used the same CPU"
		if math.Abs(d) >= 0.005*ca.Value {
			s = "B used " + cpuTime(math.Abs(d)) + " " + map[bool]string{true: "more", false: "less"}[d > 0] + " CPU"
			if c := changeOf(cb.Value, ca.Value, false); c.Text != "" {
				s += " (" + c.Text + ")"
			}
			if len(rows) > 1 && rows[0].by*d > 0 {
				s += ", " + cpuTime(math.Abs(rows[0].by)) + " of it in " + rows[0].Name
			}
		}
		parts = append(parts, s)
	}
	if x, y := peak(&a.Record.Usage), peak(&b.Record.Usage); x.Known && y.Known {
		if math.Abs(y.Value-x.Value) < 0.02*x.Value {
			parts = append(parts, "memory the same")
		} else {
			parts = append(parts, amount(math.Abs(y.Value-x.Value))+" "+map[bool]string{true: "more", false: "less"}[y.Value > x.Value]+" memory")
		}
	}
	if d := b.Record.Usage.WallSeconds - a.Record.Usage.WallSeconds; math.Abs(d) >= 1 {
		parts = append(parts, seconds(math.Abs(d))+" "+map[bool]string{true: "longer", false: "shorter"}[d > 0])
	}
	ra, rb := RowOf(a.Record), RowOf(b.Record)
	if x, y := ra.Queue(), rb.Queue(); x.Known && y.Known && math.Abs(y.Value-x.Value) >= 1 {
		parts = append(parts, seconds(math.Abs(y.Value-x.Value))+" "+map[bool]string{true: "more", false: "less"}[y.Value > x.Value]+" queue")
	}
	if len(parts) == 0 {
		return "There is nothing that both know."
	}
	return strings.Join(parts, "; ") + "."
}

// context is what differed around the two.
func (v *compareView) context(a, b side) {
	ra, rb := a.Record, b.Record
	limit := func(r *cimeter.Record, f func(*cimeter.Limits) string) string {
		if r.Limits == nil {
			return "none"
		}
		return f(r.Limits)
	}
	cpu := func(l *cimeter.Limits) string {
		if !l.CPUCores.Known {
			return "none"
		}
		return cores(l.CPUCores.Value)
	}
	mem := func(l *cimeter.Limits) string {
		if !l.MemoryBytes.Known {
			return "none"
		}
		return amount(float64(l.MemoryBytes.Value))
	}
	share := func(o opt) string {
		if !o.Known {
			return ""
		}
		return fmt.Sprintf("%.1f %%", 100*o.Value)
	}
	for _, c := range []contextRow{
		{"result", ra.Result, rb.Result}, {"ref", ra.Ref, rb.Ref}, {"commit", display.Fit(ra.SHA, 12, ""), display.Fit(rb.SHA, 12, "")}, {"event", ra.Event, rb.Event},
		{"machine", ra.Machine, rb.Machine}, {"runner", ra.Runner.Name, rb.Runner.Name},
		{"CPU limit", limit(ra, cpu), limit(rb, cpu)}, {"memory limit", limit(ra, mem), limit(rb, mem)},
		{"throttled", optional(ra.Usage.CPUThrottledSeconds, seconds), optional(rb.Usage.CPUThrottledSeconds, seconds)},
		{"coverage", share(ra.Coverage), share(rb.Coverage)},
	} {
		if c.A != c.B {
			c.A, c.B = orElse(name(c.A), dash), orElse(name(c.B), dash)
			v.Context = append(v.Context, c)
		}
	}
}

// compareMarkdown is the comparison as a table for a note. Names stand in code
// spans, and nothing else in it is a user's.
func compareMarkdown(v *compareView, cc, wc, mc column) string {
	code := func(s string) string {
		return "`" + strings.NewReplacer("`", "'", "|", "¦", "\n", " ", "<", "‹", ">", "›").Replace(s) + "`"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| stage | CPU A %s | CPU B %s | | time A %s | time B %s | memory A %s | memory B %s |\n|---|--:|--:|--:|--:|--:|--:|--:|\n", cc.Unit, cc.Unit, wc.Unit, wc.Unit, mc.Unit, mc.Unit)
	for _, r := range append(slices.Clone(v.Rows), v.Totals...) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", code(r.Name), r.CPUA, r.CPUB, r.CPUBy.Text, r.WallA, r.WallB, r.MemoryA, r.MemoryB)
	}
	return b.String()
}

// draw lays the two over one time axis, both from their start.
func (v *compareView) draw(a, b *cimeter.Record, q url.Values) {
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
	for _, r := range []*cimeter.Record{a, b} {
		for _, l := range lanes(r, x, to)[:1] {
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
		c.Plain = true
		if c.Series[0].Path == "" && c.Series[1].Path == "" {
			c.Absent = "Neither of the two has it."
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
	if err != nil {
		return err
	}
	x := compareAxis(a.Record, b.Record)
	out := traceJSON{From: x.From, To: x.To, Compare: true, Stages: []traceStage{}}
	step, cols := compareColumnsOf(a.Record, b.Record, x)
	out.Step = step
	for i, to := range []*[]jsonColumn{&out.CPU, &out.Memory, &out.Disk, &out.Net} {
		*to = []jsonColumn{cols[i][0], cols[i][1]}
	}
	return sendTrace(w, r, &out)
}
