package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
)

// putting is a batch on its way.
type putting struct {
	rows     []*store.Row     // of different keys, sorted by key
	more     []*store.Row     // of keys that are in rows
	place    map[string]int   // of a key, under which a record may be kept, in the batch
	fresh    map[string]int64 // ids of what this batch stores, by key
	written  []*store.Row     // of those
	expired  int
	keptFrom int64
	unjoined int64 // see store.Stats
}

func newPutting(all []*store.Row) *putting {
	p := &putting{place: make(map[string]int, 2*len(all))}
	for i, row := range all {
		_, part := row.PartKeys()
		if _, ok := p.place[part]; ok {
			continue // twice in the batch
		}
		p.place[part] = i
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
	for _, row := range p.written {
		at := p.place[row.Key]
		r.Fresh[at] = true
		if row.Part&store.AgainOfBuild != 0 {
			r.MarkPart(at, n)
		}
	}
	return r
}

// narrow takes away what ended before what is kept, and what is kept under the key of
// its machine or its part though the build's own key may be gone.
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
			machine, part := r.PartKeys()
			keys = append(keys, machine, part)
			return false
		})
	}
	there, err := recordsOf(ctx, tx, keys)
	if err != nil || len(there) == 0 {
		return err
	}
	for _, rows := range []*[]*store.Row{&p.rows, &p.more} {
		*rows = slices.DeleteFunc(*rows, func(r *store.Row) bool {
			machine, part := r.PartKeys()
			for _, other := range []*cimeter.Record{there[machine], there[part]} {
				if other != nil && store.Again(r.Recorded(), other) {
					return true
				}
			}
			return false
		})
	}
	return nil
}

// further returns the rows to write of records whose key another record has. Their keys
// come after all others, in order: no two transactions wait for each other. written are
// the rows that this batch writes; all others are held for this transaction, so that no
// other server finds a further part of the same builds meanwhile.
func (p *putting) further(ctx context.Context, tx pgx.Tx, written []*store.Row) ([]*store.Row, error) {
	kept := make(map[string]*cimeter.Record, len(written))
	for _, r := range written {
		kept[r.Key] = r.Recorded()
	}
	again := p.more
	var keys []string
	for _, r := range p.rows {
		if _, ok := p.fresh[r.Key]; !ok && r.Metered == 1 {
			again = append(again, r)
			keys = append(keys, r.Key)
		}
	}
	if len(again) == 0 {
		return nil, nil
	}
	// Another statement: it sees what those wrote that this transaction waited for.
	there, err := recordsOf(ctx, tx, keys)
	if err != nil {
		return nil, err
	}
	for key, r := range there {
		kept[key] = r
	}
	var rows []*store.Row
	parts := map[string][]*cimeter.Record{} // of keys of which there is more than one
	for _, r := range again {
		first := kept[r.Key]
		if first == nil {
			continue // retention took it
		}
		one, err := store.Further(r, []*cimeter.Record{first})
		if err != nil {
			return nil, err
		}
		if one == nil {
			continue // mostly: it was sent again
		}
		if parts[r.Key] == nil {
			if parts[r.Key], err = partsOf(ctx, tx, r.Key); err != nil {
				return nil, err
			}
			parts[r.Key] = append(parts[r.Key], first)
		}
		if one, err = store.Further(r, parts[r.Key]); err != nil {
			return nil, err
		}
		if one != nil {
			parts[r.Key] = append(parts[r.Key], one.Recorded())
			rows = append(rows, one)
			_, part := r.PartKeys()
			p.place[one.Key] = p.place[part]
		}
	}
	slices.SortFunc(rows, byKey)
	ids, err := newKeys(ctx, tx, rows)
	if err != nil {
		return nil, err
	}
	for key, id := range ids {
		p.fresh[key] = id
	}
	return slices.DeleteFunc(rows, func(r *store.Row) bool { _, ok := ids[r.Key]; return !ok }), nil
}

// recordsOf returns the records, without traces, that there are of keys.
func recordsOf(ctx context.Context, tx pgx.Tx, keys []string) (map[string]*cimeter.Record, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	shards := make([]int16, len(keys))
	for i, key := range keys {
		shards[i] = store.Shard(key)
	}
	found, err := tx.Query(ctx, `SELECT b.key, b.record FROM build_keys k JOIN unnest($1::smallint[], $2::text[]) want (shard, key) ON want.key = k.key AND want.shard = k.shard
JOIN builds b ON b.id = k.id AND b.shard = k.shard AND b.at = k.at`, shards, keys)
	if err != nil {
		return nil, err
	}
	records := map[string]*cimeter.Record{}
	return records, each(found, func(r *cimeter.Record) { records[r.Key] = r })
}

// partsOf returns the records, without traces, of parts of a build that have keys of
// their own.
func partsOf(ctx context.Context, tx pgx.Tx, key string) (parts []*cimeter.Record, err error) {
	from, to := store.PartRange(key)
	found, err := tx.Query(ctx, `SELECT b.key, b.record FROM (SELECT key, id, shard, at FROM build_keys WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3) k
JOIN builds b ON b.id = k.id AND b.shard = k.shard AND b.at = k.at`, from, to, store.MaxParts)
	if err != nil {
		return nil, err
	}
	return parts, each(found, func(r *cimeter.Record) { parts = append(parts, r) })
}

func each(rows pgx.Rows, fn func(r *cimeter.Record)) error {
	var key string
	var stored []byte
	_, err := pgx.ForEachRow(rows, []any{&key, &stored}, func() error {
		r, err := store.Decode(key, stored, nil)
		if err == nil {
			fn(r)
		}
		return err
	})
	return err
}
