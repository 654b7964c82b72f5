package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter/internal/store"
)

// putStages merges totals of stages, which are in order, with those that are
// there: first rows for those that are new, then all are locked and read, so that
// no other server merges them meanwhile.
func putStages(ctx context.Context, tx pgx.Tx, totals []store.StageTotals) error {
	n := len(totals)
	if n == 0 {
		return nil
	}
	type key struct {
		project, name string
		at            int64
	}
	shards, projects, names, ats := make([]int16, n), make([]string, n), make([]string, n), make([]int64, n)
	at := make(map[key]int, n)
	for i, t := range totals {
		shards[i], projects[i], names[i], ats[i] = store.Shard(t.Project), t.Project, t.Name, t.At
		at[key{t.Project, t.Name, t.At}] = i
	}
	_, err := tx.Exec(ctx, `INSERT INTO stage_totals SELECT *, '' FROM unnest($1::smallint[], $2::text[], $3::text[], $4::bigint[]) ON CONFLICT DO NOTHING`, shards, projects, names, ats)
	if err != nil {
		return err
	}
	found, err := tx.Query(ctx, `SELECT t.a, t.b, t.at, t.data FROM stage_totals t JOIN unnest($1::smallint[], $2::text[], $3::text[], $4::bigint[]) w (shard, a, b, at)
ON t.a = w.a AND t.b = w.b AND t.at = w.at AND t.shard = w.shard ORDER BY t.a, t.b, t.at FOR UPDATE OF t`, shards, projects, names, ats)
	if err != nil {
		return err
	}
	merged := make([][]byte, n)
	var k key
	var data []byte
	_, err = pgx.ForEachRow(found, []any{&k.project, &k.name, &k.at, &data}, func() (err error) {
		i := at[k]
		merged[i], err = totals[i].Merged(data)
		return err
	})
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE stage_totals t SET data = w.data FROM unnest($1::smallint[], $2::text[], $3::text[], $4::bigint[], $5::bytea[]) w (shard, a, b, at, data)
WHERE t.a = w.a AND t.b = w.b AND t.at = w.at AND t.shard = w.shard`, shards, projects, names, ats, merged)
	return err
}
