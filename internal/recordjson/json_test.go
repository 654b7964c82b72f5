package recordjson

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
)

// fill sets all that v holds, some of it at random to nothing.
func fill(r *rand.Rand, v reflect.Value) {
	if r.IntN(5) == 0 {
		return
	}
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = time.Unix(r.Int64N(1<<36)-1<<35, r.Int64N(3)*1000).In(time.FixedZone("", 1800*r.IntN(3)))
		return
	case *string:
		*x = []string{"", "group/app", "a \"<b>\" & \\c", "Zoë\u2028\n\x00", "\xff"}[r.IntN(5)]
		return
	case *float64:
		*x = []float64{0, math.Copysign(0, -1), 1.5, -3, 1e-6, 1e-7, 123456789.125, 1e20, 1e21, math.MaxFloat64, 0.1 + 0.2}[r.IntN(11)]
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(4), 4))
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k"), reflect.ValueOf("v"))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt(r.Int64() >> r.IntN(64) * int64(1-2*r.IntN(2)))
	case reflect.Uint64:
		v.SetUint(r.Uint64() >> r.IntN(64))
	}
}

// TestAppend holds what is written to json.Marshal's, for every field that a
// record and a trace have.
func TestAppend(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		record, trace := &cimeter.Record{}, &cimeter.Trace{}
		fill(r, reflect.ValueOf(record).Elem())
		fill(r, reflect.ValueOf(trace).Elem())
		record.Trace = nil
		for value, of := range map[any]appender{record: recordAppender(), trace: traceAppender()} {
			want, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			got, err := of(nil, reflect.ValueOf(value).Elem())
			if err != nil || string(got) != string(want) {
				t.Fatalf("got %s, %v\nwant %s", got, err, want)
			}
		}
	}
	for _, bad := range []*cimeter.Record{{Usage: cimeter.Usage{WallSeconds: math.NaN()}}, {Coverage: cimeter.Some(math.Inf(1))},
		{EndedAt: time.Unix(1<<40, 0)}, {EndedAt: time.Unix(0, 0).In(time.FixedZone("", 30))}} {
		_, want := json.Marshal(bad)
		if got, err := recordAppender()(nil, reflect.ValueOf(bad).Elem()); (err == nil) != (want == nil) {
			t.Errorf("got %s, %v; json.Marshal says %v", got, err, want)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	record := &cimeter.Record{Stages: make([]cimeter.Stage, 10)}
	for i := range record.Stages {
		fill(r, reflect.ValueOf(&record.Stages[i]).Elem())
	}
	b.Run("json", func(b *testing.B) {
		for b.Loop() {
			json.Marshal(record)
		}
	})
	b.Run("append", func(b *testing.B) {
		for b.Loop() {
			recordAppender()(make([]byte, 0, 16<<10), reflect.ValueOf(record).Elem())
		}
	})
}

// TestDecode holds what is read to json.Unmarshal's, for every field that a
// record and a trace have, and none is left to it but for its strings' sake.
func TestDecode(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	for range 3000 {
		record := &cimeter.Record{}
		fill(r, reflect.ValueOf(record).Elem())
		doc, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		if r.IntN(2) == 0 {
			if doc, err = json.MarshalIndent(json.RawMessage(doc), " ", "\t"); err != nil {
				t.Fatal(err)
			}
		}
		var want, got cimeter.Record
		if err := json.Unmarshal(doc, &want); err != nil {
			t.Fatal(err)
		}
		if !whole(doc, recordReader(), reflect.ValueOf(&got).Elem()) {
			t.Fatalf("left to json.Unmarshal: %s", doc)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\ngot  %+v\nwant %+v", doc, got, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 4))
	for range 20 {
		record := &cimeter.Record{}
		fill(r, reflect.ValueOf(record).Elem())
		doc, err := json.Marshal(record)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(doc)
	}
	for _, doc := range []string{
		"", "null", "{}", " {} ", "{} {}", `{"key":"a","key":"b"}`, `{"KEY":"a"}`, `{"more":[1,{"a":[]}],"key":"a"}`, `{"key":null,"stages":null,"gaps":[],"limits":null}`,
		`{"coverage":01}`, `{"coverage":1.}`, `{"coverage":.5}`, `{"coverage":1e5}`, `{"coverage":1e999}`, `{"coverage":-0}`, `{"coverage":-}`, `{"coverage":"1"}`, `{"coverage":123456789012345678901}`,
		`{"schema":-0}`, `{"schema":9223372036854775808}`, `{"schema":1.0}`, `{"limits":{"memory_bytes":-1}}`, `{"limits":{"memory_bytes":18446744073709551615}}`,
		`{"ended_at":"2026-11-30T12:00:00.5+01:00"}`, `{"ended_at":"2026-11-30T24:00:00Z"}`, `{"ended_at":null}`, `{"ended_at":"2026-11-30T12:00:00\u005a"}`,
		`{"key":"\ud800","name":"\u0000\n","ref":"a	b"}`, "{\"key\":\"\xff\"}", `{"usage":{"not_metered":{"a":"b","a":"c","":"\\"}}}`, `{"gaps":[{},]}`, `{"gaps":[{}{}]}`, `{"complete":tru}`, `{"complete":"true"}`,
		`{"trace":{"memory_kib":[1,null,-3]}}`, `{"trace":{"memory_kib":[1,,3]}}`, `{"trace":{"memory_kib":[]}}`, `{"trace":{"memory_kib":[1 , 2 ] } }`, `{"stages":[{"exit_code":1},null]}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		var want, got cimeter.Record
		wantErr, gotErr := json.Unmarshal(doc, &want), Decode(doc, &got)
		if (wantErr == nil) != (gotErr == nil) || wantErr == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\ngot  %+v, %v\nwant %+v, %v", doc, got, gotErr, want, wantErr)
		}
		var trace, wantTrace cimeter.Trace
		wantErr, gotErr = json.Unmarshal(doc, &wantTrace), DecodeTrace(doc, &trace)
		if (wantErr == nil) != (gotErr == nil) || wantErr == nil && !reflect.DeepEqual(trace, wantTrace) {
			t.Fatalf("%q\ngot  %+v, %v\nwant %+v, %v", doc, trace, gotErr, wantTrace, wantErr)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	record := &cimeter.Record{Stages: make([]cimeter.Stage, 10)}
	for i := range record.Stages {
		fill(r, reflect.ValueOf(&record.Stages[i]).Elem())
	}
	doc, err := json.Marshal(record)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("json", func(b *testing.B) {
		for b.Loop() {
			var got cimeter.Record
			json.Unmarshal(doc, &got)
		}
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			var got cimeter.Record
			Decode(doc, &got)
		}
	})
}
