package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// writeBytes answers with a document and its entity tag, a hash of what is
// sent, or with 304 Not Modified when the request's If-None-Match has it. A
// client that polls keeps the last answer itself: Cache-Control stays no-store.
func writeBytes(w http.ResponseWriter, r *http.Request, contentType string, b []byte) error {
	sum := sha256.Sum256(b)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	h := w.Header()
	h.Set("ETag", tag)
	if matches(r.Header.Values("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", contentType)
	w.Write(b) // a client that went away is not an error of ours
	return nil
}

// matches compares as RFC 9110, 13.1.2 says: weakly.
func matches(headers []string, tag string) bool {
	for part := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		part = strings.TrimSpace(part)
		if part == "*" || strings.TrimPrefix(part, "W/") == tag {
			return true
		}
	}
	return false
}
