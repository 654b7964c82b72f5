package remotewrite_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/snappy"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cimeter/cimeter/internal/output/post"
	"github.com/cimeter/cimeter/internal/output/remotewrite"
	"github.com/cimeter/cimeter/internal/series"
)

// sample is one that arrived: of a series as name{label="value",...}.
type sample struct {
	series string
	at     int64 // ms
	value  string
	start  int64
}

// receiver keeps what it is sent. It takes the versions that it says.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	samples  []sample
	meta     map[string]string
	versions []string // of the requests, in order
	answer   func(w http.ResponseWriter, version string, samples int) bool
}

func newReceiver(t *testing.T, answer func(w http.ResponseWriter, version string, samples int) (taken bool)) *receiver {
	t.Helper()
	r := &receiver{meta: map[string]string{}, answer: answer}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		packed, _ := io.ReadAll(req.Body)
		body, err := snappy.Decode(nil, packed)
		if err != nil || req.Header.Get("Content-Encoding") != "snappy" || req.Method != http.MethodPost {
			t.Errorf("%s of %s: %v", req.Method, req.Header.Get("Content-Encoding"), err)
			return
		}
		version := "1.0"
		switch head := req.Header.Get("Content-Type") + " " + req.Header.Get("X-Prometheus-Remote-Write-Version"); head {
		case "application/x-protobuf 0.1.0":
		case "application/x-protobuf;proto=io.prometheus.write.v2.Request 2.0.0":
			version = "2.0"
		default:
			t.Errorf("headers %s", head)
		}
		r.versions = append(r.versions, version)
		samples, meta := decode(t, body, version == "2.0")
		if r.answer(w, version, len(samples)) {
			r.samples = append(r.samples, samples...)
			for k, v := range meta {
				r.meta[k] = v
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// takesOne is a receiver of 1.0 that does not look at what kind of message it
// gets, as those of before 2.0 did.
func takesOne(w http.ResponseWriter, version string, _ int) bool {
	w.WriteHeader(http.StatusNoContent)
	return version == "1.0"
}

func takesBoth(w http.ResponseWriter, version string, samples int) bool {
	if version == "2.0" {
		w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", strconv.Itoa(samples))
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}

func answers(status int) func(http.ResponseWriter, string, int) bool {
	return func(w http.ResponseWriter, _ string, _ int) bool {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		return false
	}
}

func output(t *testing.T, url string, o remotewrite.Options) *remotewrite.Output {
	t.Helper()
	to, err := post.New(post.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(to.Close)
	o.To = to
	if o.Labels == nil {
		o.Labels = []series.Label{{Name: "job", Value: "cimeter"}, {Name: "instance", Value: "ci-7"}}
	}
	return remotewrite.New(o)
}

// of returns what arrived of a series, as value@ms with the start where there is one.
func (r *receiver) of(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, s := range r.samples {
		if s.series == name {
			text := fmt.Sprint(s.value, "@", s.at)
			if s.start != 0 {
				text += fmt.Sprint("/", s.start)
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, " ")
}

type field struct {
	num   protowire.Number
	n     uint64
	bytes []byte
}

func fields(t *testing.T, b []byte) (out []field) {
	t.Helper()
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		b = b[n:]
		f := field{num: num}
		switch kind {
		case protowire.VarintType:
			f.n, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			f.n, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			t.Fatalf("field %d of kind %d", num, kind)
		}
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		b = b[n:]
		out = append(out, f)
	}
	return out
}

func decode(t *testing.T, body []byte, two bool) (samples []sample, meta map[string]string) {
	t.Helper()
	var symbols []string
	meta = map[string]string{}
	all := fields(t, body)
	for _, f := range all {
		if two && f.num == 4 {
			symbols = append(symbols, string(f.bytes))
		}
	}
	if two && (len(symbols) == 0 || symbols[0] != "") {
		t.Errorf("symbols %q: want an empty one first", symbols)
	}
	seen := map[string]bool{}
	for _, f := range all {
		switch {
		case two && f.num == 5, !two && f.num == 1:
			name, list := decodeSeries(t, f.bytes, symbols, meta)
			if seen[name] {
				t.Errorf("%s stands twice in one request", name)
			}
			seen[name] = true
			samples = append(samples, list...)
		case !two && f.num == 3:
			m := map[protowire.Number]field{}
			for _, g := range fields(t, f.bytes) {
				m[g.num] = g
			}
			meta[string(m[2].bytes)] = fmt.Sprint(m[1].n, " ", string(m[4].bytes), " ", string(m[5].bytes))
		case two && f.num == 4:
		default:
			t.Errorf("field %d", f.num)
		}
	}
	return samples, meta
}

func decodeSeries(t *testing.T, b []byte, symbols []string, meta map[string]string) (string, []sample) {
	t.Helper()
	var (
		names, texts []string
		samples      []sample
		about        string
	)
	for _, f := range fields(t, b) {
		switch {
		case f.num == 1 && symbols == nil:
			l := fields(t, f.bytes)
			names, texts = append(names, string(l[0].bytes)), append(texts, string(l[1].bytes))
		case f.num == 1:
			for refs := f.bytes; len(refs) > 0; {
				name, n := protowire.ConsumeVarint(refs)
				text, m := protowire.ConsumeVarint(refs[n:])
				refs = refs[n+m:]
				names, texts = append(names, symbols[name]), append(texts, symbols[text])
			}
		case f.num == 2:
			var s sample
			for _, g := range fields(t, f.bytes) {
				switch g.num {
				case 1:
					s.value = fmt.Sprint(math.Float64frombits(g.n))
					if g.n == 0x7ff0000000000002 {
						s.value = "stale"
					}
				case 2:
					s.at = int64(g.n)
				case 3:
					s.start = int64(g.n)
				}
			}
			samples = append(samples, s)
		case f.num == 5 && symbols != nil:
			var help, unit string
			var kind uint64
			for _, g := range fields(t, f.bytes) {
				switch g.num {
				case 1:
					kind = g.n
				case 3:
					help = symbols[g.n]
				case 4:
					unit = symbols[g.n]
				}
			}
			about = fmt.Sprint(kind, " ", help, " ", unit)
		}
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("labels %q are not sorted, or double", names)
	}
	metric, labels := "", []string{}
	for i, n := range names {
		if texts[i] == "" {
			t.Errorf("label %s is empty", n)
		}
		if n == "__name__" {
			metric = texts[i]
			continue
		}
		labels = append(labels, fmt.Sprintf("%s=%q", n, texts[i]))
	}
	name := metric + "{" + strings.Join(labels, ",") + "}"
	if about != "" {
		meta[metric] = about
	}
	for i := range samples {
		samples[i].series = name
		if i > 0 && samples[i].at <= samples[i-1].at {
			t.Errorf("%s: sample at %d after that at %d", name, samples[i].at, samples[i-1].at)
		}
	}
	return name, samples
}
