// Package server is the role that takes what agents send and keeps it.
//
// It owns the goroutines that commit records, many requests in one commit, and
// the bounds of what waits for them; the one of retention; the one that keeps
// the sums of pages warm; the list of agents and what runs on them, in
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

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/tally"
)

// Store keeps records. A batch is durable, all of it, when Put returns nil. The
// error wraps cimeter.ErrInvalid when something in the batch can never be
// stored; nothing of it is stored then.
type Store interface {
	Put(ctx context.Context, batch []store.Put) (store.PutResult, error)
	Stats(ctx context.Context) (store.Stats, error)
}

// Keeper deletes what retention does not keep. Of several servers on one store
// one does it: Lead waits until it is this one, and held is closed when it is
// not any more.
type Keeper interface {
	Lead(ctx context.Context, name string) (held <-chan struct{}, release func(), err error)
	Retain(ctx context.Context, r store.Retention) (store.Retained, error)
}

// Warmer is a Store that adds up what pages ask for before they ask.
type Warmer interface {
	Warm(ctx context.Context, now time.Time) error
}

// Options are what New needs. Store and Tally must be set.
type Options struct {
	Store      Store
	Committers int // commits at once; 0 is 1
	Tally      *tally.Table

	Keeper     Keeper        // nil: everything is kept
	KeepBuilds time.Duration // 0: for ever
	KeepTotals time.Duration // 0: for ever
	MaxBytes   int64         // 0: no bound

	// Usage tells the CPU time of this process and its resident memory in bytes;
	// it has one caller at a time. nil: not told.
	Usage func() (cpu time.Duration, resident uint64, err error)

	// Counted tells that a build is in the fleet's counters already: in one
	// process with the agent that metered it. nil: none is.
	Counted func(*cimeter.Record) bool
	Now     func() time.Time // nil: time.Now

	// Alive is called at least every AliveEvery (0: 5 s) as long as the server does its
	// work and the store answers what it is asked, be it with an error. nil: nobody asks.
	Alive      func(now time.Time)
	AliveEvery time.Duration

	// Fault is called before each step of an ingest with its name; see the Step
	// constants. For tests; nil in production.
	Fault func(step string)
}

// The steps of an ingest.
const (
	StepCommit = "commit" // before the store is asked
	StepAnswer = "answer" // after it is durable, before anybody is told
)
