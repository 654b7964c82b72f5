package store

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cimeter/cimeter"
)

// Bounds of what a record may hold to be kept. Agents bound what they send; a
// record beyond these is a forged one.
const (
	MaxKeyBytes    = 1024
	MaxStages      = 1000
	MaxRecordBytes = 4 << 20 // of its JSON
	// textBytes bounds the columns that names are taken out into: an index row
	// holds three of them. The record itself keeps the whole.
	textBytes = 500
)

// Row is what the columns of a build hold: its names as they can be asked for
// and its costs as they can be sorted. -1 is not known.
type Row struct {
	Key         string
	At          int64 // microseconds since 1970: when it ended, or was received when that is earlier
	ReceivedAt  int64
	Agent       string
	CI          string
	Server      string
	Project     string
	Number      string
	Name        string
	Ref         string
	Event       string
	Pipeline    string
	Machine     string
	Runner      string // its key
	RunnerToken string
	RunnerName  string
	Result      string
	Verdicts    string // ,oom,throttled,
	StageSet    string // stands for the names of its stages: see stageSet
	WallUS      int64
	CPUUS       int64
	QueueUS     int64
	ThrottledUS int64
	MemPeak     int64
	MemLimit    int64
	IOBytes     int64
	NetBytes    int64
	OOM         int64 // 1: something in it was killed for memory
	Part        Part  // of a build that another row counts
	Stages      []StageRow
	Metered     int64  // 0: only a CI server told of it
	Tags        string // ,docker,arm,
	Record      []byte // stored form, without the trace
	Trace       []byte // stored form; nil: it has none

	put Put // it was made of
}

// StageRow is what a stage adds to the totals.
type StageRow struct {
	Name    string
	WallUS  int64
	CPUUS   int64
	MemPeak int64
	IO      int64
	Net     int64
}

// Micros is a time as the columns hold it.
func Micros(t time.Time) int64 { return t.UnixMicro() }

// Time is the time of a column; 0 is the zero time.
func Time(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// Clean returns s as a column holds it: at most 500 bytes of UTF-8 without NUL,
// which PostgreSQL does not take.
func Clean(s string) string {
	if len(s) > textBytes {
		s = s[:textBytes]
		for len(s) > 0 {
			if r, n := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || n != 1 {
				break
			}
			s = s[:len(s)-1]
		}
	}
	return scrub(s)
}

func scrub(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// ValidKey reports whether a build can have this key.
func ValidKey(key string) bool {
	return key != "" && len(key) <= MaxKeyBytes && utf8.ValidString(key) && !strings.ContainsRune(key, 0)
}

// NewRow takes a record apart. The error wraps [cimeter.ErrInvalid] for a
// record that cannot be kept.
func NewRow(p Put) (*Row, error) {
	r := p.Record
	switch {
	case r == nil:
		return nil, fmt.Errorf("record: none: %w", cimeter.ErrInvalid)
	case !ValidKey(r.Key):
		return nil, fmt.Errorf("record: key %.80q: want 1 to %d bytes of UTF-8 without NUL: %w", r.Key, MaxKeyBytes, cimeter.ErrInvalid)
	case len(r.Stages) > MaxStages:
		return nil, fmt.Errorf("record %s: %d stages: want at most %d: %w", r.Key, len(r.Stages), MaxStages, cimeter.ErrInvalid)
	case r.EndedAt.Year() < 1970 || r.EndedAt.Year() > 9998:
		return nil, fmt.Errorf("record %s: ended at %s: want a year from 1970 to 9998: %w", r.Key, r.EndedAt.Format(time.RFC3339), cimeter.ErrInvalid)
	case p.ReceivedAt.Year() < 1970:
		return nil, fmt.Errorf("record %s: no time of receipt: %w", r.Key, cimeter.ErrInvalid)
	}
	row := &Row{
		Key: r.Key, At: Micros(r.EndedAt), ReceivedAt: Micros(p.ReceivedAt), Agent: Clean(p.Agent),
		CI: Clean(r.CI), Server: Clean(r.Server), Project: Clean(r.Project), Number: Clean(r.Number), Name: Clean(r.Name), Ref: Clean(r.Ref),
		Event: Clean(r.Event), Pipeline: Clean(r.Pipeline), Machine: Clean(r.Machine), Runner: Clean(r.Runner.Key()),
		RunnerToken: Clean(r.Runner.ShortToken), RunnerName: Clean(r.Runner.Name), Result: Clean(r.Result),
		QueueUS: -1, MemLimit: -1, Metered: 1, Tags: words(r.Tags), put: p,
	}
	// An agent whose clock is ahead must not stand on top of every list.
	row.At = min(row.At, row.ReceivedAt)
	if !r.QueuedAt.IsZero() {
		row.QueueUS = max(0, r.StartedAt.Sub(r.QueuedAt).Microseconds())
	}
	if r.Limits != nil {
		row.MemLimit = bytes(r.Limits.MemoryBytes)
	}
	s := usage("", &r.Usage)
	row.WallUS, row.CPUUS, row.MemPeak, row.IOBytes, row.NetBytes = s.WallUS, s.CPUUS, s.MemPeak, s.IO, s.Net
	row.ThrottledUS = micros(r.Usage.CPUThrottledSeconds)
	if killed(r) {
		row.OOM = 1
	}
	row.Part = podOf(r)
	if r.Metered == cimeter.Some(false) {
		row.Metered, row.WallUS = 0, -1
		if r.EndedAt.After(r.StartedAt) { // by the CI server's clock
			row.WallUS = micros(cimeter.Some(r.EndedAt.Sub(r.StartedAt).Seconds()))
		}
	}
	kinds := make([]string, len(r.Verdicts))
	for i, v := range r.Verdicts {
		kinds[i] = v.Kind
	}
	row.Verdicts = words(kinds)
	for i := range r.Stages {
		row.Stages = append(row.Stages, usage(Clean(r.Stages[i].Name), &r.Stages[i].Usage))
	}
	row.StageSet = stageSet(row.Stages)
	var err error
	if row.Record, row.Trace, err = encode(r); err != nil {
		return nil, fmt.Errorf("record %s: %w", r.Key, err)
	}
	return row, nil
}

// stageSet is what builds with stages of the same names have in common, "" of
// none: the builds of a job mostly do, so that builds are found by the name of a
// stage through the few sets that hold it, not through a row for each stage.
func stageSet(stages []StageRow) string {
	if len(stages) == 0 {
		return ""
	}
	names := make([]string, len(stages))
	for i, s := range stages {
		names[i] = s.Name
	}
	slices.Sort(names)
	sum := sha256.Sum256([]byte(strings.Join(slices.Compact(names), "\x00")))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// NewRows takes the records of a batch apart, in its order. The error wraps
// [cimeter.ErrInvalid] for a batch that is too long or holds a record that
// cannot be kept.
func NewRows(batch []Put) ([]*Row, error) {
	if len(batch) > MaxBatch {
		return nil, fmt.Errorf("put %d records: want at most %d: %w", len(batch), MaxBatch, cimeter.ErrInvalid)
	}
	rows := make([]*Row, 0, len(batch))
	for _, p := range batch {
		row, err := NewRow(p)
		if err != nil {
			return nil, fmt.Errorf("put: %w", err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// words joins words so that one can be looked for with its commas; one that
// holds a comma cannot be.
func words(of []string) string {
	var b strings.Builder
	for _, word := range of {
		word = Clean(word)
		if word == "" || strings.Contains(word, ",") || strings.Contains(b.String(), ","+word+",") || b.Len()+len(word) > textBytes {
			continue
		}
		if b.Len() == 0 {
			b.WriteByte(',')
		}
		b.WriteString(word)
		b.WriteByte(',')
	}
	return b.String()
}

func usage(name string, u *cimeter.Usage) StageRow {
	s := StageRow{Name: name, WallUS: micros(cimeter.Some(u.WallSeconds)), CPUUS: micros(u.CPUSeconds.Total), MemPeak: -1, IO: -1, Net: -1}
	if u.MemoryBytes != nil {
		s.MemPeak = bytes(u.MemoryBytes.Peak)
	}
	if u.IOBytes != nil {
		s.IO = bytes(cimeter.Some(u.IOBytes.Read)) + bytes(cimeter.Some(u.IOBytes.Write))
	}
	if u.NetworkBytes != nil {
		s.Net = bytes(cimeter.Some(u.NetworkBytes.Receive)) + bytes(cimeter.Some(u.NetworkBytes.Transmit))
	}
	return s
}

// Columns hold at most this: sums over a million builds stay within 63 bits.
const maxColumn = 1 << 52

func micros(seconds cimeter.Opt[float64]) int64 {
	v, ok := seconds.Get()
	if !ok || v != v {
		return -1
	}
	return int64(min(max(v, 0), maxColumn/1e6) * 1e6)
}

func bytes(n cimeter.Opt[uint64]) int64 {
	v, ok := n.Get()
	if !ok {
		return -1
	}
	return int64(min(v, maxColumn))
}

// Shard is the distribution column of what is keyed by s: back ends that spread
// a table over machines keep what belongs to one key together by it.
func Shard(s string) int16 { return int16(crc32.ChecksumIEEE([]byte(s)) & 0xff) }
