// Package otlp sends metrics and finished builds to a receiver of the
// OpenTelemetry protocol over HTTP, as protobuf packed by gzip (opentelemetry-proto
// docs/specification.md).
//
// It owns the names: metrics and attributes are those of the semantic
// conventions for CI/CD and containers where they have one, cimeter.* otherwise,
// and those of other programs stay as they are. Values are cumulative, so a send
// that fails leaves nothing to keep: the next one says it all. A build's spans
// have ids made from its key, so that a record sent twice is the same trace.
//
// It makes one try a call, retries nothing, logs nothing and starts no
// goroutine. Messages are encoded by hand: the generated types would be made and
// thrown away at each send. Start with [New] or [NewTraces]; what they return is
// for one goroutine each.
package otlp
