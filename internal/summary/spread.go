package summary

import (
	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// Together is what the machines of one build spent, each of which has a record of its
// part: sums of what is known, and of memory, which no machine has of another, the
// largest peak of one. Its time is from the first start to the last end, by the
// machines' clocks.
func Together(parts []*cimeter.Record) cimeter.Usage {
	var u cimeter.Usage
	if len(parts) == 0 {
		return u
	}
	from, to := parts[0].StartedAt, parts[0].EndedAt
	for _, r := range parts {
		if r.StartedAt.Before(from) {
			from = r.StartedAt
		}
		if r.EndedAt.After(to) {
			to = r.EndedAt
		}
		of := &r.Usage
		if v, ok := of.CPUSeconds.Total.Get(); ok {
			u.CPUSeconds.Total = cimeter.Some(u.CPUSeconds.Total.Value + v)
		}
		if m := of.MemoryBytes; m != nil && m.Peak.Known && (u.MemoryBytes == nil || m.Peak.Value > u.MemoryBytes.Peak.Value) {
			u.MemoryBytes = &cimeter.MemoryStat{Peak: m.Peak}
		}
		if io := of.IOBytes; io != nil {
			if u.IOBytes == nil {
				u.IOBytes = new(cimeter.ReadWrite[uint64])
			}
			u.IOBytes.Read, u.IOBytes.Write = u.IOBytes.Read+io.Read, u.IOBytes.Write+io.Write
		}
		if net := of.NetworkBytes; net != nil {
			if u.NetworkBytes == nil {
				u.NetworkBytes = new(cimeter.ReceiveTransmit[uint64])
			}
			u.NetworkBytes.Receive, u.NetworkBytes.Transmit = u.NetworkBytes.Receive+net.Receive, u.NetworkBytes.Transmit+net.Transmit
		}
	}
	u.WallSeconds = max(0, to.Sub(from).Seconds())
	return u
}

// PartNames are the machines of the parts of a build, with the runner where a machine
// had several.
func PartNames(parts []*cimeter.Record) []string {
	count := map[string]int{}
	for _, r := range parts {
		count[r.Machine]++
	}
	names := make([]string, len(parts))
	for i, r := range parts {
		if names[i] = r.Machine; count[r.Machine] > 1 && r.Runner.Name != "" {
			names[i] += " " + r.Runner.Name
		}
	}
	return names
}

// maxMachines bounds the rows of machines.
const maxMachines = 20

// machines writes a row for each machine of a build that several worked on, and one of
// all of them. The rows of stages are of the machine with the star.
func (t *text) machines(c columns) {
	if len(t.o.Machines) < 2 {
		return
	}
	names := PartNames(t.o.Machines)
	for i, r := range t.o.Machines {
		if i == maxMachines {
			t.line("... and %d more machines", len(t.o.Machines)-i)
			break
		}
		mark := "on "
		if r.Key == t.r.Key {
			mark = "* "
		}
		t.row(mark+display.Fit(t.clean(names[i]), t.name-len(mark)-1, t.mark), wall(&r.Usage, r.StartedAt, r.EndedAt), &r.Usage, c)
	}
	all := Together(t.o.Machines)
	t.row("all machines", some(all.WallSeconds), &all, c)
}
