package cimeter_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/cimeter/cimeter"
)

// optionals holds each kind of value that an Opt has in a record, and what it is
// read as without one.
type optionals struct {
	F cimeter.Opt[float64]
	I cimeter.Opt[int64]
	U cimeter.Opt[uint64]
	N cimeter.Opt[int]
	B cimeter.Opt[bool]
}

type plain struct {
	F *float64
	I *int64
	U *uint64
	N *int
	B *bool
}

func pointers(o optionals) (p plain) {
	if o.F.Known {
		p.F = &o.F.Value
	}
	if o.I.Known {
		p.I = &o.I.Value
	}
	if o.U.Known {
		p.U = &o.U.Value
	}
	if o.N.Known {
		p.N = &o.N.Value
	}
	if o.B.Known {
		p.B = &o.B.Value
	}
	return p
}

// FuzzOpt holds what an Opt reads to what a pointer does.
func FuzzOpt(f *testing.F) {
	for _, v := range []string{"null", "0", "-0", "1", "-1", "1.5", "-0.25", "01", "00.5", "1.", ".5", "1e3", "1E-7", "-", "", "+1", "0x10", "1_0", "inf", "NaN", `"1"`, "true", "1 ", " 1",
		"9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551615", "18446744073709551616", "1e400", "123456789012345678901234567890.5", "[1]", "{}"} {
		f.Add([]byte(v))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		for _, name := range []string{"F", "I", "U", "N", "B"} {
			doc := `{"` + name + `":` + string(value) + `}`
			var got optionals
			var want plain
			gotErr, wantErr := json.Unmarshal([]byte(doc), &got), json.Unmarshal([]byte(doc), &want)
			if (gotErr == nil) != (wantErr == nil) || wantErr == nil && !reflect.DeepEqual(pointers(got), want) {
				t.Errorf("%s: got %+v, %v; a pointer has %+v, %v", doc, got, gotErr, want, wantErr)
			}
		}
		// Called by itself it may be given what is no JSON.
		var o cimeter.Opt[float64]
		var v *float64
		if gotErr, wantErr := o.UnmarshalJSON(value), json.Unmarshal(value, &v); gotErr == nil && wantErr != nil {
			t.Errorf("%q: read as %v, which is no JSON", value, o)
		}
	})
}
