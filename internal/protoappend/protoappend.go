// Package protoappend appends protobuf fields to a buffer, messages within
// messages in one pass, so that an output with ten thousand points makes no
// tree of objects first.
//
// It knows no message: field numbers are the caller's. It keeps nothing and may
// be called from anywhere. Start with [Open].
package protoappend

import (
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Open begins a message in field num. What is appended until Close, which is
// given at, is in it.
func Open(b []byte, num protowire.Number) (out []byte, at int) {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return append(b, 0), len(b) + 1 // one byte of length: enough for most
}

// Close ends the message that Open began.
func Close(b []byte, at int) []byte {
	n := len(b) - at
	if n < 1<<7 {
		b[at-1] = byte(n)
		return b
	}
	b = slices.Grow(b, protowire.SizeVarint(uint64(n))-1)
	more := protowire.SizeVarint(uint64(n)) - 1
	b = b[:len(b)+more]
	copy(b[at+more:], b[at:at+n])
	protowire.AppendVarint(b[:at-1], uint64(n))
	return b
}

// String appends a text, bytes that are no UTF-8 replaced: one of them would
// make the receiver refuse the whole request.
func String(b []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), strings.ToValidUTF8(s, "\uFFFD"))
}

// Bytes appends bytes.
func Bytes(b []byte, num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}

// Varint appends an integer that is no sint, or an enum or bool.
func Varint(b []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

// Fixed64 appends a fixed64.
func Fixed64(b []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, num, protowire.Fixed64Type), v)
}

// Double appends a double.
func Double(b []byte, num protowire.Number, v float64) []byte {
	return Fixed64(b, num, math.Float64bits(v))
}
