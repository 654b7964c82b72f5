package store

import (
	"fmt"
	"strings"

	"github.com/cimeter/cimeter"
)

// Migrations are the statements of each version of a schema, in order: the
// first makes version 1. They are in files whose names, such as
// migrations/0001_what.sql, follow each other; a line that ends in a semicolon
// ends a statement. read reads one of them.
func Migrations(read func(name string) ([]byte, error), names ...string) ([][]string, error) {
	all := make([][]string, 0, len(names))
	for i, name := range names {
		if want := fmt.Sprintf("migrations/%04d_", i+1); !strings.HasPrefix(name, want) {
			return nil, fmt.Errorf("migration %s: want a name that begins with %s", name, want)
		}
		b, err := read(name)
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", name, err)
		}
		var statements []string
		for s := range strings.SplitSeq(string(b), ";\n") {
			if strings.TrimSpace(s) != "" {
				statements = append(statements, s)
			}
		}
		all = append(all, statements)
	}
	return all, nil
}

// CheckVersion reports whether a program that knows a schema up to a version
// may use one of version found, 0 being none at all; migrate says that it may
// bring an older one up to date. The error wraps [cimeter.ErrConflict].
func CheckVersion(found, known int, migrate bool) error {
	switch {
	case found > known:
		return fmt.Errorf("its schema is version %d, this program knows up to %d: use a newer program: %w", found, known, cimeter.ErrConflict)
	case found != 0 && found < known && !migrate:
		return fmt.Errorf("its schema is version %d, this program wants %d: make a backup, then run cimeter store migrate: %w", found, known, cimeter.ErrConflict)
	}
	return nil
}
