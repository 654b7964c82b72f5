package cri

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cimeter/cimeter"
)

// maxMessage bounds one message, in bytes: what the kubelet takes of a runtime
// (k8s.io/cri-client, maxMsgSize).
const maxMessage = 16 << 20

// codes of gRPC (google.golang.org/grpc/codes) that a caller may act on.
var codes = map[int]error{
	1: context.Canceled, 5: cimeter.ErrNotFound, 7: cimeter.ErrUnauthorized, 12: cimeter.ErrUnsupported, 16: cimeter.ErrUnauthorized,
}

// call makes one call of the runtime service and returns its answer.
func (c *Client) call(ctx context.Context, method string, request []byte) ([]byte, error) {
	r, err := c.open(ctx, method, request)
	if err != nil {
		return nil, c.wrap(method, err)
	}
	defer r.Body.Close()
	b, err := message(r.Body, nil)
	if err == nil || errors.Is(err, io.EOF) {
		_, drained := io.Copy(io.Discard, io.LimitReader(r.Body, maxMessage)) // the trailers come after the body
		if failed := status(r); failed != nil {
			err = failed
		} else if err == nil {
			err = drained
		}
	}
	if err != nil {
		return nil, c.wrap(method, err)
	}
	return b, nil
}

// open sends a call, with the deadline that ctx has. The answer's body holds the
// messages.
func (c *Client) open(ctx context.Context, method string, request []byte) (*http.Response, error) {
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request))), request...)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/runtime.v1.RuntimeService/"+method, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("TE", "trailers")
	r.Header.Set("User-Agent", "cimeter")
	if deadline, ok := ctx.Deadline(); ok {
		left := min(max(time.Until(deadline).Milliseconds(), 1), 99_999_999) // eight digits at most
		r.Header.Set("Grpc-Timeout", strconv.FormatInt(left, 10)+"m")
	}
	answer, err := c.http.Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // its address is none that a person knows
		}
		return nil, err
	}
	switch {
	case answer.StatusCode != http.StatusOK:
		err = fmt.Errorf("answered %s: %w", answer.Status, cimeter.ErrUnavailable)
	case answer.Header.Get("Grpc-Status") != "": // no message, trailers alone
		err = status(answer)
	}
	if err != nil {
		answer.Body.Close()
		return nil, err
	}
	return answer, nil
}

// message reads one message, each of which stands behind a byte that is 0 and four
// of its length, into buf where that is large enough. io.EOF: there is none left.
func message(r io.Reader, buf []byte) ([]byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if head[0] != 0 || n > maxMessage {
		return nil, fmt.Errorf("message of %d bytes, compressed %d: %w: want at most %d bytes, not compressed", n, head[0], cimeter.ErrInvalid, maxMessage)
	}
	if uint32(cap(buf)) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, fmt.Errorf("message of %d bytes: %w", n, io.ErrUnexpectedEOF)
	}
	return buf, nil
}

// status returns what an answer that was read to its end says of the call.
func status(r *http.Response) error {
	t := r.Trailer
	if t.Get("Grpc-Status") == "" {
		t = r.Header
	}
	code, err := strconv.Atoi(t.Get("Grpc-Status"))
	if err != nil {
		return fmt.Errorf("no status: %w", cimeter.ErrUnavailable)
	}
	if code == 0 {
		return nil
	}
	text := t.Get("Grpc-Message")
	if plain, err := url.PathUnescape(text); err == nil {
		text = plain
	}
	text = text[:min(len(text), 300)]
	wraps := codes[code]
	if wraps == nil {
		wraps = cimeter.ErrUnavailable
	}
	return fmt.Errorf("%q: %w", text, wraps)
}

// wrap names the runtime and what was asked.
func (c *Client) wrap(what string, err error) error {
	for _, known := range []error{cimeter.ErrNotFound, cimeter.ErrUnauthorized, cimeter.ErrUnsupported, cimeter.ErrInvalid, context.Canceled, cimeter.ErrUnavailable} {
		if errors.Is(err, known) {
			return fmt.Errorf("cri at %s: %s: %w", c.socket, what, err)
		}
	}
	code := cimeter.ErrUnavailable
	if errors.Is(err, fs.ErrPermission) {
		code = cimeter.ErrUnauthorized
	}
	return fmt.Errorf("cri at %s: %s: %w: %w", c.socket, what, err, code)
}
