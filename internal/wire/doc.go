// Package wire is the form in which agents send to a server: batches of
// finished records and heartbeats.
//
// A batch is the body of POST /api/v1/records: one record's JSON a line
// (NDJSON), compressed with zstd or gzip, or not at all. Its version stands in
// the media type: application/x-ndjson; version=1. The answer says of each line
// in turn what became of it. A heartbeat is one JSON document, POST
// /api/v1/heartbeat.
//
// The package owns encoding, decoding and every bound on what a stranger may
// send. It does no input or output of its own, keeps no state, starts no
// goroutine, and neither stores nor judges a record beyond its form. Start with
// [EncodeBatch] and [DecodeBatch]. All functions may be called by many
// goroutines at once.
package wire

import (
	"errors"
	"fmt"
	"mime"
	"strconv"

	"github.com/cimeter/cimeter"
)

// The versions of the form: what this program writes, and what it takes. A
// newer sender's fields that are not known here are ignored.
const (
	Version = 1
	oldest  = max(1, Version-1)
	newest  = Version + 1
)

// The routes.
const (
	RecordsPath   = "/api/v1/records"
	HeartbeatPath = "/api/v1/heartbeat"
)

// AgentHeader names the agent that sends, as its heartbeats do.
const AgentHeader = "Cimeter-Agent"

// Bounds of a batch. A sender keeps to MaxSendBytes, so that the bound on the
// ratio, which begins above it, never meets an honest one.
const (
	MaxBodyBytes    = 4 << 20 // of a body as it is sent
	MaxBatchBytes   = 8 << 20 // of a body when it is unpacked
	MaxSendBytes    = 1 << 20 // of lines that a sender puts in one batch of several records
	MaxLineBytes    = 1 << 20 // of one record's JSON: forty times a usual one
	MaxBatchRecords = 500
	maxRatio        = 100     // unpacked to sent, above freeBytes
	freeBytes       = 2 << 20 // unpacked before the ratio is looked at
	maxWindow       = 8 << 20 // of zstd
	maxDepth        = 16      // of JSON
	maxElements     = 200_000 // of JSON, in one line
)

// ErrTooLarge says that a body, or what it unpacks to, is over a bound.
var ErrTooLarge = errors.New("too large")

// mediaType and its parameter carry the version.
const mediaType = "application/x-ndjson"

// ContentType is the Content-Type of a batch that this program writes.
func ContentType() string { return mediaType + "; version=" + strconv.Itoa(Version) }

// CheckContentType returns an error that wraps [cimeter.ErrUnsupported] unless
// a batch of that Content-Type can be decoded. Without a version it is this one.
func CheckContentType(header string) error {
	kind, parameters, err := mime.ParseMediaType(header)
	if err != nil || kind != mediaType {
		return fmt.Errorf("content type %.64q: want %s: %w", header, ContentType(), cimeter.ErrUnsupported)
	}
	v, ok := parameters["version"]
	if !ok {
		return nil
	}
	if n, err := strconv.Atoi(v); err != nil || n < oldest || n > newest {
		return fmt.Errorf("version %.16q of the batch: want %d to %d: %w", v, oldest, newest, cimeter.ErrUnsupported)
	}
	return nil
}

// Status is what became of one record of a batch.
type Status string

// The statuses.
const (
	Stored    Status = "stored"    // it is durable
	Duplicate Status = "duplicate" // a record of its key and machine was there and stays as it was, or it is older than what is kept
	Refused   Status = "refused"   // it will never be taken: Reason says why
)

// Result is the answer for one line.
type Result struct {
	Key    string `json:"key,omitempty"` // "" when the line does not tell it
	Status Status `json:"status"`
	Reason string `json:"reason,omitempty"` // of a refusal
}

// Answer is the answer to a batch: one result a line, in the order of the lines.
type Answer struct {
	Results []Result `json:"results"`
}
