package records

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
)

func sample() *cimeter.Record {
	at := time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC)
	return &cimeter.Record{Schema: 1, Build: cimeter.Build{Key: "gitlab/gitlab.example.com/4242", CI: "gitlab"}, StartedAt: at.Add(-time.Minute), EndedAt: at,
		Coverage: cimeter.Some(0.998), Stages: []cimeter.Stage{{Name: "step_script"}}}
}

func encoded(t testing.TB) []byte {
	t.Helper()
	_, file, err := encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestDecode(t *testing.T) {
	r, err := decode(encoded(t))
	if err != nil || !reflect.DeepEqual(r, sample()) {
		t.Errorf("got %+v, %v: want %+v", r, err, sample())
	}
}

// Every flipped bit and every shorter or longer file is found out.
func TestDecode_Damaged(t *testing.T) {
	file := encoded(t)
	for at := range file {
		for bit := range 8 {
			file[at] ^= 1 << bit
			if r, err := decode(file); err == nil || r != nil {
				t.Fatalf("bit %d of byte %d: got %v, %v: want an error only", bit, at, r, err)
			}
			file[at] ^= 1 << bit
		}
		if _, err := decode(file[:at]); err == nil {
			t.Fatalf("cut at byte %d: no error", at)
		}
		zeroed := append(append([]byte(nil), file[:at]...), make([]byte, len(file)-at)...)
		if _, err := decode(zeroed); err == nil {
			t.Fatalf("zeros from byte %d: no error", at)
		}
	}
	if _, err := decode(append(file, '\n')); err == nil {
		t.Error("one byte more: no error")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encoded(f))
	f.Add([]byte("{}" + crcPrefix + crc([]byte("{}")) + "\n"))
	f.Add([]byte("[]" + crcPrefix + crc([]byte("[]")) + "\n"))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, file []byte) {
		for _, file := range [][]byte{file, fmt.Appendf(nil, "%s%s%s\n", file, crcPrefix, crc(file))} {
			if r, err := decode(file); (err == nil) == (r == nil) {
				t.Errorf("got %v, %v: want one of them", r, err)
			} else if err == nil {
				if _, err := json.Marshal(r); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func FuzzParseName(f *testing.F) {
	e, _, err := encode(sample())
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{e.name(), "", "x.record", "-1-2-3.record", e.cursor() + "-+5.record", e.cursor() + "-05.record", e.name() + ".corrupt"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if e, ok := parseName(s); ok && e.name() != s {
			t.Errorf("%q: parsed and written %q", s, e.name())
		} else if !ok && e != (entry{}) {
			t.Errorf("%q: refused with %+v", s, e)
		}
	})
}

func FuzzParseCheckpoint(f *testing.F) {
	body := checkpointBody("key", []byte("state"))
	f.Add(fmt.Appendf(nil, "%s%s\n%s", checkpointMagic, crc(body), body))
	f.Add([]byte(nil))
	f.Add([]byte("crc32c 00000000\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		parseCheckpoint(file)
		key, state, ok := parseCheckpoint(fmt.Appendf(nil, "%s%s\n%s", checkpointMagic, crc(checkpointBody("k", file)), checkpointBody("k", file)))
		if !ok || key != "k" || string(state) != string(file) {
			t.Errorf("%q: got %q, %q, %t", file, key, state, ok)
		}
	})
}

// BenchmarkOpen is what a start costs beside a full directory.
func BenchmarkOpen(b *testing.B) {
	d, err := Open(Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	for n := range DefaultMaxRecords {
		r := sample()
		r.Key, r.EndedAt = fmt.Sprint(n), r.EndedAt.Add(time.Duration(n)*time.Second)
		e, file, err := encode(r)
		if err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(d.path(e), file, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		d.entries, d.bytes = nil, 0
		if err := d.load(); err != nil {
			b.Fatal(err)
		}
		if len(d.entries) != DefaultMaxRecords {
			b.Fatalf("%d records: want %d", len(d.entries), DefaultMaxRecords)
		}
	}
}
