package prometheus

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// writeTimeout is how long one answer may take: Prometheus gives up after 10 s
// unless told otherwise, and nobody scrapes less often than each minute or two.
const writeTimeout = time.Minute

// ServeHTTP answers GET and HEAD with all metrics in the format that the
// request's Accept headers prefer. Over four at once it answers 503: a scraper
// that asks again while its last question is being answered gains nothing.
func (e *Encoder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		problem(w, http.StatusMethodNotAllowed, "want GET or HEAD")
		return
	}
	select {
	case e.serving <- struct{}{}:
		defer func() { <-e.serving }()
	default:
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "too many scrapes at once: want at most "+strconv.Itoa(maxScrapes))
		return
	}
	format, contentType := Negotiate(r.Header.Get("Accept"))
	w.Header().Set("Content-Type", contentType)
	w.Header().Add("Vary", "Accept")
	if r.Method == http.MethodHead {
		return
	}
	// A reader that does not read must not hold one of the few places for ever.
	// Where the server has no deadlines (a test's recorder) there is nothing to hold.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	// An error is the connection's, and nobody is left to tell.
	_ = e.Encode(response{w}, format)
}

// problem answers an error as all of cimeter's API does (RFC 9457).
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	// An error is the connection's.
	_, _ = fmt.Fprintf(w, `{"type":"about:blank","title":%q,"status":%d,"detail":%q}`+"\n", http.StatusText(status), status, detail)
}

// response is told when all of the body comes in one piece.
type response struct{ http.ResponseWriter }

func (r response) whole(n int) { r.Header().Set("Content-Length", strconv.Itoa(n)) }
