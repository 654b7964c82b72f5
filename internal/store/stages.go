package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cimeter/cimeter"
)

// StageTotals are the sums of the stages of one job and day. They are kept in one
// value, which a writer reads, merges and writes: a record of ten stages is one
// row here, not ten.
type StageTotals struct {
	Project, Name string
	At            int64    // start of the day (UTC), microseconds
	Stages        []Rollup // by name, in C
}

// maxStageTotals bounds the jobs and days whose stages are grouped for all projects.
const maxStageTotals = 2500

// maxStageNames bounds the stages of a job and day: what more there are is summed
// up under no name.
const maxStageNames = 1000

// NewStageTotals sums up the stages of rows, without those that they replace,
// sorted: servers that write to the same totals take the locks in one order.
func NewStageTotals(rows []*Row, replaced ...*Row) []StageTotals {
	type key struct {
		project, name string
		at            int64
	}
	all := map[key]map[RollupKey]*Rollup{}
	put := func(rows []*Row, sign func(*Rollup) *Rollup) {
		for _, r := range rows {
			k := key{r.Project, r.Name, r.At - r.At%dayUS}
			for _, s := range r.Stages {
				if all[k] == nil {
					all[k] = map[RollupKey]*Rollup{}
				}
				stage := Rollup{Builds: 1, WallUS: known(s.WallUS), CPUUS: known(s.CPUUS), IO: known(s.IO), Net: known(s.Net), MemPeak: s.MemPeak, LastAt: r.At}
				add(all[k], RollupKey{C: s.Name}, sign(&stage))
			}
		}
	}
	put(rows, func(r *Rollup) *Rollup { return r })
	put(replaced, (*Rollup).negative)
	out := make([]StageTotals, 0, len(all))
	for k, sums := range all {
		t := StageTotals{Project: k.project, Name: k.name, At: k.at}
		for _, s := range sums {
			t.Stages = append(t.Stages, *s)
		}
		slices.SortFunc(t.Stages, func(x, y Rollup) int { return strings.Compare(x.C, y.C) })
		out = append(out, t)
	}
	slices.SortFunc(out, func(x, y StageTotals) int {
		return cmp.Or(strings.Compare(x.Project, y.Project), strings.Compare(x.Name, y.Name), cmp.Compare(x.At, y.At))
	})
	return out
}

// Merged is the stored form of t together with what is stored already; empty is
// nothing.
func (t *StageTotals) Merged(stored []byte) ([]byte, error) {
	sums := map[string]*Rollup{"": {MemPeak: -1}}
	merge := func(r *Rollup) {
		name := r.C
		if sums[name] == nil && len(sums) > maxStageNames {
			name = ""
		}
		if sums[name] == nil {
			sums[name] = &Rollup{RollupKey: RollupKey{C: name}, MemPeak: -1}
		}
		sums[name].merge(r)
	}
	if err := eachStage(stored, merge); err != nil {
		return nil, fmt.Errorf("totals of the stages of %s %s: %w", t.Project, t.Name, err)
	}
	for i := range t.Stages {
		merge(&t.Stages[i])
	}
	names := make([]string, 0, len(sums))
	for name, s := range sums {
		if s.Builds > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	b := make([]byte, 0, 64*len(names))
	for _, name := range names {
		s := sums[name]
		b = binary.AppendUvarint(b, uint64(len(name)))
		b = append(b, name...)
		for _, v := range []int64{s.Builds, s.WallUS, s.CPUUS, s.IO, s.Net, s.MemPeak, s.LastAt} {
			b = binary.AppendVarint(b, v)
		}
	}
	return b, nil
}

// eachStage calls fn with the sums of each stage of a stored form.
func eachStage(b []byte, fn func(*Rollup)) error {
	for len(b) > 0 {
		var r Rollup
		length, n := binary.Uvarint(b)
		if n <= 0 || length > uint64(len(b)-n) {
			return fmt.Errorf("damaged: %d bytes are left where a name begins: %w", len(b), cimeter.ErrInvalid)
		}
		r.C = string(b[n : n+int(length)])
		b = b[n+int(length):]
		for _, v := range []*int64{&r.Builds, &r.WallUS, &r.CPUUS, &r.IO, &r.Net, &r.MemPeak, &r.LastAt} {
			if *v, n = binary.Varint(b); n <= 0 {
				return fmt.Errorf("damaged: the sums of stage %.40q are cut: %w", r.C, cimeter.ErrInvalid)
			}
			b = b[n:]
		}
		fn(&r)
	}
	return nil
}

// stageGroups answers a question for groups by stage, which is valid.
func stageGroups(ctx context.Context, q Queryer, query GroupQuery) (Groups, error) {
	from, to := Micros(query.From), Micros(query.To)
	from, to = from-from%dayUS, to+(dayUS-to%dayUS)%dayUS
	s := statement{dialect: q.Dialect()}
	if query.Project == "" {
		// The values of all projects are bounded by nothing else.
		n := 0
		s.add("SELECT count(*) FROM (SELECT 1 FROM stage_totals b WHERE b.at >= ? AND b.at < ? LIMIT ?) counted", from, to, maxStageTotals+1)
		if err := s.run(ctx, q, func(scan func(dest ...any) error) error { return scan(&n) }); err != nil {
			return Groups{}, err
		}
		if n > maxStageTotals {
			return Groups{}, fmt.Errorf("groups by stage of all projects: there are more than %d jobs and days in that range: want a project, or a shorter range: %w", maxStageTotals, cimeter.ErrInvalid)
		}
		s = statement{dialect: q.Dialect()}
	}
	s.add("SELECT b.a, b.b, b.data FROM stage_totals b WHERE b.at >= ? AND b.at < ?", from, to)
	if query.Project != "" {
		s.add(" AND b.a = ?", Clean(query.Project))
	}
	if query.Name != "" {
		s.add(" AND b.b = ?", Clean(query.Name))
	}
	all := map[*[3]string]*sums{}
	names := map[[3]string]*[3]string{}
	err := s.run(ctx, q, func(scan func(dest ...any) error) error {
		var project, name string
		var data []byte
		if err := scan(&project, &name, &data); err != nil {
			return err
		}
		return eachStage(data, func(r *Rollup) {
			k := [3]string{project, name, r.C}
			p := names[k]
			if p == nil {
				p = &k
				names[k] = p
				all[p] = &sums{sumMemPeak: -1}
			}
			of := sumsOf(r)
			all[p].merge(&of)
		})
	})
	if err != nil {
		return Groups{}, err
	}
	return query.answer(all, from, to), nil
}
