package sqlite

import (
	"github.com/cimeter/cimeter/internal/store"
)

// there reports whether a record is kept under the key of its machine though the
// build's own key may be gone, with all that ended before from.
func (in *inserter) there(r *store.Row, from int64) (there bool, err error) {
	if from == 0 || r.Machine == "" {
		return false, nil
	}
	stmt, err := in.prepared("SELECT EXISTS (SELECT 1 FROM builds WHERE key = ?)")
	if err != nil {
		return false, err
	}
	return there, stmt.QueryRowContext(in.ctx, store.MachineKey(r.Key, r.Machine)).Scan(&there)
}

// again writes a record whose key is there: see meter, and [store.OnOther]. It
// returns the row that was written, nil for a duplicate, and the one that it replaced.
func (in *inserter) again(r *store.Row) (written, old *store.Row, err error) {
	if written, old, err = in.meter(r); err != nil || written != nil {
		return written, old, err
	}
	var machine string
	if err := in.tx.QueryRowContext(in.ctx, "SELECT machine FROM builds WHERE key = ?", r.Key).Scan(&machine); err != nil {
		return nil, nil, err
	}
	other, err := store.OnOther(r, machine)
	if err != nil || other == nil {
		return nil, nil, err
	}
	if ok, err := in.build(other); err != nil || !ok {
		return nil, nil, err
	}
	return other, nil, nil
}
