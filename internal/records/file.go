package records

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
)

// A record's file is named
//
//	<ended_at, Unix nanoseconds, 19 digits>-<hash of the key, 32 hex digits>-<size in bytes>.record
//
// so that the names alone are an index in order of time. It holds the record's
// JSON in one line and then its CRC-32C (Castagnoli) in hexadecimal:
//
//	{"schema":1,"key":"gitlab/gitlab.example.com/4242", ...}
//	crc32c 1a2b3c4d
const (
	recordSuffix  = ".record"
	corruptSuffix = ".corrupt"
	tempPrefix    = ".unfinished-"
	crcPrefix     = "\ncrc32c "
	trailerBytes  = len(crcPrefix) + 8 + 1
	hashBytes     = 16
	endedDigits   = 19
)

// ErrDamaged says that a file's checksum or content is not what was written.
var ErrDamaged = errors.New("damaged")

// entry is a record as its file's name tells it.
type entry struct {
	ended int64 // Unix nanoseconds, not negative
	hash  [hashBytes]byte
	size  int64 // bytes of the file
}

func (e entry) cursor() string { return string(e.appendCursor(nil)) }

func (e entry) name() string { return string(e.appendName(nil)) }

func (e entry) appendCursor(b []byte) []byte {
	var digits [endedDigits]byte
	for i, n := len(digits)-1, e.ended; i >= 0; i, n = i-1, n/10 {
		digits[i] = byte('0' + n%10)
	}
	b = append(append(b, digits[:]...), '-')
	return hex.AppendEncode(b, e.hash[:])
}

func (e entry) appendName(b []byte) []byte {
	b = append(e.appendCursor(b), '-')
	return append(strconv.AppendInt(b, e.size, 10), recordSuffix...)
}

func parseName(name string) (entry, bool) {
	stem, ok := strings.CutSuffix(name, recordSuffix)
	if !ok {
		return entry{}, false
	}
	at := strings.LastIndexByte(stem, '-')
	if at < 0 {
		return entry{}, false
	}
	e, ok := parseCursor(stem[:at])
	if !ok {
		return entry{}, false
	}
	size, err := strconv.ParseInt(stem[at+1:], 10, 64)
	if err != nil || size < 0 || size > MaxRecordBytes {
		return entry{}, false
	}
	e.size = size
	var canonical [96]byte
	if string(e.appendName(canonical[:0])) != name { // one name for one entry
		return entry{}, false
	}
	return e, true
}

func parseCursor(s string) (entry, bool) {
	ended, hash, ok := strings.Cut(s, "-")
	if !ok || len(ended) != endedDigits || len(hash) != 2*hashBytes {
		return entry{}, false
	}
	var e entry
	n, err := strconv.ParseUint(ended, 10, 63)
	if err != nil {
		return entry{}, false
	}
	e.ended = int64(n)
	if _, err := hex.Decode(e.hash[:], []byte(hash)); err != nil {
		return entry{}, false
	}
	return e, true
}

func hashKey(key string) (h [hashBytes]byte) {
	sum := sha256.Sum256([]byte(key))
	copy(h[:], sum[:])
	return h
}

func crc(b []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func encode(r *cimeter.Record) (entry, []byte, error) {
	e := entry{ended: r.EndedAt.UnixNano(), hash: hashKey(r.Key)}
	// UnixNano is defined from 1678 to 2262 only.
	if y := r.EndedAt.Year(); r.Key == "" || y < 1970 || y > 2261 || e.ended < 0 {
		return entry{}, nil, fmt.Errorf("put record %q that ended at %s: want a key and an end between 1970 and 2261: %w",
			r.Key, r.EndedAt.Format("2006-01-02T15:04:05Z07:00"), cimeter.ErrInvalid)
	}
	b, err := json.Marshal(r)
	if err != nil {
		return entry{}, nil, fmt.Errorf("put record %s: encode: %w", r.Key, err)
	}
	file := fmt.Appendf(b, "%s%s\n", crcPrefix, crc(b))
	e.size = int64(len(file))
	if e.size > MaxRecordBytes {
		return entry{}, nil, fmt.Errorf("put record %s: %d bytes: want at most %d: %w", r.Key, e.size, MaxRecordBytes, cimeter.ErrInvalid)
	}
	return e, file, nil
}

// payload returns the JSON of a record's file, or false when it is damaged.
func payload(file []byte) ([]byte, bool) {
	at := len(file) - trailerBytes
	if at < 0 {
		return nil, false
	}
	body, trailer := file[:at], file[at:]
	return body, string(trailer) == crcPrefix+crc(body)+"\n"
}

func valid(file []byte) bool {
	_, ok := payload(file)
	return ok
}

// decode reads a record's file. It returns a record or an error, never both.
func decode(file []byte) (*cimeter.Record, error) {
	body, ok := payload(file)
	if !ok {
		return nil, fmt.Errorf("checksum of %d bytes does not match: %w", len(file), ErrDamaged)
	}
	r := new(cimeter.Record)
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(r); err != nil {
		return nil, fmt.Errorf("decode: %v: %w", err, ErrDamaged)
	}
	return r, nil
}
