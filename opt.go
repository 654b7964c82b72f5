package cimeter

import (
	"bytes"
	"encoding/json"
)

// Opt is a value that may be absent. The zero value is absent. With the JSON
// tag option omitzero an absent Opt is left out; inside an array it is null.
type Opt[T any] struct {
	Value T
	Known bool
}

// Some returns a known v.
func Some[T any](v T) Opt[T] { return Opt[T]{Value: v, Known: true} }

// Get returns the value and whether it is known.
func (o Opt[T]) Get() (T, bool) { return o.Value, o.Known }

// IsZero reports whether o is absent; a known zero is not.
func (o Opt[T]) IsZero() bool { return !o.Known }

// MarshalJSON writes the value, or null when it is absent.
func (o Opt[T]) MarshalJSON() ([]byte, error) {
	if !o.Known {
		return []byte("null"), nil
	}
	return json.Marshal(o.Value)
}

// UnmarshalJSON reads the value; null is absent.
func (o *Opt[T]) UnmarshalJSON(b []byte) error {
	*o = Opt[T]{}
	if bytes.Equal(b, []byte("null")) {
		return nil
	}
	if err := json.Unmarshal(b, &o.Value); err != nil {
		return err
	}
	o.Known = true
	return nil
}
