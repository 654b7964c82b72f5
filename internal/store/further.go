package store

import (
	"net/url"
	"slices"
	"strings"

	"github.com/cimeter/cimeter"
)

// Part says what a row is no first of: builds are counted by what is the first of one,
// while what all rows cost adds up.
type Part int64

// The parts.
const (
	// AgainOfBuild: the build is counted with another row.
	AgainOfBuild Part = 1 << iota
	// AgainOnMachine: the build is counted on this machine with another row.
	AgainOnMachine
	// AgainOnRunner: the build is counted on this runner with another row.
	AgainOnRunner
	// AgainKilled: that something in the build was killed for memory is counted with
	// another row.
	AgainKilled
)

// flagKilled is the bit of a row's flags, below those of its part, that says that
// something in it was killed for memory.
const flagKilled, partBit = 1, 1

// FlagAgain is the bit of the flags of rows that count no build.
const FlagAgain = int64(AgainOfBuild) << partBit

// Counted is how many builds rows count.
func Counted(rows []*Row) (n int) {
	for _, r := range rows {
		if r.Part&AgainOfBuild == 0 {
			n++
		}
	}
	return n
}

// Flags is what the column flags holds.
func (r *Row) Flags() int64 { return r.OOM*flagKilled | int64(r.Part)<<partBit }

// partOfFlags is the part in what a column holds.
func partOfFlags(flags int64) Part { return Part(flags >> partBit) }

// Recorded is the record that the row was made of.
func (r *Row) Recorded() *cimeter.Record { return r.put.Record }

// Again reports whether two records of one key tell of the same work: of one machine,
// of one runner and, in part, of the same time. What either does not know of machine and
// runner is taken for the same. An agent closes a build's record once, so that one sent
// again is one told again; two agents on a machine see a build at the same time.
func Again(x, y *cimeter.Record) bool {
	differs := func(x, y string) bool { return x != "" && y != "" && x != y }
	if differs(x.Machine, y.Machine) || differs(x.Runner.Key(), y.Runner.Key()) {
		return false
	}
	return x.StartedAt.Equal(y.StartedAt) || x.StartedAt.Before(y.EndedAt) && y.StartedAt.Before(x.EndedAt)
}

// Further returns the row of a record whose key is kept already, where kept is what is
// there of that key and of its parts: the same under the key of its machine, or of its
// machine and start, or nil where it was told before. No two are told apart by the order
// in which they come, but for who has the shorter key.
func Further(r *Row, kept []*cimeter.Record) (*Row, error) {
	mine := r.put.Record
	if r.Metered == 0 || slices.ContainsFunc(kept, func(other *cimeter.Record) bool { return Again(mine, other) }) {
		return nil, nil
	}
	p := r.put
	record := *mine
	p.Record = &record
	record.Key = MachineKey(r.Key, r.Machine)
	part := Part(0)
	for _, other := range kept {
		onOne := other.Machine == mine.Machine || other.Machine == "" || mine.Machine == ""
		if onOne {
			record.Key = PartKey(r.Key, r.Machine, mine.StartedAt)
		}
		if !sameBuild(mine, other) {
			continue
		}
		part |= AgainOfBuild
		if onOne {
			part |= AgainOnMachine
			if other.Runner.Key() == mine.Runner.Key() {
				part |= AgainOnRunner
			}
		}
		if killed(other) {
			part |= AgainKilled
		}
	}
	row, err := NewRow(p)
	if err != nil {
		return nil, err
	}
	row.Part = part
	return row, nil
}

// killed reports whether something in a build was killed for memory.
func killed(r *cimeter.Record) bool {
	return r.Usage.OOMKills.Value+r.Usage.OOMKillsNested.Value > 0 || slices.ContainsFunc(r.Verdicts, func(v cimeter.Verdict) bool { return v.Kind == "oom" })
}

// podOf tells the part that a record is by its key alone. Agents put a pod, which its
// runner is, to the key of a build that had another pod on that machine: it stands behind
// the build's number.
func podOf(r *cimeter.Record) Part {
	if r.Number == "" || r.Runner.Name == "" || r.Runner.Name == r.Name ||
		!strings.HasSuffix(r.Key, "/"+url.PathEscape(r.Number)+"/"+url.PathEscape(r.Runner.Name)) {
		return 0
	}
	return AgainOfBuild | AgainOnMachine
}
