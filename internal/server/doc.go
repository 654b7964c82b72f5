// Package server is the role that takes what agents send and keeps it.
//
// It owns the goroutine that commits records, many requests in one commit, and
// the bounds of what waits for it; the list of agents and what runs on them, in
// memory; and the counts of the fleet. A request is answered when its records
// are durable, and not before. Where there is no room it is turned away at once
// with [httpapi.ErrBusy].
//
// Start with [New], then [Server.Run]. All other methods may be called by many
// goroutines at once.
package server

import (
	"context"
	"time"

	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/tally"
)

// Store keeps records. A batch is durable, all of it, when Put returns nil. The
// error wraps cimeter.ErrInvalid when something in the batch can never be
// stored; nothing of it is stored then.
type Store interface {
	Put(ctx context.Context, batch []store.Put) (store.PutResult, error)
}

// Options are what New needs. Store and Tally must be set.
type Options struct {
	Store Store
	Tally *tally.Table
	Now   func() time.Time // nil: time.Now
	// Fault is called before each step of an ingest with its name; see the Step
	// constants. For tests; nil in production.
	Fault func(step string)
}

// The steps of an ingest.
const (
	StepCommit = "commit" // before the store is asked
	StepAnswer = "answer" // after it is durable, before anybody is told
)
