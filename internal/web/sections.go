package web

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/section"
)

// sectionTable is what the sections of the job's log divide the stages into.
type sectionTable struct {
	Headings []heading
	Rows     []sectionRow
	Note     string
}

type sectionRow struct {
	Name           link
	Indent         string
	Stage, StageOf string
	From, To       float64
	Wall, CPU      string
	Share, Bar     string // of its stage's CPU time
	Memory         string
	Disk, Net      string
}

// divide adds the sections of a build's log to its page: those that are kept, else,
// when they are asked for, those that the CI server tells: not at each look, as they
// have to be fetched.
func (p *Pages) divide(ctx context.Context, v *buildView, r *cimeter.Record, q url.Values, a axis, path string, to func(from, to float64) string) error {
	if p.o.Sections == nil || v.Running || len(r.Stages) == 0 {
		return nil
	}
	asked := q.Get("sections") == "on"
	parts, err := p.o.Sections(ctx, r, !asked)
	switch {
	case err == nil:
		v.Sections = sectionsOf(r, &parts, to)
		v.Lanes = append(v.Lanes, sectionLanes(r, &parts, a, to)...)
	case !errors.Is(err, cimeter.ErrNotFound):
		return err
	case asked:
		v.NoSections = "The job's log has no sections that divide a stage, or its CI server does not tell them."
	case r.CI == "gitlab": // others have none
		z := cloneValues(q)
		z.Set("sections", "on")
		v.SectionsURL = path + "?" + z.Encode() + "#stages"
	}
	return nil
}

// partName is how a part is called: the rest of a stage has no name.
func partName(p *section.Part) string {
	if p.Name == "" {
		return "the rest"
	}
	return name(p.Name)
}

func sectionsOf(r *cimeter.Record, parts *section.Parts, to func(from, to float64) string) *sectionTable {
	moved := func(u *cimeter.Usage) (disk, net opt) {
		if b := u.IOBytes; b != nil {
			disk = some(float64(b.Read) + float64(b.Write))
		}
		if b := u.NetworkBytes; b != nil {
			net = some(float64(b.Receive) + float64(b.Transmit))
		}
		return disk, net
	}
	stageCPU := map[string]float64{}
	var walls, cpus, mems, disks, nets []opt
	of := func(p *section.Part) string { return fmt.Sprintf("%s\x00%d", p.Stage, p.Attempt) }
	for i := range parts.Parts {
		p := &parts.Parts[i]
		d, n := moved(&p.Usage)
		walls, cpus, mems = append(walls, some(p.Usage.WallSeconds)), append(cpus, p.Usage.CPUSeconds.Total), append(mems, number(p.MemoryMaxBytes))
		disks, nets = append(disks, d), append(nets, n)
		stageCPU[of(p)] += p.Usage.CPUSeconds.Total.Value
	}
	wc, cc, mc, dc, nc := timeColumn(largest(walls...)), timeColumn(largest(cpus...)), bytesColumn(largest(mems...)), bytesColumn(largest(disks...)), bytesColumn(largest(nets...))
	t := &sectionTable{Headings: []heading{
		{Label: "section"}, {Label: "stage"}, {Label: "time", Unit: wc.Unit, Class: "n"}, {Label: "CPU", Unit: cc.Unit, Class: "n"}, {Label: "of the stage's CPU"},
		{Label: "memory", Unit: mc.Unit, Class: "n", Title: "the largest of the whole build meanwhile"}, {Label: "disk", Unit: dc.Unit, Class: "n"}, {Label: "net", Unit: nc.Unit, Class: "n"},
	}}
	for i := range parts.Parts {
		p := &parts.Parts[i]
		row := sectionRow{Stage: name(p.Stage), StageOf: title(p.Stage), Wall: wc.cell(walls[i]), CPU: cc.cell(cpus[i]), Memory: mc.cell(mems[i]), Disk: dc.cell(disks[i]), Net: nc.cell(nets[i]), Share: dash,
			From: p.StartedAt.Sub(r.StartedAt).Seconds(), To: p.EndedAt.Sub(r.StartedAt).Seconds()}
		row.Name = link{partName(p), to(row.From, row.To), title(p.Name)}
		if p.Depth > 0 {
			row.Indent = "inner"
		}
		if total := stageCPU[of(p)]; cpus[i].Known && total > 0 {
			row.Share, row.Bar = percent(cpus[i].Value/total), barPath(cpus[i].Value/total)
		}
		t.Rows = append(t.Rows, row)
	}
	t.Note = fmt.Sprintf("By the sections of the job's log: a border lies at most %s from where it truly was. What a stage spent is divided by its shape over time, so the parts are estimates that add up to it.", seconds(parts.ErrorSeconds))
	if c := parts.ClockSeconds; math.Abs(c) >= 0.05 {
		t.Note += fmt.Sprintf(" The log's clock was %s %s; that is taken off.", seconds(math.Abs(c)), map[bool]string{true: "ahead", false: "behind"}[c > 0])
	}
	return t
}

// sectionLanes puts the sections on a lane of their own under the stages.
func sectionLanes(r *cimeter.Record, parts *section.Parts, a axis, zoom func(from, to float64) string) []lane {
	l := lane{Name: "Sections of the log"}
	for i := range parts.Parts {
		p := &parts.Parts[i]
		from, to := p.StartedAt.Sub(r.StartedAt).Seconds(), p.EndedAt.Sub(r.StartedAt).Seconds()
		if p.Name == "" || to < a.From || from > a.To {
			continue
		}
		b := a.block(from, to, name(p.Name), zoom(from, to))
		b.Class, b.Title = "stage", name(p.Name)+", "+seconds(to-from)
		if c := p.Usage.CPUSeconds.Total; c.Known {
			b.Title += ", " + cpuTime(c.Value) + " CPU"
		}
		l.Blocks = append(l.Blocks, b)
	}
	if len(l.Blocks) == 0 {
		return nil
	}
	return []lane{l}
}
