package store

import "slices"

// NameColumn tells which column of builds holds the targets of the names of a
// kind.
func NameColumn(kind string) (column string, ok bool) {
	switch kind {
	case "job":
		return "name", true
	case "stage":
		return "stages", true
	}
	return kind, slices.Contains(nameKinds, kind)
}

// NameKinds are the kinds of names that retention deletes when no build has them.
func NameKinds() []string { return slices.Clone(nameKinds) }

var nameKinds = []string{"project", "job", "ref", "machine", "runner", "stage"}

// NameSet remembers names that are in a store, so that they are not written
// with each build. The zero value is empty; its owner locks it.
type NameSet struct{ known map[Name]struct{} }

// maxNamed bounds the memory of a NameSet: about 10 MB. A full set is dropped.
const maxNamed = 50_000

// Missing returns those of names that are not in the set.
func (s *NameSet) Missing(names []Name) []Name {
	out := names[:0:0]
	for _, n := range names {
		if _, ok := s.known[n]; !ok {
			out = append(out, n)
		}
	}
	return out
}

// Add puts names, which are kept now, into the set.
func (s *NameSet) Add(names []Name) {
	if s.known == nil || len(s.known) > maxNamed {
		s.known = map[Name]struct{}{}
	}
	for _, n := range names {
		s.known[n] = struct{}{}
	}
}

// Clear forgets all names: some may have been deleted from the store.
func (s *NameSet) Clear() { s.known = nil }
