package otlp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
)

// A receiver that hangs, or answers what no receiver of OTLP does, fails a send
// within its deadline and is worth another try: nothing counts as sent, and the
// next send says it all.
func TestOutput_Send_badReceivers(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"hanging": func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		},
		"slow": func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			select {
			case <-r.Context().Done():
			case <-time.After(time.Minute):
			}
		},
		"a web page": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<html>sign in</html>")
		},
		"no message": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			w.Write([]byte{0xff, 0xff, 0xff, 0xff})
		},
		"half a message": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			w.Write([]byte{0x0a, 0x7f, 0x08})
		},
		"half of JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"partialSuccess":{`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(answer)
			defer s.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			o := output(t, s.URL)
			sent, err := o.Send(ctx, at, many(4500))
			if !errors.Is(err, cimeter.ErrUnavailable) || sent.Points > 0 || len(sent.Dropped) > 0 {
				t.Errorf("%+v, %v", sent, err)
			}
			if err := traces(t, s.URL).SendRecord(ctx, record()); !errors.Is(err, cimeter.ErrUnavailable) {
				t.Errorf("record: %v", err)
			}
		})
	}
}
