package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
)

const (
	// longestBuild is how long a build may go on after another and still be found beside it.
	longestBuild = 24 * time.Hour
	// maxNeighbours bounds the builds that are looked at for those beside one: the next
	// to end after it began.
	maxNeighbours = 5000
)

// Neighbours are the builds that ran on a machine while one did.
type Neighbours struct {
	Builds int
	AtOnce float64 // of them on average
}

// Add counts a build that ran from one time to another beside one that ran from from to
// to; what did not run then is none.
func (n *Neighbours) Add(from, to, began, ended time.Time) {
	if ended.After(to) {
		ended = to
	}
	if began.Before(from) {
		began = from
	}
	if both := ended.Sub(began); both > 0 {
		n.Builds++
		n.AtOnce += both.Seconds() / to.Sub(from).Seconds()
	}
}

// Neighbours returns what ran on the machine of a build while it did, of what is kept:
// not what still runs, and not what ran for a day longer. Its own parts are none.
func (r Reader) Neighbours(ctx context.Context, of *cimeter.Record) (n Neighbours, err error) {
	machine := Clean(of.Machine)
	if machine == "" || !of.EndedAt.After(of.StartedAt) {
		return n, fmt.Errorf("neighbours of build %.200q: it has no machine, or no time: %w", of.Key, cimeter.ErrNotFound)
	}
	own := of.Key
	if build, ok := BuildOf(own); ok {
		own = build
	}
	s := statement{dialect: r.q.Dialect()}
	// Along the index of the machine; of the few that are left the key is read.
	s.add("SELECT b.key, near.at, near.wall_us FROM (SELECT b.id, b.at, b.wall_us")
	if s.dialect == Postgres {
		s.add(", b.shard")
	}
	s.add(" FROM ")
	s.builds("builds_machine")
	s.add(" WHERE b.machine = ? AND b.at > ? AND b.at < ? ORDER BY b.at LIMIT ?) near JOIN builds b ON b.id = near.id",
		machine, Micros(of.StartedAt), Micros(of.EndedAt.Add(longestBuild)), maxNeighbours)
	if s.dialect == Postgres {
		s.add(" AND b.at = near.at AND b.shard = near.shard")
	}
	s.add(" WHERE near.wall_us > 0 AND near.at - near.wall_us < ?", Micros(of.EndedAt))
	err = s.run(ctx, r.q, func(scan func(dest ...any) error) error {
		var key string
		var at, wall int64
		if err := scan(&key, &at, &wall); err != nil {
			return err
		}
		if key != own && !strings.HasPrefix(key, own+"/") {
			n.Add(of.StartedAt, of.EndedAt, time.UnixMicro(at-wall), time.UnixMicro(at))
		}
		return nil
	})
	return n, wrap("neighbours of a build", err)
}
