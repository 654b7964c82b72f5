package spool

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cimeter/cimeter"
)

// idFile holds the spool's ID.
const idFile = "id"

// Open makes the directory (mode 0700) where it is missing, removes leftovers of
// unfinished writes, reads the names of the entries in it, and drops what is
// over the bound. The error names the path; it wraps [cimeter.ErrConflict] when
// another process has the directory open.
func Open(o Options) (*Spool, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Dir == "" || o.MaxBytes < 0 {
		return nil, fmt.Errorf("open spool %q: %d bytes: want a path and a positive bound: %w", o.Dir, o.MaxBytes, cimeter.ErrInvalid)
	}
	s := &Spool{o: o, next: 1}
	if err := s.open(); err != nil {
		if s.lock != nil {
			s.lock.Close()
		}
		return nil, fmt.Errorf("open spool %s: %w", o.Dir, err)
	}
	return s, nil
}

func (s *Spool) open() error {
	dead := filepath.Join(s.o.Dir, deadFolder)
	for _, dir := range []string{s.o.Dir, dead} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			return err
		}
	}
	lock, err := os.Open(s.o.Dir)
	if err != nil {
		return err
	}
	s.lock = lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("in use by another process: %w", cimeter.ErrConflict)
		}
		return fmt.Errorf("lock: %w", err)
	}
	if err := s.load(); err != nil {
		return err
	}
	if err := removeLeftovers(dead); err != nil {
		return err
	}
	// What is set aside next is newer than what was.
	list, err := os.ReadDir(dead)
	if err != nil {
		return err
	}
	for _, f := range list {
		if stem, _, _ := strings.Cut(f.Name(), "-"); len(stem) == 16 {
			if seq, err := strconv.ParseUint(stem, 16, 63); err == nil {
				s.next = max(s.next, seq+1)
			}
		}
	}
	// A killed process may have renamed an entry without syncing the directory.
	if err := lock.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	if err := s.identify(); err != nil {
		return err
	}
	return s.makeRoom(0)
}

func (s *Spool) load() error {
	if err := removeLeftovers(s.o.Dir); err != nil {
		return err
	}
	list, err := os.ReadDir(s.o.Dir)
	if err != nil {
		return err
	}
	for _, f := range list {
		e, ok := parseName(f.Name())
		if !ok || !f.Type().IsRegular() {
			continue
		}
		s.entries = append(s.entries, e)
		s.stats.Records++
		s.stats.Bytes += e.size
		s.next = max(s.next, e.seq+1)
	}
	slices.SortFunc(s.entries, func(a, b entry) int { return cmp.Compare(a.seq, b.seq) })
	return nil
}

func removeLeftovers(folder string) error {
	list, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, f := range list {
		if strings.HasPrefix(f.Name(), tempPrefix) {
			if err := os.Remove(filepath.Join(folder, f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// identify reads the spool's ID, or makes it.
func (s *Spool) identify() error {
	path := filepath.Join(s.o.Dir, idFile)
	b, err := readFile(path, 64)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if id := strings.TrimSpace(string(b)); len(id) == 32 {
		if _, err := hex.DecodeString(id); err == nil {
			s.id = id
			return nil
		}
	}
	raw := make([]byte, 16)
	rand.Read(raw) // never fails
	s.id = hex.EncodeToString(raw)
	return s.writeFile(s.o.Dir, idFile, []byte(s.id+"\n"))
}
