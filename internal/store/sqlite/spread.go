package sqlite

import (
	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
)

// there reports whether a record is kept under the key of its machine or of its part
// though the build's own key may be gone, with all that ended before from.
func (in *inserter) there(r *store.Row, from int64) (bool, error) {
	if from == 0 || r.Metered == 0 {
		return false, nil
	}
	machine, part := r.PartKeys()
	kept, err := in.records("key IN (?, ?)", machine, part)
	for _, other := range kept {
		if store.Again(r.Recorded(), other) {
			return true, err
		}
	}
	return false, err
}

// again writes a record whose key is there: see meter, and [store.Further]. It returns
// the row that was written, nil for a duplicate, and the one that it replaced.
func (in *inserter) again(r *store.Row) (written, old *store.Row, err error) {
	if written, old, err = in.meter(r); err != nil || written != nil {
		return written, old, err
	}
	kept, err := in.records("key = ?", r.Key)
	if err != nil {
		return nil, nil, err
	}
	further, err := store.Further(r, kept)
	if err != nil || further == nil {
		return nil, nil, err // mostly: it was sent again
	}
	from, to := store.PartRange(r.Key)
	parts, err := in.records("key >= ? AND key < ? ORDER BY key LIMIT ?", from, to, store.MaxParts)
	if err != nil {
		return nil, nil, err
	}
	if further, err = store.Further(r, append(kept, parts...)); err != nil || further == nil {
		return nil, nil, err
	}
	if ok, err := in.build(further); err != nil || !ok {
		return nil, nil, err
	}
	return further, nil, nil
}

// records returns the records that meet a condition, without traces.
func (in *inserter) records(condition string, args ...any) (records []*cimeter.Record, err error) {
	stmt, err := in.prepared("SELECT key, record FROM builds JOIN bodies USING (id) WHERE " + condition)
	if err != nil {
		return nil, err
	}
	rows, err := stmt.QueryContext(in.ctx, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		var stored []byte
		if err := rows.Scan(&key, &stored); err != nil {
			return nil, err
		}
		r, err := store.Decode(key, stored, nil)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, rows.Err()
}
