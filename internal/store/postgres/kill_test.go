package postgres_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/postgres"
	"github.com/cimeter/cimeter/internal/storetest"
)

// childBatches is how many batches a child puts before it deletes.
const childBatches = 4

// weekLater is a batch of ten, of the three weeks before the end of a week.
func weekLater(week, n int) []store.Put {
	puts := batch(1000*week + 10*n)
	for i := range puts {
		r := puts[i].Record
		for _, at := range []*time.Time{&r.StartedAt, &r.EndedAt, &puts[i].ReceivedAt} {
			*at = at.AddDate(0, 0, 7*week)
		}
		r.QueuedAt = time.Time{}
	}
	return puts
}

// keepFrom is the bound by age of a week: the Monday two weeks before its end.
func keepFrom(week int) time.Time { return storetest.Base.AddDate(0, 0, 7*week-14) }

// childRetains puts the batches of a week, tells each that is acknowledged, and deletes
// by age, or until the store is no larger than it is told.
func childRetains(ctx context.Context, s *postgres.Store) error {
	week, _ := strconv.Atoi(os.Getenv("STORE_CHILD_WEEK"))
	most, _ := strconv.ParseInt(os.Getenv("STORE_CHILD_BYTES"), 10, 64)
	for n := range childBatches {
		if _, err := s.Put(ctx, weekLater(week, n)); err != nil {
			return err
		}
		fmt.Println("ack", n)
	}
	r := store.Retention{KeepFrom: keepFrom(week), TotalsFrom: keepFrom(week - 60)}
	if most > 0 {
		r = store.Retention{MaxBytes: most}
	}
	for more := true; more; {
		out, err := s.Retain(ctx, r)
		if err != nil {
			return err
		}
		more = out.More
	}
	return nil
}

// TestKill_retention kills a server at any statement of its retention, by age and by
// size: nothing young goes, and of what is old a week is there whole, with its keys and
// in its counts, or gone (F41).
func TestKill_retention(t *testing.T) {
	random := storetest.Seeded(t)
	url := database(t)
	s := openURL(t, url)
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	var kept []store.Put // of what was acknowledged
	killed, acknowledged, bound := 0, 0, int64(0)
	for week := range storetest.Rounds(t, 12) {
		most := int64(0)
		if week%3 == 2 {
			st, err := s.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			most = []int64{1, st.Bytes * 8 / 10}[week%2]
		}
		cmd, out := startChild(t, url, "STORE_CHILD_DOES=retain", "STORE_CHILD_WEEK="+strconv.Itoa(week), "STORE_CHILD_BYTES="+strconv.FormatInt(most, 10),
			"STORE_CHILD_DIES="+strconv.Itoa(3+random.IntN(28))) // the first two look at the schema
		for out.Scan() {
			number, ok := strings.CutPrefix(out.Text(), "ack ")
			n, err := strconv.Atoi(number)
			if !ok || err != nil {
				t.Fatalf("child: %s", out.Text())
			}
			kept = append(kept, weekLater(week, n)...)
			acknowledged += 10
		}
		if cmd.Wait() != nil {
			killed++
		}
		// What was killed is taken back before the lock is free.
		if _, err := c.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1)", postgres.MigrationLock); err != nil {
			t.Fatal(err)
		}
		var from, least, newest, keys, builds, both int64
		if err := c.QueryRow(t.Context(), `SELECT (SELECT value FROM meta WHERE name = 'kept_from'), (SELECT min(at) FROM builds), (SELECT max(at) FROM builds),
(SELECT count(*) FROM build_keys), (SELECT count(*) FROM builds), (SELECT count(*) FROM builds JOIN build_keys USING (shard, key, id, at))`).Scan(&from, &least, &newest, &keys, &builds, &both); err != nil {
			t.Fatal(err)
		}
		allowed := store.Micros(keepFrom(week))
		if most > 0 {
			allowed = newest - (newest-store.Micros(keepFrom(0)))%(7*24*time.Hour).Microseconds() // the Monday before
		}
		if from < bound || from > max(bound, allowed) || least < from || keys != builds || both != builds {
			t.Fatalf("week %d, at most %d bytes: kept from %s, was %s, at most %s; the oldest ended at %s; %d builds, %d keys, %d of both",
				week, most, store.Time(from), store.Time(bound), store.Time(allowed), store.Time(least), builds, keys, both)
		}
		n := 0
		there := map[part]bool{}
		if err := s.Each(t.Context(), nil, false, func(r *cimeter.Record) error {
			if _, again := store.BuildOf(r.Key); !again {
				n++
			}
			there[partOf(r)] = true
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		bound = from
		kept = slices.DeleteFunc(kept, func(p store.Put) bool {
			old := store.Micros(p.Record.EndedAt) < from
			if of := partOf(p.Record); there[of] == old {
				t.Fatalf("week %d: %v, ended %s, is there %t; kept from %s", week, of, p.Record.EndedAt, there[of], store.Time(from))
			}
			return old
		})
		if st, err := s.Stats(t.Context()); err != nil || int(st.Builds) != n {
			t.Fatalf("week %d: %d builds, figures say %d, %v", week, n, st.Builds, err)
		}
	}
	t.Logf("killed %d times; of %d records acknowledged %d were old and deleted", killed, acknowledged, acknowledged-len(kept))
	if killed == 0 || len(kept) == 0 || len(kept) == acknowledged {
		t.Error("want some killed, some deleted and some kept")
	}
}
