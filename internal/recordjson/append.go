package recordjson

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
)

// Append appends the JSON of r, with its trace, to b. The error is that of
// json.Marshal: a number or a time that JSON has no form for.
func Append(b []byte, r *cimeter.Record) ([]byte, error) {
	return recordAppender()(b, reflect.ValueOf(r).Elem())
}

// AppendTrace appends the JSON of t to b.
func AppendTrace(b []byte, t *cimeter.Trace) ([]byte, error) {
	return traceAppender()(b, reflect.ValueOf(t).Elem())
}

// Of returns what appends the JSON of values of one type, which does not hold
// itself. Make it once.
func Of[T any]() func(b []byte, v *T) ([]byte, error) {
	of := appenderOf(reflect.TypeFor[T]())
	return func(b []byte, v *T) ([]byte, error) { return of(b, reflect.ValueOf(v).Elem()) }
}

// An appender appends the JSON of an addressable value. What it has no own way
// for, it leaves to json.Marshal.
type appender func(b []byte, v reflect.Value) ([]byte, error)

var (
	recordAppender = sync.OnceValue(func() appender { return appenderOf(reflect.TypeFor[cimeter.Record]()) })
	traceAppender  = sync.OnceValue(func() appender { return appenderOf(reflect.TypeFor[cimeter.Trace]()) })
)

// appenderOf makes the appender of a type, which does not hold itself.
func appenderOf(t reflect.Type) appender {
	switch reflect.New(t).Interface().(type) {
	case *time.Time:
		return func(b []byte, v reflect.Value) ([]byte, error) {
			at := v.Addr().Interface().(*time.Time)
			// A zone that the form has no room for is json.Marshal's to refuse.
			if _, zone := at.Zone(); at.Year() < 0 || at.Year() > 9999 || zone%60 != 0 || zone <= -86400 || zone >= 86400 {
				return appendAny(b, v)
			}
			b = append(b, '"')
			b = at.AppendFormat(b, time.RFC3339Nano)
			return append(b, '"'), nil
		}
	case *cimeter.Opt[bool]:
		return optional(func(b []byte, v bool) ([]byte, error) { return strconv.AppendBool(b, v), nil })
	case *cimeter.Opt[float64]:
		return optional(appendFloat)
	case *cimeter.Opt[int64]:
		return optional(appendInt[int64])
	case *cimeter.Opt[int]:
		return optional(appendInt[int])
	case *cimeter.Opt[uint64]:
		return optional(appendUint)
	case *[]cimeter.Opt[int64]:
		return appendColumn
	case json.Marshaler, interface{ MarshalText() ([]byte, error) }:
		return appendAny
	}
	switch t.Kind() {
	case reflect.Struct:
		return appendStruct(fieldsOf(t, nil))
	case reflect.Pointer:
		of := appenderOf(t.Elem())
		return func(b []byte, v reflect.Value) ([]byte, error) {
			if v.IsNil() {
				return append(b, "null"...), nil
			}
			return of(b, v.Elem())
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return appendAny
		}
		return appendSlice(appenderOf(t.Elem()))
	case reflect.String:
		return func(b []byte, v reflect.Value) ([]byte, error) { return appendString(b, v.String()) }
	case reflect.Bool:
		return func(b []byte, v reflect.Value) ([]byte, error) { return strconv.AppendBool(b, v.Bool()), nil }
	case reflect.Int, reflect.Int64:
		return func(b []byte, v reflect.Value) ([]byte, error) { return strconv.AppendInt(b, v.Int(), 10), nil }
	case reflect.Uint64:
		return func(b []byte, v reflect.Value) ([]byte, error) { return strconv.AppendUint(b, v.Uint(), 10), nil }
	case reflect.Float64:
		return func(b []byte, v reflect.Value) ([]byte, error) { return appendFloat(b, v.Float()) }
	}
	return appendAny
}

func appendAny(b []byte, v reflect.Value) ([]byte, error) {
	out, err := json.Marshal(v.Addr().Interface())
	return append(b, out...), err
}

// field is one member of an object.
type field struct {
	index []int // of the field in its struct, through embedded ones
	of    reflect.Type
	name  string // quoted, with its colon
	omit  func(v reflect.Value) bool
	value appender
	read  reader
}

func fieldsOf(t reflect.Type, within []int) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		index := append(within[:len(within):len(within)], i)
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			out = append(out, fieldsOf(f.Type, index)...)
			continue
		case !f.IsExported(), name == "-":
			continue
		case name == "":
			name = f.Name
		}
		m := field{index: index, of: f.Type, name: strconv.Quote(name) + ":", value: appenderOf(f.Type), omit: func(reflect.Value) bool { return false }}
		switch {
		case strings.Contains(options, "omitempty"):
			m.omit = empty
		case strings.Contains(options, "omitzero"):
			m.omit = zero(f.Type)
		}
		out = append(out, m)
	}
	return out
}

func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice, reflect.String, reflect.Array:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

func zero(t reflect.Type) func(v reflect.Value) bool {
	type zeroer interface{ IsZero() bool }
	if !reflect.PointerTo(t).Implements(reflect.TypeFor[zeroer]()) {
		return reflect.Value.IsZero
	}
	return func(v reflect.Value) bool { return v.Addr().Interface().(zeroer).IsZero() }
}

func appendStruct(fields []field) appender {
	return func(b []byte, v reflect.Value) (_ []byte, err error) {
		b = append(b, '{')
		first := true
		for i := range fields {
			f := &fields[i]
			x := v.FieldByIndex(f.index)
			if f.omit(x) {
				continue
			}
			if !first {
				b = append(b, ',')
			}
			first = false
			b = append(b, f.name...)
			if b, err = f.value(b, x); err != nil {
				return b, err
			}
		}
		return append(b, '}'), nil
	}
}

func appendSlice(of appender) appender {
	return func(b []byte, v reflect.Value) (_ []byte, err error) {
		if v.IsNil() {
			return append(b, "null"...), nil
		}
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = of(b, v.Index(i)); err != nil {
				return b, err
			}
		}
		return append(b, ']'), nil
	}
}

// appendColumn appends a column of a trace.
func appendColumn(b []byte, v reflect.Value) ([]byte, error) {
	column := *v.Addr().Interface().(*[]cimeter.Opt[int64])
	if column == nil {
		return append(b, "null"...), nil
	}
	b = append(b, '[')
	for i, x := range column {
		if i > 0 {
			b = append(b, ',')
		}
		if x.Known {
			b = strconv.AppendInt(b, x.Value, 10)
		} else {
			b = append(b, "null"...)
		}
	}
	return append(b, ']'), nil
}

func optional[T any](of func(b []byte, v T) ([]byte, error)) appender {
	return func(b []byte, v reflect.Value) ([]byte, error) {
		x := v.Addr().Interface().(*cimeter.Opt[T])
		if !x.Known {
			return append(b, "null"...), nil
		}
		return of(b, x.Value)
	}
}

func appendInt[T int | int64](b []byte, v T) ([]byte, error) {
	return strconv.AppendInt(b, int64(v), 10), nil
}

func appendUint(b []byte, v uint64) ([]byte, error) { return strconv.AppendUint(b, v, 10), nil }

func appendFloat(b []byte, v float64) ([]byte, error) {
	switch abs := math.Abs(v); {
	case math.IsNaN(v), math.IsInf(v, 0):
		return b, fmt.Errorf("number %v: want one that JSON has a form for", v)
	case abs != 0 && (abs < 1e-6 || abs >= 1e21): // with an exponent
		out, err := json.Marshal(v)
		return append(b, out...), err
	}
	return strconv.AppendFloat(b, v, 'f', -1, 64), nil
}

func appendString(b []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			out, err := json.Marshal(s)
			return append(b, out...), err
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"'), nil
}
