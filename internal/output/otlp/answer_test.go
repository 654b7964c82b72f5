package otlp

import (
	"testing"
	"unicode"
)

// Whatever a receiver answers, it is read or refused, and what is shown of it is
// short and printable.
func FuzzParseAnswer(f *testing.F) {
	f.Add("application/x-protobuf", []byte{0x0a, 0x09, 0x08, 0x02, 0x12, 0x05, 'w', 'r', 'o', 'n', 'g'})
	f.Add("application/x-protobuf", []byte{0x0a, 0x7f, 0x08})
	f.Add("application/json; charset=utf-8", []byte(`{"partialSuccess":{"rejectedDataPoints":"7","errorMessage":"\u001b[31m"}}`))
	f.Add("text/html", []byte("<html>"))
	f.Fuzz(func(t *testing.T, kind string, b []byte) {
		p, err := parseAnswer(kind, b)
		if err != nil && p != (partial{}) {
			t.Errorf("an error and %+v", p)
		}
		if p.rejected < 0 || len(p.message) > 4*maxDetailWidth {
			t.Errorf("%+v", p)
		}
		for _, r := range p.message {
			if !unicode.IsPrint(r) {
				t.Errorf("message %q", p.message)
			}
		}
	})
}
