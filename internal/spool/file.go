package spool

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A record's file is named
//
//	<sequence number, 16 hex digits>-<hash of the key, 32 hex digits>-<size in bytes>.entry
//
// and holds the record's JSON in one line, then the CRC-32C of that line and
// of the name's first two parts.
const (
	entrySuffix  = ".entry"
	tempPrefix   = ".unfinished-"
	crcPrefix    = "\ncrc32c "
	trailerBytes = len(crcPrefix) + 8 + 1
	hashBytes    = 16
)

// entry is a record as its file's name tells it.
type entry struct {
	seq  uint64
	hash [hashBytes]byte
	size int64 // bytes of the file
}

func (e entry) stem() string { return fmt.Sprintf("%016x-%x", e.seq, e.hash) }

func (e entry) name() string { return fmt.Sprintf("%s-%d%s", e.stem(), e.size, entrySuffix) }

func parseName(name string) (entry, bool) {
	stem, ok := strings.CutSuffix(name, entrySuffix)
	parts := strings.Split(stem, "-")
	if !ok || len(parts) != 3 || len(parts[0]) != 16 || len(parts[1]) != 2*hashBytes {
		return entry{}, false
	}
	var e entry
	var err error
	if e.seq, err = strconv.ParseUint(parts[0], 16, 63); err != nil {
		return entry{}, false
	}
	if _, err := hex.Decode(e.hash[:], []byte(parts[1])); err != nil {
		return entry{}, false
	}
	if e.size, err = strconv.ParseInt(parts[2], 10, 64); err != nil || e.size < 0 || e.size > MaxRecordBytes+int64(trailerBytes) {
		return entry{}, false
	}
	return e, e.name() == name
}

func hashKey(key string) (h [hashBytes]byte) {
	sum := sha256.Sum256([]byte(key))
	copy(h[:], sum[:])
	return h
}

func sum(e entry, line []byte) string {
	table := crc32.MakeTable(crc32.Castagnoli)
	return fmt.Sprintf("%08x", crc32.Update(crc32.Checksum([]byte(e.stem()), table), table, line))
}

func encode(e entry, line []byte) []byte {
	b := make([]byte, 0, len(line)+trailerBytes)
	b = append(append(b, line...), crcPrefix...)
	return append(append(b, sum(e, line)...), '\n')
}

// decode returns the line of a file, or false when it is damaged.
func decode(e entry, file []byte) ([]byte, bool) {
	at := len(file) - trailerBytes
	if at < 0 || int64(len(file)) != e.size {
		return nil, false
	}
	line := file[:at]
	return line, string(file[at:]) == crcPrefix+sum(e, line)+"\n"
}

// writeFile makes dir/name, durably when it returns no error; then it leaves
// nothing behind but, after a failed sync of the directory, perhaps the file.
func (s *Spool) writeFile(dir, name string, content []byte) error {
	f, err := s.create(dir)
	if err != nil {
		return err
	}
	err = s.fill(f, content)
	if err == nil {
		err = s.fault(StepRename)
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(os.Remove(f.Name())))
	}
	if err := s.fault(StepSyncDir); err != nil {
		return err
	}
	return syncDir(dir)
}

func (s *Spool) create(dir string) (*os.File, error) {
	if err := s.fault(StepCreate); err != nil {
		return nil, err
	}
	return os.CreateTemp(dir, tempPrefix+"*") // mode 0600
}

func (s *Spool) fill(f *os.File, content []byte) (err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := s.fault(StepWrite); err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := s.fault(StepSync); err != nil {
		return err
	}
	// A sync that failed is never tried again: the kernel may hold the pages as
	// clean, and a second one would succeed with nothing on the disk.
	return f.Sync()
}

func (s *Spool) fault(step string) error {
	if s.o.Fault == nil {
		return nil
	}
	if err := s.o.Fault(step); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
