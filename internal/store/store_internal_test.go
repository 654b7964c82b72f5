package store

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
)

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

// A lower bound is one comparison: of two SQLite enters the index by the first, and
// goes through a million builds to find those above the second.
func TestNumber_oneBound(t *testing.T) {
	for text, want := range map[string]string{
		"cpu>600s": "b.cpu_us > ?", "cpu>=600s": "b.cpu_us >= ?", "io>0": "b.io_bytes > ?", "cpu<600s": "b.cpu_us >= 0 AND b.cpu_us < ?",
	} {
		f, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c, err := compile(t.Context(), &counting{}, f)
		if err != nil || len(c.conditions) != 1 || c.conditions[0].sql != want || c.conditions[0].paths[0].sql != want {
			t.Errorf("%s: %+v, %v; want %s", text, c, err, want)
		}
	}
}

// many is a store of which every way holds more builds than are sorted.
type many struct{ Queryer }

func (many) Dialect() Dialect { return Postgres }

func (many) Query(_ context.Context, _ string, _ []any, row func(scan func(dest ...any) error) error) error {
	return row(func(dest ...any) error {
		if n, ok := dest[0].(*int); ok {
			*n = 1 << 30
		}
		return nil
	})
}

// Where all that a filter asks for holds many builds, the list goes along the names that
// have the fewest, however the filter is written.
func TestChoose_narrowest(t *testing.T) {
	for text, want := range map[string]string{
		"job:scan ref:feature/a ci:drone": "builds_ref", "ci:drone ref:feature/a job:scan": "builds_ref", "project:a result:failed event:push": "builds_project",
		"result:failed project:a event:push": "builds_project", "job:x machine:m project:a": "builds_job", "result:failed verdict:oom": "builds_verdicts", "result:failed event:push": "builds_result",
	} {
		f, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c, err := compile(t.Context(), many{}, f)
		if err != nil {
			t.Fatal(err)
		}
		sc := scan{sort: SortEnded, columns: "b.id, b.at, b.shard", limit: 50, examine: MaxExamine}
		w, err := sc.choose(t.Context(), many{}, c)
		if err != nil || len(w.paths) != 1 || w.gather || w.paths[0].index != want {
			t.Errorf("%s goes along %+v, %v; want %s", text, w, err, want)
		}
	}
}
