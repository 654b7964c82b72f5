package web

import (
	"context"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/summary"
)

// spreadTable is what a build that works on several machines did on each of them.
type spreadTable struct {
	Headings []heading
	Rows     []buildRow
	All      buildRow
	whole    *cimeter.Record // what they did together, under the key of the page
}

// spread adds the machines of a build to its page where there are several: the rest of
// the page is of one of them.
func (p *Pages) spread(ctx context.Context, v *buildView, r *cimeter.Record, now time.Time) error {
	if p.o.Machines == nil || v.Running || v.Unmetered {
		return nil
	}
	parts, err := p.o.Machines(ctx, r.Key)
	if err != nil || len(parts) < 2 {
		return err
	}
	all := cimeter.Record{Usage: summary.Together(parts)}
	rows := make([]Row, 0, len(parts)+1)
	for _, part := range parts {
		rows = append(rows, RowOf(part))
	}
	rows = append(rows, RowOf(&all))
	cols := columnsOf(rows)
	t := &spreadTable{Headings: []heading{{Label: "machine"}, {Label: "result"}, {Label: "started"}, {Label: "time", Unit: cols.wall.Unit, Class: "n"}, {Label: "CPU", Unit: cols.cpu.Unit, Class: "n"},
		{Label: "memory", Unit: cols.memory.Unit, Class: "n", Title: "peak; of all machines, the largest of one"}, {Label: "disk", Unit: cols.disk.Unit, Class: "n"}, {Label: "net", Unit: cols.net.Unit, Class: "n"}}}
	names := summary.PartNames(parts)
	for i := range parts {
		row := cols.row(&rows[i], now)
		row.This = rows[i].Key == r.Key
		row.Build.Text, row.Build.Title = display.Fit(names[i], 40, "…"), title(names[i])
		t.Rows = append(t.Rows, row)
	}
	t.All = cols.row(&rows[len(parts)], now)
	t.whole = summary.Whole(parts)
	t.whole.Key = r.Key
	v.Spread = t
	v.Badges = append(v.Badges, badge{plural(len(parts), "machine"), "it worked on several machines: its figures are of all of them, its stages and charts of one", "", "#machines"})
	return nil
}

// holds reports whether a build is one of the parts in the table.
func (t *spreadTable) holds(key string) bool {
	if t == nil {
		return false
	}
	for i := range t.Rows {
		if t.Rows[i].ID == key {
			return true
		}
	}
	return false
}

func (t *spreadTable) len() int {
	if t == nil {
		return 0
	}
	return len(t.Rows)
}
