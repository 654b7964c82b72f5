package records

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cimeter/cimeter"
)

// Filter tells whether a record is wanted; nil wants every record. It is an
// alias so that interfaces of consumers need not name this package.
type Filter = func(*cimeter.Record) bool

// Get returns the record of a key. The error wraps [cimeter.ErrNotFound] when
// there is none, and [ErrDamaged] when its file is damaged; that file
// is then set aside and counted, and the next Get does not find the record.
func (d *Dir) Get(key string) (*cimeter.Record, error) {
	e, ok := d.find(hashKey(key))
	if !ok {
		return nil, fmt.Errorf("get record %s: %w", key, cimeter.ErrNotFound)
	}
	r, err := d.read(e)
	if errors.Is(err, fs.ErrNotExist) || err == nil && r.Key != key {
		return nil, fmt.Errorf("get record %s: %w", key, cimeter.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("get record %s: %w", key, err)
	}
	return r, nil
}

// List returns at most limit records, the latest end first, from where cursor
// left off ("" is the newest), and the cursor of the next page, "" at the end.
// It reads only the files it returns and those that the filter refuses, at
// most 2000 in one call: with a filter a page may be shorter than limit, even
// empty, though there are more. Damaged files are set aside, counted and left
// out. The error wraps [cimeter.ErrInvalid] for a cursor that List never gave.
func (d *Dir) List(cursor string, limit int, wanted Filter) ([]*cimeter.Record, string, error) {
	var after entry
	if cursor != "" {
		var ok bool
		if after, ok = parseCursor(cursor); !ok {
			return nil, "", fmt.Errorf("list records: cursor %q: want one that a list gave: %w", cursor, cimeter.ErrInvalid)
		}
	}
	if limit < 1 {
		return nil, "", fmt.Errorf("list records: limit %d: want 1 or more: %w", limit, cimeter.ErrInvalid)
	}
	found := make([]*cimeter.Record, 0, min(limit, maxScan))
	started := cursor != ""
	var page [64]entry
	for scanned := 0; scanned < maxScan; {
		n, more := d.older(page[:min(len(page), limit-len(found), maxScan-scanned)], after, started)
		for _, e := range page[:n] {
			r, err := d.read(e)
			switch {
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrDamaged): // evicted meanwhile; set aside
			case err != nil:
				return nil, "", fmt.Errorf("list records: %w", err)
			case wanted == nil || wanted(r):
				found = append(found, r)
			}
			after, started = e, true
			scanned++
		}
		if !more {
			return found, "", nil
		}
		if len(found) == limit {
			break
		}
	}
	return found, after.cursor(), nil
}

// older fills page with the entries before the one given, newest first, and
// tells whether there are more.
func (d *Dir) older(page []entry, after entry, started bool) (n int, more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := len(d.entries)
	if started {
		at, _ = slices.BinarySearchFunc(d.entries, after, compare)
	}
	for n < len(page) && at > 0 {
		at--
		page[n] = d.entries[at]
		n++
	}
	return n, at > 0
}

// read reads one file; a damaged one is set aside.
func (d *Dir) read(e entry) (*cimeter.Record, error) {
	b, err := readBounded(d.path(e), MaxRecordBytes+1)
	if err != nil {
		return nil, err
	}
	r, err := decode(b)
	if err != nil {
		d.discard(e)
		return nil, fmt.Errorf("file %s set aside: %w", e.name(), err)
	}
	return r, nil
}

// discard sets a damaged file aside unless another goroutine did so before.
func (d *Dir) discard(e entry) {
	d.write.Lock()
	defer d.write.Unlock()
	if now, ok := d.find(e.hash); !ok || now != e {
		return
	}
	d.setAside(e)
	d.forget(e)
}
