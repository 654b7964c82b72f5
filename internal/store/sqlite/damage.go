package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	driver "modernc.org/sqlite" // registers itself as "sqlite"
	code "modernc.org/sqlite/lib"

	"github.com/cimeter/cimeter"
)

// damage is the error for a file whose content is not sound. SQLite says the same
// of a page that the disk does not give (EIO), so the disk is asked too.
func (s *Store) damage(what string) error {
	whole, err := s.disk.readable(s.o.Path)
	switch {
	case err != nil:
		return s.unread(fmt.Sprintf("%s; %v", what, err))
	case !whole:
		what += "; or the disk does not give what it holds: see the kernel's log for its errors first"
	}
	return fmt.Errorf("the file is damaged (%s): move it away with its -wal and -shm, then put the last backup in its place that \"cimeter store check FILE\" finds whole: %w", what, cimeter.ErrUnavailable)
}

// disk remembers whether the disk gives what it holds.
type disk struct {
	mu    sync.Mutex
	asked time.Time
	whole bool
	err   error
}

const (
	diskTime  = 3 * time.Second // for which a file is read
	diskAgain = time.Minute     // after which it is read again
)

// readable reads the file and its log as far as its time goes; whole: all of it.
func (d *disk) readable(path string) (whole bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	start := time.Now()
	if !d.asked.IsZero() && start.Sub(d.asked) < diskAgain {
		return d.whole, d.err
	}
	d.asked, d.whole, d.err = start, true, nil
	b := make([]byte, 1<<20)
	for _, name := range []string{path, path + "-wal"} {
		f, err := os.Open(name)
		if err != nil {
			continue // there is none, or who asked has said so
		}
		for err == nil && d.whole {
			_, err = f.Read(b)
			d.whole = time.Since(start) < diskTime
		}
		f.Close()
		if err != nil && err != io.EOF {
			d.err = err
			break
		}
	}
	return d.whole, d.err
}

// unread is the error for a disk that does not give or take what the file holds:
// what is in it may be sound, and a backup would go to the same disk.
func (s *Store) unread(what string) error {
	return fmt.Errorf("the disk failed (%s): the file itself may be sound; see the kernel's log for its errors, and copy the file to another disk before anything else: %w", what, cimeter.ErrUnavailable)
}

var checkCode = regexp.MustCompile(`error code[ =](\d+)`)

// unsound is the error for what a check of the file found. A page that the disk
// does not give is told there as well, with the code of its error.
func (s *Store) unsound(found string) error {
	m := checkCode.FindStringSubmatch(found)
	if m == nil {
		if strings.Contains(found, "failed to get page") {
			return s.unread(found)
		}
		return s.damage(found)
	}
	n, _ := strconv.Atoi(m[1])
	switch n & 0xff {
	case code.SQLITE_IOERR:
		return s.unread(found)
	case code.SQLITE_NOMEM, code.SQLITE_BUSY, code.SQLITE_LOCKED, code.SQLITE_INTERRUPT:
		return fmt.Errorf("the file could not be checked (%s): %w", found, cimeter.ErrUnavailable)
	}
	return s.damage(found)
}

// damaged says what to do when SQLite says that the file is not sound or that
// the disk failed, and gives other errors of SQLite their code.
func (s *Store) damaged(err error) error {
	var e *driver.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case code.SQLITE_CORRUPT, code.SQLITE_NOTADB:
		return s.damage(e.Error())
	case code.SQLITE_IOERR:
		return s.unread(e.Error())
	case code.SQLITE_FULL, code.SQLITE_BUSY, code.SQLITE_LOCKED, code.SQLITE_READONLY, code.SQLITE_CANTOPEN, code.SQLITE_NOMEM:
		return fmt.Errorf("%v: %w", e, cimeter.ErrUnavailable)
	}
	return err
}
