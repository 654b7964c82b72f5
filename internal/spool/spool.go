package spool

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cimeter/cimeter"
)

// Defaults and bounds.
const (
	DefaultMaxBytes = 256 << 20 // about 10,000 builds of 25 KiB
	MaxRecordBytes  = 1 << 20   // of one record's JSON
	maxDead         = 100       // refused records kept for whoever looks into the cause
	maxDeadBytes    = 16 << 20
	deadFolder      = "refused"
)

// Options are what Open needs.
type Options struct {
	Dir      string
	MaxBytes int64 // of all entries together; 0 is DefaultMaxBytes
	// Fault is called before each step of a write or removal with its name; an
	// error it returns is that step's. For tests; nil in production.
	Fault func(step string) error
}

// The steps of Add, in order, and those of the other methods.
const (
	StepCreate  = "create"
	StepWrite   = "write"
	StepSync    = "sync"
	StepRename  = "rename"
	StepSyncDir = "syncdir"
	StepEvict   = "evict"
	StepRemove  = "remove" // of Ack and of Refuse
)

// Stats count what became of entries since Open, Open itself included.
type Stats struct {
	Records int    // that wait
	Bytes   int64  // of their files
	Over    uint64 // dropped to stay within the bound
	Corrupt uint64 // dropped as damaged
	Refused uint64 // set aside
}

// Entry is one record that waits to be sent.
type Entry struct {
	Seq  uint64 // rises in the order of receipt, over restarts too
	Line []byte // the record's JSON
}

// Spool is an open directory. Make it with Open.
type Spool struct {
	o    Options
	id   string
	lock *os.File

	write sync.Mutex // held by whoever writes or removes files

	mu      sync.Mutex // guards what follows; never held over I/O
	entries []entry    // in order of receipt
	next    uint64     // sequence number
	stats   Stats
}

// ID tells this spool, and so its agent, from all others; it is made once and
// kept in the directory.
func (s *Spool) ID() string { return s.id }

// Stats returns the counts.
func (s *Spool) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Close releases the directory for another process.
func (s *Spool) Close() error { return s.lock.Close() }

// Add puts the record of a key, one line of JSON, at the end of the queue. It is
// durable when Add returns nil. A record whose key waits already is not added
// again. Entries over the bound are dropped, oldest first, before: a full spool
// needs no more room on the disk than its bound. The error wraps
// [cimeter.ErrInvalid] for what can never be added; one of the file system is
// wrapped as it is, and Add may be called again.
func (s *Spool) Add(key string, line []byte) error {
	e := entry{hash: hashKey(key), size: int64(len(line) + trailerBytes)}
	if key == "" || len(line) == 0 || len(line) > MaxRecordBytes || e.size > s.o.MaxBytes || bytes.ContainsAny(line, "\r\n") {
		return fmt.Errorf("spool record %q of %d bytes: want a key and one line of at most %d bytes: %w",
			key, len(line), min(MaxRecordBytes, s.o.MaxBytes-int64(trailerBytes)), cimeter.ErrInvalid)
	}
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.Lock()
	waits := slices.ContainsFunc(s.entries, func(o entry) bool { return o.hash == e.hash })
	e.seq = s.next
	s.next++
	s.mu.Unlock()
	if waits {
		return nil
	}
	if err := s.makeRoom(e.size); err != nil {
		return fmt.Errorf("spool record %s: %w", key, err)
	}
	if err := s.writeFile(s.o.Dir, e.name(), encode(e, line)); err != nil {
		// After a failed sync of the directory the file may be there or not.
		return fmt.Errorf("spool record %s: %w", key, errors.Join(err, ignoreMissing(os.Remove(s.path(e)))))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, e)
	s.stats.Records++
	s.stats.Bytes += e.size
	return nil
}

// makeRoom drops the oldest entries until n more bytes are within the bound.
func (s *Spool) makeRoom(n int64) error {
	for {
		s.mu.Lock()
		over := len(s.entries) > 0 && s.stats.Bytes+n > s.o.MaxBytes
		var oldest entry
		if over {
			oldest = s.entries[0]
		}
		s.mu.Unlock()
		if !over {
			return nil
		}
		if err := s.remove(oldest, StepEvict); err != nil {
			return fmt.Errorf("drop the oldest: %w", err)
		}
		s.count(func(st *Stats) { st.Over++ })
	}
}

// Next returns the oldest entries whose sequence number is after after, at most
// n and together at most size bytes, but one at least when there is one.
// Damaged ones are dropped and counted.
func (s *Spool) Next(after uint64, n int, size int64) ([]Entry, error) {
	var found []Entry
	for total := int64(0); len(found) < n; {
		e, ok := s.first(after)
		if !ok || len(found) > 0 && total+e.size > size {
			break
		}
		after = e.seq
		line, err := s.read(e)
		switch {
		case errors.Is(err, errDamaged):
			continue
		case err != nil:
			return nil, err
		}
		total += e.size
		found = append(found, Entry{e.seq, line})
	}
	return found, nil
}

var errDamaged = errors.New("damaged")

func (s *Spool) first(after uint64) (entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, found := slices.BinarySearchFunc(s.entries, after, func(e entry, seq uint64) int { return cmp.Compare(e.seq, seq) })
	if found {
		at++
	}
	if at == len(s.entries) {
		return entry{}, false
	}
	return s.entries[at], true
}

func (s *Spool) read(e entry) ([]byte, error) {
	b, err := readFile(s.path(e), e.size+1)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read spool entry %s: %w", e.name(), err)
	}
	line, ok := decode(e, b)
	if ok {
		return line, nil
	}
	s.write.Lock()
	defer s.write.Unlock()
	if _, there := s.find(e.seq); !there { // dropped meanwhile: counted by who did it
		return nil, errDamaged
	}
	if err := s.remove(e, StepRemove); err != nil {
		return nil, fmt.Errorf("drop damaged spool entry: %w", err)
	}
	s.count(func(st *Stats) { st.Corrupt++ })
	return nil, errDamaged
}

// Ack removes the entry of a sequence number, which the server has. A removal
// that a power cut undoes makes the record be sent once more. That it is gone
// already is no error.
func (s *Spool) Ack(seq uint64) error {
	s.write.Lock()
	defer s.write.Unlock()
	e, ok := s.find(seq)
	if !ok {
		return nil
	}
	if err := s.remove(e, StepRemove); err != nil {
		return fmt.Errorf("remove spool entry: %w", err)
	}
	return nil
}

// Refuse sets an entry that the server will never take aside, with the reason,
// in a folder that keeps the latest of them.
func (s *Spool) Refuse(seq uint64, reason string) error {
	s.write.Lock()
	defer s.write.Unlock()
	e, ok := s.find(seq)
	if !ok {
		return nil
	}
	folder := filepath.Join(s.o.Dir, deadFolder)
	if b, err := readFile(s.path(e), e.size+1); err == nil {
		if line, ok := decode(e, b); ok {
			content := fmt.Appendf(bytes.Clone(line), "\nreason: %q\n", reason)
			if err := s.writeFile(folder, e.stem()+".refused", content); err != nil {
				return fmt.Errorf("set spool entry aside: %w", err)
			}
		}
	}
	if err := s.remove(e, StepRemove); err != nil {
		return fmt.Errorf("set spool entry aside: %w", err)
	}
	s.count(func(st *Stats) { st.Refused++ })
	return trimDead(folder)
}

// trimDead removes the oldest of what was set aside over its bounds.
func trimDead(folder string) error {
	list, err := os.ReadDir(folder) // sorted by name: in order of receipt
	if err != nil {
		return fmt.Errorf("trim refused records: %w", err)
	}
	files, size := 0, int64(0)
	for _, f := range slices.Backward(list) {
		info, err := f.Info()
		if err != nil {
			continue
		}
		files++
		if size += info.Size(); files > maxDead || size > maxDeadBytes {
			if err := os.Remove(filepath.Join(folder, f.Name())); ignoreMissing(err) != nil {
				return fmt.Errorf("trim refused records: %w", err)
			}
		}
	}
	return nil
}

func (s *Spool) find(seq uint64) (entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := slices.BinarySearchFunc(s.entries, seq, func(e entry, seq uint64) int { return cmp.Compare(e.seq, seq) })
	if !ok {
		return entry{}, false
	}
	return s.entries[at], true
}

// remove removes an entry's file, then the entry. s.write is held.
func (s *Spool) remove(e entry, step string) error {
	if err := s.fault(step); err != nil {
		return err
	}
	if err := ignoreMissing(os.Remove(s.path(e))); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := slices.BinarySearchFunc(s.entries, e.seq, func(e entry, seq uint64) int { return cmp.Compare(e.seq, seq) })
	if ok {
		s.entries = slices.Delete(s.entries, at, at+1)
		s.stats.Records--
		s.stats.Bytes -= e.size
	}
	return nil
}

func (s *Spool) count(f func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.stats)
}

func (s *Spool) path(e entry) string { return filepath.Join(s.o.Dir, e.name()) }
