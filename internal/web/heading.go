package web

// heading is a column of a table.
type heading struct {
	Label, Unit, Title string
	URL                string // sorts by it
	Sorted             string // ascending, descending
	Class              string
}

// byName is what tables are sorted by that have names in that column: from A on first.
const byName = "name"

// sortHeading makes h the heading of a column that a table can be sorted by: sort=key, or
// -key for the largest first. by is what it is sorted by now; to is the address of the
// table in another order. The largest comes first, but of names; asked for again, the
// order is reversed.
func sortHeading(h heading, key, by string, to func(sort string) string) heading {
	first, second := "-"+key, key
	if h.Class = "n"; key == byName {
		first, second, h.Class = second, first, ""
	}
	switch by {
	case "-" + key:
		h.Sorted = "descending"
	case key:
		h.Sorted = "ascending"
	}
	if h.URL = to(first); by == first {
		h.URL = to(second)
	}
	return h
}
