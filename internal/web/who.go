package web

import "slices"

// shares makes the shares of a table, which holds those alone that used the most, of all
// that was used; sums is nil, or of a part, where that is not known.
func (t *groupTable) shares(gs []Group, sums *Sums) {
	if sums == nil || sums.Partial {
		return
	}
	total := 0.0
	for i := range gs {
		total += gs[i].CPUSeconds
	}
	if total = max(total, sums.CPUSeconds); total <= 0 {
		return
	}
	for i := range t.Rows {
		t.Rows[i].Share, t.Rows[i].Bar = percent(gs[i].CPUSeconds/total), barPath(gs[i].CPUSeconds/total)
	}
	at := slices.IndexFunc(t.Headings, func(h heading) bool { return h.Label == "share" })
	t.Headings[at].Title = "of the CPU time of all builds in this time"
}

// pressures gives the groups of a table how long their builds waited, on average, of
// those that were read and know it.
func (t *groupTable) pressures(gs []Group, rows []Row) {
	type mean struct {
		sum float64
		n   int
	}
	by := map[[2]string]mean{}
	for i := range rows {
		if w, ok := rows[i].Waited.Get(); ok {
			k := [2]string{rows[i].Project, rows[i].Name}
			by[k] = mean{by[k].sum + w, by[k].n + 1}
		}
	}
	means := make([]opt, len(gs))
	for i := range gs {
		if m := by[[2]string{gs[i].Project, gs[i].Name}]; m.n > 0 {
			means[i] = some(m.sum / float64(m.n))
		}
	}
	col := timeColumn(largest(means...))
	for i := range t.Rows {
		t.Rows[i].Pressure = col.cell(means[i])
	}
	t.Pressure = true
	at := slices.IndexFunc(t.Headings, func(h heading) bool { return h.Label == "throttled" }) + 1
	t.Headings = slices.Insert(t.Headings, at, heading{Label: "mean pressure", Unit: col.Unit, Class: "n",
		Title: "time of a build in which some task of it waited for CPU, memory or disk, the largest of the three; of the latest builds"})
}
