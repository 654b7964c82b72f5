package store

import (
	"encoding/json"
	"errors"
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

// TestAppend holds the stored form to json.Marshal's, for every field that a
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

func TestDecode_damaged(t *testing.T) {
	r := &cimeter.Record{Build: cimeter.Build{Key: "run/1", Project: "p"}, EndedAt: time.Unix(1, 0).UTC(), Gaps: []cimeter.Gap{}, Stages: []cimeter.Stage{}}
	stored, _, err := encode(r)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode("run/1", stored, nil); err != nil || !reflect.DeepEqual(got, r) {
		t.Fatalf("Decode = %+v, %v", got, err)
	}
	for i := range stored {
		for bit := range 8 {
			bad := append([]byte(nil), stored...)
			bad[i] ^= 1 << bit
			if got, err := Decode("run/1", bad, nil); err == nil && !reflect.DeepEqual(got, r) {
				t.Fatalf("bit %d of byte %d flipped: told %+v", bit, i, got)
			}
		}
	}
	for n := range stored {
		if _, err := Decode("run/1", stored[:n], nil); err == nil {
			t.Fatalf("%d of %d bytes are a record", n, len(stored))
		}
	}
}

func FuzzDecode(f *testing.F) {
	r := &cimeter.Record{Build: cimeter.Build{Key: "run/1"}, EndedAt: time.Unix(1, 0), Trace: &cimeter.Trace{StepSeconds: 1}}
	record, trace, err := encode(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(record, trace)
	f.Add([]byte(nil), []byte("x"))
	f.Fuzz(func(t *testing.T, record, trace []byte) {
		if r, err := Decode("k", record, trace); (r == nil) != (err != nil) {
			t.Fatalf("Decode = %v, %v", r, err)
		}
	})
}

func FuzzCursor(f *testing.F) {
	f.Add("x")
	f.Add(encodeCursor(SortCPU, false, position{-1, 1 << 60}))
	f.Fuzz(func(t *testing.T, s string) {
		p, err := decodeCursor(SortCPU, false, s)
		if err != nil {
			if !errors.Is(err, cimeter.ErrInvalid) || p != (position{}) {
				t.Fatalf("%q: %+v, %v", s, p, err)
			}
			return
		}
		if encodeCursor(SortCPU, false, p) != s {
			t.Fatalf("%q reads as %+v, which is another cursor", s, p)
		}
	})
}

func TestSpread(t *testing.T) {
	s := SpreadOf([]float64{1, 2, 3, 4, 100})
	if s != (Spread{Median: 3, MAD: 1, N: 5}) {
		t.Errorf("got %+v", s)
	}
	for v, want := range map[float64]bool{3: false, 6: false, 6.1: true, -0.1: true, 0.1: false} {
		if s.Beyond(v) != want {
			t.Errorf("Beyond(%g) = %t", v, !want)
		}
	}
	if (Spread{Median: 100, N: 3}).Beyond(105) {
		t.Error("a twentieth more is beyond the usual")
	}
	if SpreadOf(nil).Beyond(1) {
		t.Error("something is beyond nothing")
	}
}

func TestUsualOf(t *testing.T) {
	record := func(wall float64, cpu cimeter.Opt[float64]) *cimeter.Record {
		u := cimeter.Usage{WallSeconds: wall, CPUSeconds: cimeter.CPUSeconds{Total: cpu}}
		return &cimeter.Record{Usage: u, Stages: []cimeter.Stage{{Name: "a", Usage: u}}}
	}
	u := UsualOf([]*cimeter.Record{record(1, cimeter.Some(5.0)), record(3, cimeter.Opt[float64]{}), record(5, cimeter.Some(7.0))})
	if u.Builds != 3 || u.WallSeconds != (Spread{3, 2, 3}) || u.CPUSeconds != (Spread{6, 1, 2}) || u.NetworkBytes.N != 0 || u.QueueSeconds.N != 0 {
		t.Errorf("got %+v", u)
	}
	if len(u.Stages) != 1 || u.Stages[0].Name != "a" || u.Stages[0].CPUSeconds != (Spread{6, 1, 2}) {
		t.Errorf("stages %+v", u.Stages)
	}
}
