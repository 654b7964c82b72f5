package httpapi

import (
	"context"
	"encoding/csv"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/summary"
)

// The values of the parameter format of the list of builds. In the others than
// JSON the list is one stream to its end, not a page.
const (
	formJSON   = "json"
	formNDJSON = "ndjson"
	formCSV    = "csv"
)

// streamPage is how many records are in memory at once while a stream is
// written: the traces of NDJSON make some a hundred times larger than others.
const streamPage = 100

// stream is a list of builds that is written page by page, so that its length
// costs no memory. A page has the time of a question, to be read and to be
// taken by the client.
type stream struct {
	form string
	left int // records to write at most
	page func(ctx context.Context, cursor string, limit int) ([]*cimeter.Record, string, error)
	tell recordForm

	cursor string
}

// streamLimit is the parameter limit of a stream: all of them without it.
func (q *question) streamLimit() (int, error) { return q.number("limit", math.MaxInt32, math.MaxInt32) }

// send writes the stream. An error before the first byte is the client's to
// see; one after it breaks the connection, so that the client does not take a
// part for the whole.
func (s *stream) send(w http.ResponseWriter, r *http.Request) error {
	kind := "application/x-ndjson"
	if s.form == formCSV {
		kind = "text/csv; charset=utf-8; header=present"
	}
	control := http.NewResponseController(w)
	for begun := false; ; {
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // a writer without a connection has none
		ctx, cancel := context.WithTimeout(r.Context(), queryTime)
		found, next, err := s.page(ctx, s.cursor, min(streamPage, s.left))
		var b []byte
		if err == nil {
			b, err = s.encode(ctx, found, !begun)
		}
		late := ctx.Err() != nil && r.Context().Err() == nil
		cancel()
		switch {
		case err != nil && late && !begun:
			return tooSlow()
		case err != nil:
			return err
		}
		if !begun {
			begun = true
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Content-Disposition", `attachment; filename="builds.`+s.form+`"`)
		}
		if r.Method == http.MethodHead {
			return nil
		}
		if _, err := w.Write(b); err != nil {
			return nil // the client is gone
		}
		s.left -= len(found)
		if next == "" || next == s.cursor || s.left <= 0 {
			return nil
		}
		s.cursor = next
	}
}

func tooSlow() error {
	return &problem{Status: http.StatusServiceUnavailable, Detail: fmt.Sprintf("took longer than %s: want a narrower question", queryTime)}
}

// encode writes records, one a line: as CSV below the header.
func (s *stream) encode(ctx context.Context, records []*cimeter.Record, header bool) ([]byte, error) {
	if s.form == formCSV {
		return csvLines(records, header)
	}
	var out []byte
	for _, r := range records {
		b, err := s.tell.append(ctx, nil, r)
		if err != nil {
			return nil, err
		}
		out = append(append(out, display.JSON(b)...), '\n')
	}
	return out, nil
}

// csvLines are records, one a row, below the header.
func csvLines(records []*cimeter.Record, header bool) ([]byte, error) {
	var b strings.Builder
	w := csv.NewWriter(&b)
	if header {
		_ = w.Write(summary.CSVHeader())
	}
	for _, r := range records {
		_ = w.Write(summary.CSVRow(r))
	}
	w.Flush()
	return []byte(b.String()), w.Error() // a builder refuses nothing
}

// newStream is the list of builds of a server as a stream.
func (a *API) newStream(form string, q store.Query, tell recordForm) *stream {
	return &stream{form: form, tell: tell, left: q.Limit, cursor: q.Cursor, page: func(ctx context.Context, cursor string, limit int) ([]*cimeter.Record, string, error) {
		q.Cursor, q.Limit = cursor, limit
		page, err := a.o.Query.List(ctx, q)
		return page.Records, page.Next, err
	}}
}
