package store

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/recordjson"
)

// The stored form of a record and of a trace is their JSON in one zstd frame
// with its checksum: what the disk damaged is an error, never a number.

// decoderMemory bounds what a damaged frame can make a reader allocate.
const decoderMemory = MaxRecordBytes

var encoder = sync.OnceValues(func() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(2), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(128<<10))
})

var decoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(decoderMemory))
})

func encode(r *cimeter.Record) (record, trace []byte, err error) {
	e, err := encoder()
	if err != nil {
		return nil, nil, fmt.Errorf("zstd: %w", err)
	}
	bare := *r
	bare.Trace = nil
	b, err := recordjson.Append(make([]byte, 0, 16<<10), &bare)
	if err != nil {
		// A number that JSON has no form for.
		return nil, nil, fmt.Errorf("encode: %v: %w", err, cimeter.ErrInvalid)
	}
	if len(b) > MaxRecordBytes {
		return nil, nil, fmt.Errorf("%d bytes: want at most %d: %w", len(b), MaxRecordBytes, cimeter.ErrInvalid)
	}
	record = e.EncodeAll(b, make([]byte, 0, len(b)/4))
	if r.Trace == nil {
		return record, nil, nil
	}
	if b, err = recordjson.AppendTrace(b[:0], r.Trace); err != nil {
		return nil, nil, fmt.Errorf("encode trace: %v: %w", err, cimeter.ErrInvalid)
	}
	if len(b) > MaxRecordBytes {
		return nil, nil, fmt.Errorf("trace of %d bytes: want at most %d: %w", len(b), MaxRecordBytes, cimeter.ErrInvalid)
	}
	return record, e.EncodeAll(b, make([]byte, 0, len(b)/2)), nil
}

// Decode returns the record of its stored form; trace may be nil.
func Decode(key string, record, trace []byte) (*cimeter.Record, error) {
	plain, err := expand(record)
	if err != nil {
		return nil, fmt.Errorf("stored record %s: %w", key, err)
	}
	r := new(cimeter.Record)
	if err := recordjson.Decode(plain, r); err != nil {
		return nil, fmt.Errorf("stored record %s: damaged: %w", key, err)
	}
	if trace == nil {
		return r, nil
	}
	if plain, err = expand(trace); err != nil {
		return nil, fmt.Errorf("stored trace of %s: %w", key, err)
	}
	r.Trace = new(cimeter.Trace)
	if err := recordjson.DecodeTrace(plain, r.Trace); err != nil {
		return nil, fmt.Errorf("stored trace of %s: damaged: %w", key, err)
	}
	return r, nil
}

// expand returns the JSON of a stored form.
func expand(b []byte) ([]byte, error) {
	d, err := decoder()
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	plain, err := d.DecodeAll(b, nil)
	if err != nil {
		return nil, fmt.Errorf("damaged: %w", err)
	}
	return plain, nil
}
