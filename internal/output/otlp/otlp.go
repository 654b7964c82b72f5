package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/refusal"
	"github.com/cimeter/cimeter/internal/series"
)

const (
	// maxPoints is how many a request has: less than a megabyte before gzip. The
	// specification suggests 64 MiB as a receiver's limit; gateways have less.
	maxPoints = 2000

	maxDetailWidth = 300
)

// Poster sends one body to the receiver's base address with path behind it; see
// post.Target.
type Poster interface {
	Post(ctx context.Context, path string, header http.Header, body []byte) (http.Header, []byte, error)
}

// Options say where to send, and as what.
type Options struct {
	To       Poster
	Resource []series.Label // attributes of what sends: service.name ...
	Version  string         // of cimeter, as the version of the instrumentation scope
	// Traced says that builds are sent as traces to the same receiver: the exemplars
	// of histograms are sent then, with the ids of their builds' traces.
	Traced bool
}

// Output sends metrics. Make it with New.
type Output struct {
	sender
	names  namer
	traced bool
}

// New returns an output that has sent nothing yet.
func New(o Options) *Output {
	return &Output{sender: newSender(o), names: newNamer(), traced: o.Traced}
}

// Check says whether the receiver takes metrics, by a request that has none.
func (o *Output) Check(ctx context.Context) (string, error) {
	if _, err := o.post(ctx, "v1/metrics", nil); err != nil {
		return "", fmt.Errorf("send no metrics: %w", err)
	}
	return "takes metrics", nil
}

// Traces sends finished builds. Make it with NewTraces; it and an Output to the
// same receiver may send at once.
type Traces struct{ sender }

// NewTraces returns an output of traces that has sent nothing yet.
func NewTraces(o Options) *Traces { return &Traces{newSender(o)} }

// Check says whether the receiver takes traces, by a request that has none.
func (o *Traces) Check(ctx context.Context) (string, error) {
	if _, err := o.post(ctx, "v1/traces", nil); err != nil {
		return "", fmt.Errorf("send no traces: %w", err)
	}
	return "takes traces", nil
}

// sender makes requests of one kind.
type sender struct {
	to     Poster
	head   []byte // the resource's field
	scope  []byte // the scope's
	buf    []byte
	packed bytes.Buffer
	zip    *gzip.Writer
}

func newSender(o Options) sender {
	return sender{to: o.To, head: appendResource(nil, o.Resource), scope: appendScope(nil, o.Version)}
}

// Send sends all points, in as many requests as it takes. What the receiver
// refuses for good is dropped as "refused", what it takes a request without as
// "rejected"; an error that it is away wraps [cimeter.ErrUnavailable] and may
// have RetryAfter.
func (o *Output) Send(ctx context.Context, at time.Time, families []series.Family) (series.Sent, error) {
	var (
		sent           series.Sent
		refused        error
		rejected, lost int
	)
	defer o.release()
	e := o.encoder(at)
	flush := func() error {
		points := e.points
		if points == 0 {
			return nil
		}
		r, err := o.post(ctx, "v1/metrics", e.finish())
		switch {
		case err == nil:
			r.rejected = min(r.rejected, points)
			sent.Points += points - r.rejected
			rejected += r.rejected
			if r.rejected > 0 {
				refused = fmt.Errorf("%d of %d points rejected: %s: %w", r.rejected, points, r.message, cimeter.ErrInvalid)
			}
		case !errors.Is(err, cimeter.ErrUnavailable):
			lost += points
			refused = err
		default:
			return err
		}
		return nil
	}
	err := e.families(o.names.groups(families), flush)
	if err == nil {
		err = flush()
	}
	if err == nil {
		err = refused
	}
	for _, d := range []series.Drop{{Reason: "rejected", Points: rejected}, {Reason: "refused", Points: lost}} {
		if d.Points > 0 {
			sent.Dropped = append(sent.Dropped, d)
		}
	}
	if err != nil {
		return sent, fmt.Errorf("send metrics: %w", err)
	}
	return sent, nil
}

// SendRecord sends a finished build as a trace. An error that wraps
// [cimeter.ErrUnavailable] is worth another try; the receiver will never take
// the record after any other.
func (o *Traces) SendRecord(ctx context.Context, r *cimeter.Record) error {
	defer o.release()
	answer, err := o.post(ctx, "v1/traces", o.appendTrace(o.buf[:0], r))
	if err == nil && answer.rejected > 0 {
		err = fmt.Errorf("%d spans rejected: %s: %w", answer.rejected, answer.message, cimeter.ErrInvalid)
	}
	if err != nil {
		return fmt.Errorf("send trace of build %s: %w", display.Clean(r.Key), err)
	}
	return nil
}

// release lets go of a buffer that one large send made.
func (o *sender) release() {
	const keep = 1 << 20
	if cap(o.buf) > keep {
		o.buf = nil
	}
	if o.packed.Cap() > keep {
		o.packed = bytes.Buffer{}
	}
}

// partial is what a receiver that took a request says of what it did not take.
type partial struct {
	rejected int
	message  string
}

// post makes one try. An error that wraps ErrUnavailable means that the same
// data may be sent again; others that it must not be.
func (o *sender) post(ctx context.Context, path string, body []byte) (partial, error) {
	o.buf = body
	o.packed.Reset()
	if o.zip == nil {
		// The fastest level: attributes repeat themselves so much that it packs to a tenth.
		o.zip, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed)
	}
	o.zip.Reset(&o.packed)
	o.zip.Write(body) // to memory: no error
	o.zip.Close()
	header, answer, err := o.to.Post(ctx, path, http.Header{
		"Content-Type": {"application/x-protobuf"}, "Content-Encoding": {"gzip"},
	}, o.packed.Bytes())
	if err != nil {
		return partial{}, lasting(err)
	}
	p, err := parseAnswer(header.Get("Content-Type"), answer)
	if err != nil {
		return partial{}, fmt.Errorf("read answer: %w: %w", err, cimeter.ErrUnavailable)
	}
	return p, nil
}

// lasting says which refusals are worth another try: 429, 502, 503 and 504 by
// the specification, and no others, whatever the status means elsewhere. A
// redirect is a mistake in the address that can be mended while we wait.
func lasting(err error) error {
	var r *refusal.Error
	if !errors.As(err, &r) {
		return err
	}
	switch {
	case r.Status == 429, r.Status == 502, r.Status == 503, r.Status == 504, r.Status < 400:
		return err
	case errors.Is(err, cimeter.ErrUnauthorized):
		return err
	}
	return fmt.Errorf("%s: %w", err.Error(), cimeter.ErrInvalid)
}

var errNoAnswer = errors.New("no answer of an OTLP receiver: want application/x-protobuf")

// parseAnswer reads an ExportMetricsServiceResponse or ExportTraceServiceResponse,
// which have the same form: partial_success = 1 {rejected = 1, error_message = 2}.
// Some receivers answer in JSON whatever they were asked in.
func parseAnswer(contentType string, b []byte) (partial, error) {
	if len(b) == 0 {
		return partial{}, nil
	}
	kind, _, _ := mime.ParseMediaType(contentType)
	switch kind {
	case "application/json":
		return parseJSON(b)
	case "application/x-protobuf", "":
	default:
		return partial{}, errNoAnswer
	}
	var p partial
	err := fields(b, func(num protowire.Number, _ uint64, inner []byte) error {
		if num != 1 {
			return nil
		}
		return fields(inner, func(num protowire.Number, n uint64, text []byte) error {
			switch {
			case num == 1:
				p.rejected = int(min(n, 1<<31))
			case num == 2:
				p.message = display.Fit(string(text), maxDetailWidth, "…")
			}
			return nil
		})
	})
	if err != nil {
		return partial{}, errNoAnswer
	}
	return p, nil
}

// fields calls each for every field of a message.
func fields(b []byte, each func(num protowire.Number, n uint64, text []byte) error) error {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var (
			v    uint64
			text []byte
		)
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, kind, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := each(num, v, text); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func parseJSON(b []byte) (partial, error) {
	var answer struct {
		PartialSuccess struct {
			Points  json.RawMessage `json:"rejectedDataPoints"` // 64-bit integers are texts
			Spans   json.RawMessage `json:"rejectedSpans"`
			Message string          `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return partial{}, errNoAnswer
	}
	s := answer.PartialSuccess
	p := partial{message: display.Fit(s.Message, maxDetailWidth, "…")}
	for _, raw := range []json.RawMessage{s.Points, s.Spans} {
		var n uint64
		if json.Unmarshal(bytes.Trim(raw, `"`), &n) == nil {
			p.rejected += int(min(n, 1<<31))
		}
	}
	return p, nil
}
