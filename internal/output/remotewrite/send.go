package remotewrite

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/klauspost/compress/snappy"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/refusal"
)

// sender makes requests and knows which version of the protocol the receiver
// takes.
type sender struct {
	to      Poster
	two     bool // send 2.0
	fixed   bool // never fall back
	settled bool // a receiver has shown that it takes 2.0
	enc     encoder
	packed  []byte
}

// answer is what became of a request.
type answer struct {
	done              bool // the samples are not to be sent again
	stop              bool // nor others now
	written           int
	refused, rejected int
}

const writtenHeader = "X-Prometheus-Remote-Write-Samples-Written"

// send makes one request, and a second one when the first shows that the
// receiver takes 1.0 only.
func (s *sender) send(ctx context.Context, batches []batch) (answer, error) {
	n := size(batches)
	header, err := s.post(ctx, batches)
	if s.two && !s.fixed && s.onlyOne(header, err) {
		s.two = false
		header, err = s.post(ctx, batches)
	}
	written, told := samplesWritten(header)
	var r *refusal.Error
	switch {
	case err == nil && !s.two:
		s.enc.told()
		return answer{done: true, written: n}, nil
	case err == nil && !told: // and may not fall back
		return answer{done: true, refused: n}, errNotWritten
	case err == nil:
		s.settled = true
		s.enc.told()
		written = min(written, n)
		return answer{done: true, written: written, rejected: n - written}, nil
	case !errors.As(err, &r) || errors.Is(err, cimeter.ErrUnavailable):
		return answer{}, err // away: 5xx, 429, a redirect, or no answer
	}
	// By the specification no other try is made, whatever is wrong; a credential
	// that does not hold would cost all that waits, so that the rest waits on.
	written = min(written, n)
	return answer{done: true, stop: errors.Is(err, cimeter.ErrUnauthorized), written: written, refused: n - written}, err
}

var errNotWritten = errors.New("receiver took the request and did not say what it wrote: want one of remote write 2.0, or protocol 1.0")

// onlyOne reports whether an answer to a request of 2.0 comes from a receiver
// of 1.0: a 415, a success that does not say what was written, or, from one that
// never took 2.0, another refusal of what it was sent.
func (s *sender) onlyOne(header http.Header, err error) bool {
	_, told := samplesWritten(header)
	if err == nil {
		return !told
	}
	var r *refusal.Error
	if !errors.As(err, &r) {
		return false
	}
	switch {
	case r.Status == http.StatusUnsupportedMediaType:
		return true
	case s.settled, told, errors.Is(err, cimeter.ErrUnavailable), errors.Is(err, cimeter.ErrUnauthorized), r.Status == http.StatusNotFound:
		return false
	}
	return true
}

func samplesWritten(h http.Header) (int, bool) {
	n, err := strconv.ParseUint(h.Get(writtenHeader), 10, 31)
	return int(n), err == nil
}

func (s *sender) post(ctx context.Context, batches []batch) (http.Header, error) {
	body := s.enc.encode(batches, s.two)
	s.packed = snappy.Encode(s.packed[:cap(s.packed)], body)
	header := http.Header{
		"Content-Encoding":                  {"snappy"},
		"Content-Type":                      {"application/x-protobuf"},
		"X-Prometheus-Remote-Write-Version": {"0.1.0"},
	}
	if s.two {
		header.Set("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request")
		header.Set("X-Prometheus-Remote-Write-Version", "2.0.0")
	}
	answer, _, err := s.to.Post(ctx, "", header, s.packed)
	return answer, err
}
