package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// watchEvery and watchTime bound how long a server believes that it leads
	// after the database ended its session: together well under the 15 s within
	// which another must lead.
	watchEvery = 2 * time.Second
	watchTime  = 4 * time.Second
)

// Lead waits until this server is the only one that does what name says. held
// is closed when that is over: after release, or when the connection that holds
// the lock is gone. The lock is the database's: it ends with the connection.
func (s *Store) Lead(ctx context.Context, name string) (held <-chan struct{}, release func(), err error) {
	c := s.write.Config().ConnConfig.Copy()
	c.RuntimeParams["statement_timeout"], c.RuntimeParams["lock_timeout"] = "0", "0" // it waits
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return nil, nil, fmt.Errorf("lead %s: %w", name, coded(err))
	}
	hash := sha256.Sum256([]byte("cimeter lead " + name))
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(binary.BigEndian.Uint64(hash[:]))); err != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), watchTime)
		defer cancel()
		conn.Close(end)
		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("lead %s: %w", name, ctx.Err())
		}
		return nil, nil, fmt.Errorf("lead %s: %w", name, coded(err))
	}
	lost, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(lost)
		defer func() {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), watchTime)
			defer cancel()
			conn.Close(end)
		}()
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				within, cancel := context.WithTimeout(context.WithoutCancel(ctx), watchTime)
				err := conn.Ping(within)
				cancel()
				if err != nil {
					return
				}
			}
		}
	}()
	return lost, sync.OnceFunc(func() {
		close(stop)
		<-lost
	}), nil
}
