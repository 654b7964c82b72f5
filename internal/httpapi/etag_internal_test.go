package httpapi

import (
	"net/http/httptest"
	"testing"
)

// Documents have the same tag when they are the same to the last byte, and not
// otherwise.
func TestWriteBytes_tag(t *testing.T) {
	tag := func(body string) string {
		w := httptest.NewRecorder()
		if err := writeBytes(w, httptest.NewRequest("GET", "/", nil), "text/plain", []byte(body)); err != nil || w.Body.String() != body {
			t.Fatalf("%q: %q, %v", body, w.Body, err)
		}
		return w.Header().Get("ETag")
	}
	seen := map[string]string{}
	for _, body := range []string{"", "builds: 1", "builds: 2", "Builds: 1", "builds: 1 "} {
		first := tag(body)
		if other, there := seen[first]; there {
			t.Errorf("%q and %q have one tag", other, body)
		}
		if again := tag(body); again != first {
			t.Errorf("%q: %s, then %s: want one tag", body, first, again)
		}
		seen[first] = body
	}
}
