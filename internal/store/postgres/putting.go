package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter/internal/store"
)

// putting is a batch on its way.
type putting struct {
	rows     []*store.Row     // of different keys, sorted by key
	more     []*store.Row     // of keys that are in rows, of other machines
	place    map[string]int   // of a key, the first of it, in the batch
	others   map[string]int   // the same of keys with the machine: see store.MachineKey
	fresh    map[string]int64 // ids of what this batch stores, by key
	expired  int
	keptFrom int64
	unjoined int64 // see store.Stats
}

func newPutting(all []*store.Row) *putting {
	p := &putting{place: make(map[string]int, len(all)), others: make(map[string]int, len(all))}
	for i, row := range all {
		other := store.MachineKey(row.Key, row.Machine)
		if _, ok := p.others[other]; ok {
			continue
		}
		p.others[other] = i
		if _, ok := p.place[row.Key]; ok {
			p.more = append(p.more, row)
			continue
		}
		p.place[row.Key] = i
		p.rows = append(p.rows, row)
	}
	// Servers that put the same keys take the locks in one order.
	slices.SortFunc(p.rows, byKey)
	return p
}

func byKey(x, y *store.Row) int { return cmp.Compare(x.Key, y.Key) }

// result counts what became of n records.
func (p *putting) result(n int) store.PutResult {
	r := store.PutResult{Stored: len(p.fresh), Expired: p.expired, Duplicates: n - len(p.fresh) - p.expired, Fresh: make([]bool, n)}
	for key := range p.fresh {
		at, ok := p.place[key]
		if !ok {
			at = p.others[key]
		}
		r.Fresh[at] = true
	}
	return r
}

// narrow takes away what ended before what is kept, and what is kept under the key of
// its machine though the build's own key may be gone.
func (p *putting) narrow(ctx context.Context, tx pgx.Tx) error {
	if p.keptFrom == 0 {
		return nil
	}
	var keys []string
	for _, rows := range []*[]*store.Row{&p.rows, &p.more} {
		*rows = slices.DeleteFunc(*rows, func(r *store.Row) bool {
			if r.At < p.keptFrom {
				p.expired++
				return true
			}
			keys = append(keys, store.MachineKey(r.Key, r.Machine))
			return false
		})
	}
	found, err := tx.Query(ctx, "SELECT key FROM build_keys WHERE key = ANY($1::text[])", keys)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	var key string
	if _, err = pgx.ForEachRow(found, []any{&key}, func() error { there[key] = true; return nil }); err != nil || len(there) == 0 {
		return err
	}
	for _, rows := range []*[]*store.Row{&p.rows, &p.more} {
		*rows = slices.DeleteFunc(*rows, func(r *store.Row) bool { return there[store.MachineKey(r.Key, r.Machine)] })
	}
	return nil
}

// onOthers returns the rows to write of records whose key another machine's record
// has. Their keys come after all others, in order: no two transactions wait for each
// other. written are the rows that this batch writes.
func (p *putting) onOthers(ctx context.Context, tx pgx.Tx, written []*store.Row) ([]*store.Row, error) {
	machines := make(map[string]string, len(written))
	for _, r := range written {
		machines[r.Key] = r.Machine
	}
	again := p.more
	var shards []int16
	var keys []string
	for _, r := range p.rows {
		if _, ok := p.fresh[r.Key]; !ok && r.Metered == 1 {
			again = append(again, r)
			shards, keys = append(shards, store.Shard(r.Key)), append(keys, r.Key)
		}
	}
	if len(again) == 0 {
		return nil, nil
	}
	// Another statement: it sees what those wrote that this transaction waited for.
	found, err := tx.Query(ctx, `SELECT b.key, b.machine FROM build_keys k JOIN unnest($1::smallint[], $2::text[]) want (shard, key) ON want.key = k.key AND want.shard = k.shard
JOIN builds b ON b.id = k.id AND b.shard = k.shard AND b.at = k.at`, shards, keys)
	if err != nil {
		return nil, err
	}
	var key, machine string
	if _, err := pgx.ForEachRow(found, []any{&key, &machine}, func() error { machines[key] = machine; return nil }); err != nil {
		return nil, err
	}
	var others []*store.Row
	for _, r := range again {
		other, err := store.OnOther(r, machines[r.Key])
		if err != nil {
			return nil, err
		}
		if other != nil {
			others = append(others, other)
		}
	}
	slices.SortFunc(others, byKey)
	ids, err := newKeys(ctx, tx, others)
	if err != nil {
		return nil, err
	}
	for key, id := range ids {
		p.fresh[key] = id
	}
	return slices.DeleteFunc(others, func(r *store.Row) bool { _, ok := ids[r.Key]; return !ok }), nil
}
