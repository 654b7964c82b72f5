package wire_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/wire"
)

func record(n int) *cimeter.Record {
	at := time.Date(2026, 11, 30, 12, 0, n, 0, time.UTC)
	r := &cimeter.Record{Schema: cimeter.RecordSchema, StartedAt: at.Add(-time.Minute), EndedAt: at, Complete: true, Gaps: []cimeter.Gap{}}
	r.Key, r.CI, r.Project, r.Number = cimeter.BuildKey("gitlab", "gitlab.example.com", fmt.Sprint(n)), "gitlab", "group/app", fmt.Sprint(n)
	r.Usage.WallSeconds = 60
	r.Stages = []cimeter.Stage{{Name: "step_script", Attempt: 1, Boundary: cimeter.BoundaryContainer, StartedAt: r.StartedAt, EndedAt: at}}
	return r
}

func line(t testing.TB, r *cimeter.Record) []byte {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBatch_roundTrip(t *testing.T) {
	var lines [][]byte
	for n := range 50 {
		lines = append(lines, line(t, record(n)))
	}
	body, encoding, err := wire.EncodeBatch(lines)
	if err != nil {
		t.Fatal(err)
	}
	plain := bytes.Join(lines, []byte("\n"))
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(plain)
	z.Close()
	for name, c := range map[string]struct {
		body     []byte
		encoding string
	}{
		"as it is sent":                     {body, encoding},
		"gzip":                              {zipped.Bytes(), "gzip"},
		"plain, without the last newline":   {plain, ""},
		"plain, with empty lines and a CR":  {append(bytes.ReplaceAll(plain, []byte("\n"), []byte("\r\n\n")), "\n\n"...), "identity"},
		"zstd with the largest good window": {packed(t, plain, 8<<20), "zstd"},
	} {
		t.Run(name, func(t *testing.T) {
			items, err := wire.DecodeBatch(bytes.NewReader(c.body), c.encoding)
			if err != nil {
				t.Fatal(err)
			}
			if len(items) != 50 {
				t.Fatalf("%d items: want 50", len(items))
			}
			for n, it := range items {
				if it.Err != nil || it.Key != record(n).Key || !reflect.DeepEqual(it.Record, record(n)) {
					t.Errorf("item %d: %+v: want record %d", n, it, n)
				}
			}
		})
	}
}

func packed(t testing.TB, plain []byte, window int) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b, zstd.WithWindowSize(window))
	if err != nil {
		t.Fatal(err)
	}
	z.Write(plain)
	z.Close()
	return b.Bytes()
}

// A server takes what the next version of an agent sends: what it does not know
// makes no difference.
func TestDecodeBatch_versions(t *testing.T) {
	var decoded []*cimeter.Record
	for _, version := range []string{"v1", "v2"} {
		f, err := os.Open("testdata/" + version + ".ndjson")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		items, err := wire.DecodeBatch(f, "")
		if err != nil || len(items) != 1 || items[0].Err != nil {
			t.Fatalf("%s: %v, %+v", version, err, items)
		}
		items[0].Record.Schema = 0
		decoded = append(decoded, items[0].Record)
	}
	if !reflect.DeepEqual(decoded[0], decoded[1]) {
		t.Errorf("got %+v and %+v: want the same", decoded[0], decoded[1])
	}
	for header, ok := range map[string]bool{
		wire.ContentType(): true, "application/x-ndjson": true, "application/x-ndjson; version=2": true, "application/x-ndjson; version=3": false,
		"application/x-ndjson; version=0": false, "application/x-ndjson; version=x": false, "application/json": false, "": false,
	} {
		if err := wire.CheckContentType(header); (err == nil) != ok || err != nil && !errors.Is(err, cimeter.ErrUnsupported) {
			t.Errorf("%q: %v", header, err)
		}
	}
}

// One record that is none does not keep the others.
func TestDecodeBatch_poison(t *testing.T) {
	good := string(line(t, record(1)))
	change := func(f func(r *cimeter.Record)) string {
		r := record(2)
		f(r)
		return string(line(t, r))
	}
	for name, c := range map[string]struct{ poison, want, key string }{
		"no JSON":             {"{", "no record", ""},
		"no object":           {"[]", "no record", ""},
		"no key":              {"{}", "key", ""},
		"a key with a space":  {change(func(r *cimeter.Record) { r.Key = "a/b c" }), "key", ""},
		"a key with a query":  {change(func(r *cimeter.Record) { r.Key = "a/b?c" }), "key", ""},
		"no end":              {change(func(r *cimeter.Record) { r.EndedAt = time.Time{} }), "ended_at", record(2).Key},
		"an end in 2300":      {change(func(r *cimeter.Record) { r.EndedAt = r.EndedAt.AddDate(300, 0, 0) }), "ended_at", record(2).Key},
		"a schema of later":   {change(func(r *cimeter.Record) { r.Schema = 99 }), "schema", record(2).Key},
		"time that runs back": {change(func(r *cimeter.Record) { r.Usage.WallSeconds = -1 }), "wall_seconds", record(2).Key},
		"a stage of no name":  {change(func(r *cimeter.Record) { r.Stages[0].Name = "" }), "stages[0]", record(2).Key},
		"a huge name":         {change(func(r *cimeter.Record) { r.Project = strings.Repeat("x", 1025) }), "project", record(2).Key},
		"a huge URL":          {change(func(r *cimeter.Record) { r.URL = strings.Repeat("x", 4097) }), "url", record(2).Key},
		"1001 stages":         {change(func(r *cimeter.Record) { r.Stages = make([]cimeter.Stage, 1001) }), "stages", record(2).Key},
		"a trace of no step":  {change(func(r *cimeter.Record) { r.Trace = &cimeter.Trace{} }), "step_seconds", record(2).Key},
		"a lame trace": {change(func(r *cimeter.Record) {
			r.Trace = &cimeter.Trace{StepSeconds: 1, CPUMillicores: make([]cimeter.Opt[int64], 3), MemoryKiB: make([]cimeter.Opt[int64], 2)}
		}), "columns", record(2).Key},
		"a number of another kind": {strings.Replace(good, `"wall_seconds":60`, `"wall_seconds":"x"`, 1), "no record", record(1).Key},
		"a number too large":       {strings.Replace(good, `"wall_seconds":60`, `"wall_seconds":1e999`, 1), "no record", record(1).Key},
		"deep":                     {`{"x":` + strings.Repeat("[", 17) + strings.Repeat("]", 17) + `}`, "deeper", ""},
		"many elements":            {`{"x":[` + strings.Repeat("0,", 200_001) + `0]}`, "elements", ""},
		"a long line":              {`{"x":"` + strings.Repeat("x", wire.MaxLineBytes) + `"}`, "at most", ""},
	} {
		t.Run(name, func(t *testing.T) {
			items, err := wire.DecodeBatch(strings.NewReader(good+"\n"+c.poison+"\n"+good), "")
			if err != nil {
				t.Fatal(err)
			}
			if len(items) != 3 || items[0].Err != nil || items[2].Err != nil {
				t.Fatalf("%+v: want the first and the last to stand", items)
			}
			it := items[1]
			if it.Err == nil || it.Record != nil || !strings.Contains(it.Err.Error(), c.want) || !strings.Contains(it.Err.Error(), "line 2: ") {
				t.Errorf("%v: want an error of line 2 about %q", it.Err, c.want)
			}
			if it.Key != c.key {
				t.Errorf("key %q: want %q", it.Key, c.key)
			}
			if !errors.Is(it.Err, cimeter.ErrInvalid) && !errors.Is(it.Err, wire.ErrTooLarge) {
				t.Errorf("%v has no code", it.Err)
			}
		})
	}
}

// NUL, which PostgreSQL does not take, must not be a way to keep a build out.
func TestDecodeRecord_NUL(t *testing.T) {
	r := record(1)
	r.Project, r.Name = "a\x00b", `a\u0000`
	got, err := wire.DecodeRecord(line(t, r))
	if err != nil {
		t.Fatal(err)
	}
	if got.Project != "a\uFFFDb" || got.Name != `a\u0000` {
		t.Errorf("project %q, name %q: want U+FFFD for NUL, and a backslash left alone", got.Project, got.Name)
	}
}

// zeros is an endless body that compresses well.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestDecodeBatch_bombs(t *testing.T) {
	bomb := func(encoding string, plain io.Reader) []byte {
		var b bytes.Buffer
		if encoding == "gzip" {
			z := gzip.NewWriter(&b)
			io.Copy(z, plain)
			z.Close()
		} else {
			z, err := zstd.NewWriter(&b)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(z, plain)
			z.Close()
		}
		return b.Bytes()
	}
	const much = 64 << 20
	empty := bytes.Repeat([]byte("\n"), wire.MaxBatchBytes+1)
	for name, c := range map[string]struct {
		body     []byte
		encoding string
	}{
		"zstd of 64 MiB of zeros": {bomb("zstd", io.LimitReader(zeros{}, much)), "zstd"},
		"gzip of 64 MiB of zeros": {bomb("gzip", io.LimitReader(zeros{}, much)), "gzip"},
		"gzip of empty lines":     {bomb("gzip", bytes.NewReader(empty)), "gzip"},
		"gzip of 4 MiB of zeros":  {bomb("gzip", io.LimitReader(zeros{}, 4<<20)), "gzip"}, // within the size, not the ratio
		"zstd of empty lines":     {bomb("zstd", bytes.NewReader(empty)), "zstd"},
		"plain and too large":     {empty, ""},
		"gzip within the ratio":   {bomb("gzip", bytes.NewReader(wordy(wire.MaxBatchBytes+1))), "gzip"},
		"zstd within the ratio":   {bomb("zstd", bytes.NewReader(wordy(wire.MaxBatchBytes+1))), "zstd"},
		"a window of 16 MiB":      {windowed(14), "zstd"},
		"a window of 64 MiB":      {packed(t, bytes.Repeat([]byte("x"), 10<<20), 64<<20), "zstd"},
		"501 records":             {bytes.Repeat([]byte("{}\n"), 501), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			items, err := wire.DecodeBatch(bytes.NewReader(c.body), c.encoding)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, wire.ErrTooLarge) || items != nil {
				t.Errorf("%d items, %v: want too large", len(items), err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
				t.Errorf("%d MiB allocated to refuse %d bytes: want at most 32", n>>20, len(c.body))
			}
		})
	}
}

// windowed is an empty line in a zstd frame that wants a window of 1 KiB shifted left
// by n (RFC 8878, 3.1.1.1.2).
func windowed(n byte) []byte {
	return []byte{0x28, 0xb5, 0x2f, 0xfd, 0, n << 3, 1<<3 | 1<<1 | 1, 0, 0, '\n'}
}

// wordy is empty lines and some more of which ten to a hundred bytes become one.
func wordy(n int) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 0, n+64)
	for len(b) < n {
		b = append(append(b, strings.Repeat(" ", 16+random.IntN(64))...), '\n')
	}
	return b
}

func TestDecodeBatch_failure(t *testing.T) {
	if items, err := wire.DecodeBatch(bytes.NewReader(windowed(13)), "zstd"); err != nil || len(items) > 0 {
		t.Errorf("a window of 8 MiB: %v, %v: want it taken", items, err)
	}
	good := packed(t, line(t, record(1)), 1<<20)
	gone := errors.New("connection reset")
	for name, c := range map[string]struct {
		body     io.Reader
		encoding string
		want     error
	}{
		"an encoding that is not known": {bytes.NewReader(good), "br", cimeter.ErrUnsupported},
		"no zstd":                       {strings.NewReader("nonsense"), "zstd", cimeter.ErrInvalid},
		"no gzip":                       {strings.NewReader("nonsense"), "gzip", cimeter.ErrInvalid},
		"zstd cut short":                {bytes.NewReader(good[:len(good)-3]), "zstd", cimeter.ErrInvalid},
		"a body that breaks off":        {io.MultiReader(bytes.NewReader(good[:10]), failing{gone}), "zstd", gone},
		"a plain one too":               {io.MultiReader(strings.NewReader(`{"key"`), failing{gone}), "", gone},
	} {
		t.Run(name, func(t *testing.T) {
			if items, err := wire.DecodeBatch(c.body, c.encoding); !errors.Is(err, c.want) || items != nil {
				t.Errorf("%v, %v: want %v", items, err, c.want)
			}
		})
	}
	for name, l := range map[string]string{"a line break": "{\n}", "a long line": strings.Repeat("x", wire.MaxLineBytes+1)} {
		if b, _, err := wire.EncodeBatch([][]byte{[]byte(l)}); !errors.Is(err, cimeter.ErrInvalid) || b != nil {
			t.Errorf("%s: %v: want invalid", name, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestHeartbeat(t *testing.T) {
	h := wire.Heartbeat{Agent: "a1", Machine: "ci-7", Version: "1.0", IntervalSeconds: 5, Spool: &wire.Spool{Records: 3},
		Running: []wire.Running{{Key: "gitlab/x/1", Project: "group/app", CPUSeconds: cimeter.Some(0.0), StartedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}},
		Pulling: []wire.Pulling{{Key: "gitlab/x/2", Since: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)}}}
	b, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	for encoding, body := range map[string][]byte{"": b, "zstd": packed(t, b, 1<<20)} {
		if got, err := wire.DecodeHeartbeat(bytes.NewReader(body), encoding); err != nil || !reflect.DeepEqual(got, h) {
			t.Errorf("%q: got %+v, %v: want %+v", encoding, got, err, h)
		}
	}
	for name, c := range map[string]struct {
		doc  string
		want error
	}{
		"no JSON":         {"x", cimeter.ErrInvalid},
		"no agent":        {`{"machine":"m","interval_seconds":5}`, cimeter.ErrInvalid},
		"no machine":      {`{"agent":"a","interval_seconds":5}`, cimeter.ErrInvalid},
		"no interval":     {`{"agent":"a","machine":"m"}`, cimeter.ErrInvalid},
		"a day":           {`{"agent":"a","machine":"m","interval_seconds":86400}`, cimeter.ErrInvalid},
		"a bad build key": {`{"agent":"a","machine":"m","interval_seconds":5,"running":[{"key":"x"}]}`, cimeter.ErrInvalid},
		"a bad pull":      {`{"agent":"a","machine":"m","interval_seconds":5,"pulling":[{"key":"gitlab/x/1"}]}`, cimeter.ErrInvalid},
		"many pulls":      {`{"agent":"a","machine":"m","interval_seconds":5,"pulling":[` + strings.Repeat(`{},`, 2000) + `{}]}`, wire.ErrTooLarge},
		"deep":            {strings.Repeat("[", 20), cimeter.ErrInvalid},
		"huge":            {`{"agent":"` + strings.Repeat("x", wire.MaxHeartbeatBytes) + `"}`, wire.ErrTooLarge},
		"many builds":     {`{"agent":"a","machine":"m","interval_seconds":5,"running":[` + strings.Repeat(`{},`, 2000) + `{}]}`, wire.ErrTooLarge},
	} {
		if got, err := wire.DecodeHeartbeat(strings.NewReader(c.doc), ""); !errors.Is(err, c.want) || !reflect.DeepEqual(got, wire.Heartbeat{}) {
			t.Errorf("%s: %+v, %v: want %v", name, got, err, c.want)
		}
	}
}

func FuzzDecodeBatch(f *testing.F) {
	good := line(f, record(1))
	f.Add(good, uint8(0))
	f.Add(packed(f, good, 1<<20), uint8(1))
	f.Add([]byte("\x1f\x8b"), uint8(2))
	f.Add([]byte(`{"key":"a/b","ended_at":"2026-11-30T12:00:00Z","trace":{"step_seconds":1,"memory_kib":[null,1]}}`), uint8(0))
	f.Add([]byte("\n\n{}\n[[[[[[[[[[[[[[[[[[[[\"\\u0000"), uint8(0))
	f.Fuzz(func(t *testing.T, body []byte, kind uint8) {
		items, err := wire.DecodeBatch(bytes.NewReader(body), []string{"", "zstd", "gzip"}[kind%3])
		if err != nil {
			if items != nil {
				t.Error("items beside an error")
			}
			return
		}
		for _, it := range items {
			if (it.Record == nil) == (it.Err == nil) {
				t.Fatalf("%+v: want a record or an error", it)
			}
			if it.Record == nil {
				continue
			}
			// What was taken can be sent on, and is the same then.
			again, err := wire.DecodeRecord(line(t, it.Record))
			if err != nil || !reflect.DeepEqual(line(t, again), line(t, it.Record)) {
				t.Fatalf("%+v is not taken again: %v", it.Record, err)
			}
		}
	})
}

func FuzzDecodeHeartbeat(f *testing.F) {
	f.Add([]byte(`{"agent":"a","machine":"m","interval_seconds":5,"running":[{"key":"a/b","cpu_seconds":1,"memory_bytes":2}]}`))
	f.Add([]byte(`{"agent":"a","machine":"m","interval_seconds":5,"host":{"cpu_cores":2,"memory_bytes":{"total":5,"available":4},"coverage":0.5}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		h, err := wire.DecodeHeartbeat(bytes.NewReader(body), "")
		if err == nil && (h.Agent == "" || h.Machine == "" || len(h.Running) > wire.MaxRunning) {
			t.Errorf("%+v was taken", h)
		}
	})
}
