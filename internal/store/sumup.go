package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
)

// sumParts bounds the parts of builds in a sum, each of which is looked up.
const sumParts = 2000

// summed is a build of a sum: a row, or several that are parts of one.
type summed struct {
	id, at      int64
	from, to    int64 // of all parts; to < from: not known
	queue       int64
	oom, failed bool
	canceled    bool
	costs       *costs // for points
}

// costs is what a point tells of a build; -1: not known.
type costs struct {
	result        string
	cpu, mem, max int64
}

func (b *summed) together(part *summed) {
	switch {
	case part.to < part.from:
	case b.to < b.from:
		b.from, b.to = part.from, part.to
	default:
		b.from, b.to = min(b.from, part.from), max(b.to, part.to)
	}
	b.oom = b.oom || part.oom
	if b.costs != nil && part.costs != nil {
		b.at = max(b.at, part.at)
		b.costs.mem, b.costs.max = max(b.costs.mem, part.costs.mem), max(b.costs.max, part.costs.max)
		if part.costs.cpu >= 0 {
			b.costs.cpu = max(0, b.costs.cpu) + part.costs.cpu
		}
	}
}

// SumUp adds up the builds that meet a filter, the latest first, up to a bound. Of parts
// of one build that meet it the costs are added and one build is counted: its time is from
// the first start to the last end, its result that of the first that was told.
func SumUp(ctx context.Context, q Queryer, f filter.Filter) (Sum, error) {
	sum, _, err := sumUp(ctx, q, f, sumRows, false)
	return sum, err
}

// Course adds up the latest builds that meet a filter as [SumUp] does, of at most so
// many, 1 to MaxExamine, and returns each of them as a point, the earliest end first.
func Course(ctx context.Context, q Queryer, f filter.Filter, most int) (Sum, []Point, error) {
	if most < 1 || most > MaxExamine {
		return Sum{}, nil, fmt.Errorf("course of %d builds: want 1 to %d: %w", most, MaxExamine, cimeter.ErrInvalid)
	}
	sum, builds, err := sumUp(ctx, q, f, most, true)
	if err != nil {
		return Sum{}, nil, err
	}
	points := make([]Point, 0, len(builds))
	for i := range builds {
		b := &builds[i]
		p := Point{EndedAt: Time(b.at), Result: b.costs.result, OOM: b.oom}
		if b.to >= b.from {
			p.WallSeconds = cimeter.Some(float64(b.to-b.from) / 1e6)
		}
		if b.costs.cpu >= 0 {
			p.CPUSeconds = cimeter.Some(float64(b.costs.cpu) / 1e6)
		}
		if b.costs.mem >= 0 {
			p.MemoryPeakBytes = cimeter.Some(b.costs.mem)
		}
		if b.costs.max > 0 {
			p.MemoryLimitBytes = cimeter.Some(b.costs.max)
		}
		points = append(points, p)
	}
	slices.SortStableFunc(points, func(x, y Point) int { return cmp.Compare(x.EndedAt.UnixMicro(), y.EndedAt.UnixMicro()) })
	return sum, points, nil
}

// sumUp adds up the latest builds of a filter, of at most so many rows, and returns
// them, with their costs where they are wanted.
func sumUp(ctx context.Context, q Queryer, f filter.Filter, most int, withCosts bool) (Sum, []summed, error) {
	names := []string{"id", "at", "result", "flags", "wall_us", "cpu_us", "queue_us", "throttled_us", "io_bytes", "net_bytes", "mem_peak"}
	if withCosts {
		names = append(names, "mem_limit")
	}
	sc := scan{sort: SortEnded, columns: columns("b.", names...), limit: most, examine: most}
	sum := Sum{}
	var builds, parts []summed
	add, peak := Rollup{}, int64(-1)
	cut := false
	next, err := sc.run(ctx, q, f, func(scan func(dest ...any) error) error {
		var result string
		var b summed
		var flags, wall, cpu, throttled, io, net, mem, limit int64
		dest := []any{&b.id, &b.at, &result, &flags, &wall, &cpu, &b.queue, &throttled, &io, &net, &mem}
		if withCosts {
			dest = append(dest, &limit)
		}
		if err := scan(dest...); err != nil {
			return err
		}
		if withCosts {
			b.costs = &costs{result, cpu, mem, limit}
		}
		if cut = cut || len(parts) == sumParts; cut {
			return nil
		}
		b.oom, b.failed, b.canceled = flags&flagKilled != 0, result == "failed", result == "canceled"
		b.from, b.to = b.at-wall, b.at
		if wall < 0 {
			b.from, b.to = 0, -1
		}
		if partOfFlags(flags)&AgainOfBuild == 0 {
			builds = append(builds, b)
		} else {
			parts = append(parts, b)
		}
		add.WallUS += known(wall)
		add.CPUUS += known(cpu)
		add.ThrottledUS += known(throttled)
		add.IO += known(io)
		add.Net += known(net)
		peak = max(peak, mem)
		return nil
	})
	if err != nil {
		return Sum{}, nil, err
	}
	if builds, err = together(ctx, q, builds, parts); err != nil {
		return Sum{}, nil, err
	}
	var waits, walls []int64
	for i := range builds {
		b := &builds[i]
		add.Builds++
		add.Failed += one(b.failed)
		add.Canceled += one(b.canceled)
		add.OOM += one(b.oom)
		if b.to >= b.from {
			walls = append(walls, b.to-b.from)
		}
		if b.queue >= 0 {
			waits = append(waits, b.queue)
			add.QueueUS += b.queue
			add.Queued++
		}
	}
	add.MemPeak = peak
	sum.Totals = add.totals()
	sum.Partial = next != "" || cut
	sum.WallP50, sum.WallP95 = quantile(walls, 0.5), quantile(walls, 0.95)
	sum.QueueP50, sum.QueueP95 = quantile(waits, 0.5), quantile(waits, 0.95)
	return sum, builds, nil
}

func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// together puts parts to the builds that they are of, where those are among builds, and
// those of one build together where not.
func together(ctx context.Context, q Queryer, builds, parts []summed) ([]summed, error) {
	if len(parts) == 0 {
		return builds, nil
	}
	place := make(map[int64]int, len(builds)) // in builds, of an id
	for i := range builds {
		place[builds[i].id] = i
	}
	keys, err := keysOf(ctx, q, parts)
	if err != nil {
		return nil, err
	}
	first, err := idsOf(ctx, q, keys)
	if err != nil {
		return nil, err
	}
	others := map[string]int{} // in builds, of a key whose own row is not there
	for i := range parts {
		key := keys[parts[i].id]
		at, ok := place[first[key]]
		if !ok {
			at, ok = others[key]
		}
		if ok {
			builds[at].together(&parts[i])
			continue
		}
		others[key] = len(builds)
		builds = append(builds, parts[i])
	}
	return builds, nil
}

// keysOf returns the keys of the builds that parts are of, by the parts' ids.
func keysOf(ctx context.Context, q Queryer, parts []summed) (map[int64]string, error) {
	ids, ats := make([]int64, len(parts)), make([]int64, len(parts))
	args := make([]any, len(parts))
	for i := range parts {
		ids[i], ats[i], args[i] = parts[i].id, parts[i].at, parts[i].id
	}
	s := statement{dialect: q.Dialect()}
	if s.dialect == Postgres {
		s.add("SELECT b.id, b.key FROM unnest(?::bigint[], ?::bigint[]) k (id, at) JOIN builds b ON b.id = k.id AND b.at = k.at", ids, ats)
	} else {
		s.add("SELECT id, key FROM builds WHERE id IN ("+marks(len(args))+")", args...)
	}
	keys := make(map[int64]string, len(parts))
	return keys, s.run(ctx, q, func(scan func(dest ...any) error) error {
		var id int64
		var key string
		err := scan(&id, &key)
		if build, ok := BuildOf(key); ok {
			key = build
		} else if i := strings.LastIndexByte(key, '/'); i > 0 {
			key = key[:i] // of a pod: see podOf
		}
		keys[id] = key
		return err
	})
}

// idsOf returns the ids of keys that are there.
func idsOf(ctx context.Context, q Queryer, keys map[int64]string) (map[string]int64, error) {
	ids := make(map[string]int64, len(keys))
	var names []string
	var args []any
	for _, key := range keys {
		if _, ok := ids[key]; !ok {
			ids[key] = -1 // of no build
			names, args = append(names, key), append(args, key)
		}
	}
	s := statement{dialect: q.Dialect()}
	if s.dialect == Postgres {
		s.add("SELECT key, id FROM build_keys WHERE key = ANY(?::text[])", names)
	} else {
		s.add("SELECT key, id FROM builds WHERE key IN ("+marks(len(args))+")", args...)
	}
	return ids, s.run(ctx, q, func(scan func(dest ...any) error) error {
		var key string
		var id int64
		err := scan(&key, &id)
		ids[key] = id
		return err
	})
}
