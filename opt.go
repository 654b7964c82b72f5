package cimeter

import (
	"encoding/json"
	"strconv"
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
	if string(b) == "null" {
		return nil
	}
	if !readNumber(b, &o.Value) {
		if err := json.Unmarshal(b, &o.Value); err != nil {
			return err
		}
	}
	o.Known = true
	return nil
}

// readNumber reads a JSON number into what is the target of an Opt most often,
// without reflection; false: it is left to json.Unmarshal.
func readNumber(b []byte, to any) bool {
	digits := b
	if len(b) > 0 && b[0] == '-' {
		digits = b[1:]
	}
	if len(digits) == 0 || digits[0] == '0' && len(digits) > 1 && digits[1] != '.' {
		return false
	}
	whole := true
	for i, c := range digits {
		switch {
		case c-'0' < 10:
		case c == '.' && whole && i > 0 && i < len(digits)-1:
			whole = false
		default:
			return false
		}
	}
	var err error
	switch v := to.(type) {
	case *float64:
		*v, err = strconv.ParseFloat(string(b), 64)
	case *int64:
		*v, err = strconv.ParseInt(string(b), 10, 64)
	case *uint64:
		*v, err = strconv.ParseUint(string(b), 10, 64)
	case *int:
		*v, err = strconv.Atoi(string(b))
	default:
		return false
	}
	return err == nil
}
