package web

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter/internal/queue"
)

// nowFigure is a number of the line over the machines: it leads to what it counts, and so
// does what is said beside it.
type nowFigure struct {
	Label string
	Value link
	Warn  *link
	Notes []link
}

// status is the line over the machines.
func (v *nowView) status(ms []Machine, gone int, now time.Time) {
	stale, running, unknown, cpus := 0, 0, 0, 0
	used := 0.0
	var worst, oldest *Machine
	for i := range ms {
		m := &ms[i]
		if m.stale(now) {
			stale++
			unknown += m.runs()
			continue
		}
		running += m.runs()
		cpus += m.CPUs
		used += m.busy().Value
		if m.Coverage.Known && (worst == nil || m.Coverage.Value < worst.Coverage.Value) {
			worst = m
		}
		if oldest == nil || m.LastSeen.Before(oldest.LastSeen) {
			oldest = m
		}
	}
	machines := nowFigure{Label: "machines", Value: link{plural(len(ms), "machine"), "/machines", ""}}
	if stale > 0 {
		machines.Warn = &link{fmt.Sprintf("%d silent", stale), "/machines?state=silent", "nothing was heard of it for three of its intervals"}
	}
	of := nowFigure{Label: "builds", Value: link{Text: "none running"}}
	if running > 0 {
		of.Value = link{plural(running, "build") + " running", "/?show=running", ""}
	}
	if unknown > 0 {
		of.Warn = &link{plural(unknown, "build") + " unknown", "/?show=silent", "they ran when their machines were last heard of"}
	}
	v.Status = append(v.Status, machines, of)
	if cpus > 0 {
		v.Status = append(v.Status, nowFigure{Label: "CPU in use", Value: link{fmt.Sprintf("%s of %d cores", sig3(used), cpus), "/?sort=-cpu", ""}})
	}
	if worst != nil {
		v.Status = append(v.Status, nowFigure{Label: "least coverage", Value: link{fmt.Sprintf("%.1f %%", 100*worst.Coverage.Value), "/machines?sort=coverage", "share of a machine's CPU time that was attributed to builds while they ran"},
			Notes: []link{{"on " + name(worst.Name), href("/machine", "name", worst.Name), title(worst.Name)}}})
	}
	if oldest != nil {
		v.Status = append(v.Status, nowFigure{Label: "data", Value: link{strings.TrimSuffix(ago(now, oldest.LastSeen), " ago") + " old", "/machines?state=reports", "the oldest heartbeat of those that are not silent"}})
	}
	if gone > 0 {
		v.Gone = plural(gone, "machine") + " not seen for ten minutes"
	}
}

// waiting adds what waits, since when and for what; nothing where no CI server tells.
func (v *nowView) waiting(st *queue.State) {
	waiting, oldest, known := 0, 0.0, false
	why := map[queue.Why]int{}
	for i := range st.Servers {
		if w := st.Servers[i].Waiting; w.Known {
			waiting, known = waiting+w.Value, true
		}
	}
	if !known {
		return
	}
	for i := range st.Builds {
		if b := &st.Builds[i]; inQueue(b) {
			why[b.Why]++
			oldest = max(oldest, b.Waited.Value)
		}
	}
	f := nowFigure{Label: "waiting", Value: link{plural(waiting, "build"), "/queue", ""}}
	if waiting > 0 {
		f.Notes = []link{{"oldest " + seconds(oldest), "/queue#queue-list", ""}}
		reasons := slices.Clone(whyWords)
		slices.SortStableFunc(reasons, func(a, b reason) int { return cmp.Compare(why[b.why], why[a.why]) })
		for _, w := range reasons[:3] {
			if n := why[w.why]; n > 0 {
				f.Notes = append(f.Notes, link{fmt.Sprintf("%d %s", n, w.word), queueURL(nil, "why", w.param) + "#queue-list", w.means})
			}
		}
	}
	v.Status = slices.Insert(v.Status, 2, f)
}
