package storetest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/store"
)

// model is a store as simple as can be: what the real ones are held against.
type model struct {
	puts []store.Put
	// parts of builds that another record counts, by key; none for others.
	parts map[string]store.Part
}

// counts reports whether a record counts its build where a part is not to.
func (m *model) counts(p store.Put, part store.Part) bool { return m.parts[p.Record.Key]&part == 0 }

// at is the instant by which lists go.
func at(p store.Put) int64 { return min(p.Record.EndedAt.UnixMicro(), p.ReceivedAt.UnixMicro()) }

// cost is what a sort goes by; -1 is not known.
func cost(p store.Put, s store.Sort) int64 {
	r, u := p.Record, &p.Record.Usage
	switch s {
	case store.SortCPU:
		if v, ok := u.CPUSeconds.Total.Get(); ok {
			return int64(v * 1e6)
		}
	case store.SortWall:
		return int64(u.WallSeconds * 1e6)
	case store.SortMemory:
		if u.MemoryBytes != nil && u.MemoryBytes.Peak.Known {
			return int64(u.MemoryBytes.Peak.Value)
		}
	case store.SortIO:
		if u.IOBytes != nil {
			return int64(u.IOBytes.Read + u.IOBytes.Write)
		}
	case store.SortNet:
		if u.NetworkBytes != nil {
			return int64(u.NetworkBytes.Receive + u.NetworkBytes.Transmit)
		}
	case store.SortQueue:
		if !r.QueuedAt.IsZero() {
			return r.StartedAt.Sub(r.QueuedAt).Microseconds()
		}
	default:
		return at(p)
	}
	return -1
}

var costOf = map[filter.Field]store.Sort{filter.CPU: store.SortCPU, filter.Wall: store.SortWall, filter.Queue: store.SortQueue,
	filter.Memory: store.SortMemory, filter.IO: store.SortIO, filter.Net: store.SortNet}

func compare(v int64, op filter.Op, want int64) bool {
	switch op {
	case filter.Gt:
		return v > want
	case filter.Ge:
		return v >= want
	case filter.Lt:
		return v < want
	}
	return v <= want
}

func meets(p store.Put, t filter.Term) bool {
	r := p.Record
	is := func(v string) bool { return v == t.Text || t.Prefix && strings.HasPrefix(v, t.Text) }
	has := func(v string) bool { return strings.Contains(strings.ToLower(v), strings.ToLower(t.Text)) }
	ok := false
	switch t.Field {
	case filter.Text:
		ok = has(r.Project) || has(r.Name) || has(r.Ref) || r.Number == t.Text || strings.HasPrefix(r.Key, t.Text)
	case filter.Key:
		ok = is(r.Key)
	case filter.Project:
		ok = is(r.Project)
	case filter.Ref:
		ok = is(r.Ref)
	case filter.Job:
		ok = is(r.Name)
	case filter.Machine:
		ok = is(r.Machine)
	case filter.CI:
		ok = is(r.CI)
	case filter.Result:
		ok = is(r.Result)
	case filter.Event:
		ok = is(r.Event)
	case filter.Pipeline:
		ok = is(r.Pipeline)
	case filter.Runner:
		ok = t.Text == r.Runner.ID || t.Text == r.Runner.ShortToken || t.Text == r.Runner.Name
	case filter.Stage:
		ok = slices.ContainsFunc(r.Stages, func(s cimeter.Stage) bool { return s.Name == t.Text })
	case filter.Verdict:
		ok = slices.ContainsFunc(r.Verdicts, func(v cimeter.Verdict) bool { return v.Kind == t.Text })
	case filter.Since:
		ok = at(p) >= t.At.UnixMicro()
	case filter.Before:
		ok = at(p) < t.At.UnixMicro()
	default:
		v := cost(p, costOf[t.Field])
		if t.Unit == filter.Thousandths {
			ok = v >= 0 && r.Limits != nil && compare(v/1024*1000, t.Op, int64(r.Limits.MemoryBytes.Value)/1024*t.Number)
		} else {
			ok = v >= 0 && compare(v, t.Op, t.Number)
		}
	}
	return ok != t.Not
}

// find returns what meets a filter, sorted; builds of one value stand in any order.
func (m *model) find(f filter.Filter, s store.Sort, asc bool) []store.Put {
	var out []store.Put
	for _, p := range m.puts {
		if !slices.ContainsFunc(f, func(t filter.Term) bool { return !meets(p, t) }) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(x, y store.Put) int {
		if asc {
			x, y = y, x
		}
		return cmp.Compare(cost(y, s), cost(x, s))
	})
	return out
}
