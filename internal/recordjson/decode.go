package recordjson

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
)

// Decode makes r the record of a JSON document. Members that are not known are
// ignored. The error is that of json.Unmarshal.
func Decode(doc []byte, r *cimeter.Record) error {
	*r = cimeter.Record{}
	if whole(doc, recordReader(), reflect.ValueOf(r).Elem()) {
		return nil
	}
	*r = cimeter.Record{}
	return json.Unmarshal(doc, r)
}

// DecodeTrace makes t the trace of a JSON document.
func DecodeTrace(doc []byte, t *cimeter.Trace) error {
	*t = cimeter.Trace{}
	if whole(doc, traceReader(), reflect.ValueOf(t).Elem()) {
		return nil
	}
	*t = cimeter.Trace{}
	return json.Unmarshal(doc, t)
}

// A reader sets an addressable value, which is zero, to what stands next in a
// document. It returns false for all that is not of the plain form that Append
// writes, valid or not: the document is then read anew by json.Unmarshal.
type reader func(in *input, v reflect.Value) bool

var (
	recordReader = sync.OnceValue(func() reader { return readerOf(reflect.TypeFor[cimeter.Record]()) })
	traceReader  = sync.OnceValue(func() reader { return readerOf(reflect.TypeFor[cimeter.Trace]()) })
)

func whole(doc []byte, read reader, v reflect.Value) bool {
	in := input{doc: doc}
	return read(&in, v) && in.peek() == 0 && in.at == len(doc)
}

// readerOf makes the reader of a type, which does not hold itself.
func readerOf(t reflect.Type) reader {
	switch reflect.New(t).Interface().(type) {
	case *time.Time:
		return func(in *input, v reflect.Value) bool {
			token, ok := in.quoted()
			return ok && v.Addr().Interface().(*time.Time).UnmarshalJSON(token) == nil
		}
	case *cimeter.Opt[bool]:
		return known(func(in *input, v *bool) bool {
			*v = in.word("true")
			return *v || in.word("false")
		})
	case *cimeter.Opt[float64]:
		return known(func(in *input, v *float64) bool { return in.float(v) })
	case *cimeter.Opt[int64]:
		return known(func(in *input, v *int64) bool { return in.integer(v) })
	case *cimeter.Opt[int]:
		return known(func(in *input, v *int) bool {
			var n int64
			ok := in.integer(&n)
			*v = int(n)
			return ok && int64(*v) == n
		})
	case *cimeter.Opt[uint64]:
		return known(func(in *input, v *uint64) bool { return in.unsigned(v) })
	case *[]cimeter.Opt[int64]:
		return readColumn
	case *map[string]string:
		return readMap
	case json.Unmarshaler, interface{ UnmarshalText([]byte) error }:
		return unread
	}
	switch t.Kind() {
	case reflect.Struct:
		return readStruct(fieldsOf(t, nil))
	case reflect.Pointer:
		of := readerOf(t.Elem())
		return func(in *input, v reflect.Value) bool {
			if in.null() {
				return true
			}
			p := reflect.New(t.Elem())
			v.Set(p)
			return of(in, p.Elem())
		}
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 {
			return readSlice(t, readerOf(t.Elem()))
		}
	case reflect.String:
		return func(in *input, v reflect.Value) bool {
			s, ok := in.text()
			v.SetString(s)
			return ok
		}
	case reflect.Bool:
		return func(in *input, v reflect.Value) bool {
			v.SetBool(in.word("true"))
			return v.Bool() || in.word("false")
		}
	case reflect.Int, reflect.Int64:
		return func(in *input, v reflect.Value) bool {
			var n int64
			ok := in.integer(&n) && !v.OverflowInt(n)
			v.SetInt(n)
			return ok
		}
	case reflect.Uint64:
		return func(in *input, v reflect.Value) bool { return in.unsigned(v.Addr().Interface().(*uint64)) }
	case reflect.Float64:
		return func(in *input, v reflect.Value) bool { return in.float(v.Addr().Interface().(*float64)) }
	}
	return unread
}

// unread leaves what has no way of its own to json.Unmarshal.
func unread(*input, reflect.Value) bool { return false }

func known[T any](of func(in *input, v *T) bool) reader {
	return func(in *input, v reflect.Value) bool {
		if in.null() {
			return true
		}
		x := v.Addr().Interface().(*cimeter.Opt[T])
		x.Known = true
		return of(in, &x.Value)
	}
}

// readStruct reads an object of known members, each at most once. They mostly
// come in the order of the fields.
func readStruct(fields []field) reader {
	if len(fields) > 64 {
		return unread
	}
	names := make([]string, len(fields))
	byName := make(map[string]int, len(fields))
	for i, f := range fields {
		names[i] = strings.Trim(f.name, `":`)
		byName[names[i]] = i
		fields[i].read = readerOf(f.of)
	}
	return func(in *input, v reflect.Value) bool {
		if !in.take('{') {
			return false
		}
		if in.take('}') {
			return true
		}
		var seen uint64
		for next := 0; ; next++ {
			name, ok := in.quoted()
			if !ok || !in.take(':') {
				return false
			}
			name = name[1 : len(name)-1]
			for next < len(names) && names[next] != string(name) {
				next++
			}
			if next >= len(names) {
				if next, ok = byName[string(name)]; !ok {
					return false
				}
			}
			if seen&(1<<next) != 0 {
				return false
			}
			seen |= 1 << next
			f := &fields[next]
			x := v
			if len(f.index) == 1 {
				x = v.Field(f.index[0])
			} else {
				x = v.FieldByIndex(f.index)
			}
			if !f.read(in, x) {
				return false
			}
			if in.take(',') {
				continue
			}
			return in.take('}')
		}
	}
}

func readSlice(t reflect.Type, of reader) reader {
	return func(in *input, v reflect.Value) bool {
		if in.null() {
			return true
		}
		if !in.take('[') {
			return false
		}
		if in.take(']') {
			v.Set(reflect.MakeSlice(t, 0, 0))
			return true
		}
		for n := 0; ; n++ {
			if n == v.Cap() {
				v.Grow(1)
			}
			v.SetLen(n + 1)
			if !of(in, v.Index(n)) {
				return false
			}
			if in.take(',') {
				continue
			}
			return in.take(']')
		}
	}
}

// readColumn reads a column of a trace.
func readColumn(in *input, v reflect.Value) bool {
	if in.null() {
		return true
	}
	if !in.take('[') {
		return false
	}
	end := bytes.IndexByte(in.doc[in.at:], ']')
	if end < 0 {
		return false
	}
	column := make([]cimeter.Opt[int64], 0, 1+bytes.Count(in.doc[in.at:in.at+end], []byte(",")))
	to := v.Addr().Interface().(*[]cimeter.Opt[int64])
	if in.take(']') {
		*to = column[:0:0]
		return true
	}
	for {
		var x cimeter.Opt[int64]
		if !in.null() {
			if x.Known = true; !in.integer(&x.Value) {
				return false
			}
		}
		column = append(column, x)
		if in.take(',') {
			continue
		}
		*to = column
		return in.take(']')
	}
}

func readMap(in *input, v reflect.Value) bool {
	if in.null() {
		return true
	}
	if !in.take('{') {
		return false
	}
	m := map[string]string{}
	*v.Addr().Interface().(*map[string]string) = m
	if in.take('}') {
		return true
	}
	for {
		name, ok := in.text()
		if !ok || !in.take(':') {
			return false
		}
		value, ok := in.text()
		if !ok {
			return false
		}
		m[name] = value
		if in.take(',') {
			continue
		}
		return in.take('}')
	}
}
