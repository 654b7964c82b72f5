package queue

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// told is one thing that was told of a build or a worker. What is told later wins,
// field by field; what it does not tell is taken from what was told before. So the
// outcome does not depend on the order in which it is learned.
type told[T any] struct {
	at    time.Time
	rank  rank // of builds
	raw   bool // its times are by the server's clock, which was not told with it
	value T
}

// maxTold bounds what is kept of one build or worker. What a later thing tells as
// well is dropped, so there is one for each form in which a server tells (a list, a
// single build, a webhook) and rank; twelve are more than any server has.
const maxTold = 12

// before orders what was told, totally: what is told at one instant by what it says.
func (a *told[T]) before(b *told[T]) int {
	if c := a.at.Compare(b.at); c != 0 {
		return c
	}
	return cmp.Compare(canonical(a.value), canonical(b.value))
}

func canonical(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "" // no value of ours is NaN: they are cut when they come
	}
	return string(text)
}

// covers reports whether nothing of b is needed where a is known. fill takes from
// its second argument what the first does not tell and reports whether there was any.
func (a *told[T]) covers(b *told[T], fill func(*T, *T) bool) bool {
	if a.rank != b.rank {
		return false
	}
	c := a.value
	return !fill(&c, &b.value)
}

// learn adds v to what is known. The list is in order; the result may share it.
func learn[T any](list []told[T], v told[T], fill func(*T, *T) bool) []told[T] {
	at := 0
	for i := range list {
		c := list[i].before(&v)
		if c >= 0 && list[i].covers(&v, fill) {
			return list
		}
		if c < 0 {
			at = i + 1
		}
	}
	list = slices.Insert(list, at, v)
	kept := list[:0]
	for i := range list {
		if i < at && v.covers(&list[i], fill) {
			continue
		}
		kept = append(kept, list[i])
	}
	clear(list[len(kept):])
	if len(kept) > maxTold {
		kept = slices.Delete(kept, 0, 1)
	}
	return kept
}

// lastAt is when something was told last.
func lastAt[T any](list []told[T]) time.Time {
	if len(list) == 0 {
		return time.Time{}
	}
	return list[len(list)-1].at
}
