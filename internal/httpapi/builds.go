package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/summary"
)

const (
	defaultLimit = 50
	maxLimit     = 500 // builds in a page; the client asks for the next
	// chunk is how many records are held at once while a page is written, so
	// that a page of the largest records does not need a page's memory.
	chunk = 16
)

// listParameters are what /api/v1/builds takes, beside limit and cursor, each
// with how a record meets it. A build's runner and its stages have several names.
var listParameters = map[string]func(r *cimeter.Record, want string) bool{
	"project": func(r *cimeter.Record, want string) bool { return r.Project == want },
	"ci":      func(r *cimeter.Record, want string) bool { return r.CI == want },
	"name":    func(r *cimeter.Record, want string) bool { return r.Name == want },
	"machine": func(r *cimeter.Record, want string) bool { return r.Machine == want },
	"result":  func(r *cimeter.Record, want string) bool { return r.Result == want },
	"runner": func(r *cimeter.Record, want string) bool {
		return want == r.Runner.ID || want == r.Runner.ShortToken || want == r.Runner.Name
	},
	"stage": func(r *cimeter.Record, want string) bool {
		return slices.ContainsFunc(r.Stages, func(s cimeter.Stage) bool { return s.Name == want })
	},
}

type listQuery struct {
	form   string
	cursor string
	limit  int
	wanted func(*cimeter.Record) bool // nil: every record
}

// parseQuery reads a query strictly: what is unknown, given twice, or out of
// range is named, not ignored.
func parseQuery(raw string, known func(name string) bool) (map[string]string, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, &problem{Status: http.StatusBadRequest, Detail: "query cannot be read: want name=value pairs joined by &"}
	}
	query := make(map[string]string, len(values))
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names) // the same bad query names the same parameter each time
	for _, name := range names {
		switch {
		case !known(name):
			return nil, badParameter(name, "parameter is not known")
		case len(values[name]) > 1:
			return nil, badParameter(name, "parameter is given more than once")
		}
		query[name] = values[name][0]
	}
	return query, nil
}

func badParameter(name, what string) error {
	shown := display.Fit(name, 64, "…")
	return &problem{Status: http.StatusBadRequest, Parameter: shown, Detail: shown + ": " + what}
}

func parseList(raw string) (listQuery, error) {
	q := listQuery{form: formJSON, limit: defaultLimit}
	query, err := parseQuery(raw, func(name string) bool {
		return name == "limit" || name == "cursor" || name == "format" || listParameters[name] != nil
	})
	if err != nil {
		return q, err
	}
	values := &question{values: query}
	if q.form, err = values.choice("format", formJSON, formNDJSON, formCSV); err != nil {
		return q, err
	}
	q.limit, err = values.number("limit", defaultLimit, maxLimit)
	if q.form != formJSON {
		q.limit, err = values.streamLimit()
	}
	if err != nil {
		return q, err
	}
	delete(query, "format")
	q.cursor = query["cursor"]
	delete(query, "limit")
	delete(query, "cursor")
	if len(query) > 0 {
		q.wanted = func(r *cimeter.Record) bool {
			for name, want := range query {
				if !listParameters[name](r, want) {
					return false
				}
			}
			return true
		}
	}
	return q, nil
}

// builds is GET /api/v1/builds: {"builds": [...], "next": "..."}, the latest
// end first. next is absent on the last page; a page may be shorter than the
// limit, even empty, though there is a next. As NDJSON or CSV it is all of them.
func (a *API) builds(w http.ResponseWriter, r *http.Request) error {
	q, err := parseList(r.URL.RawQuery)
	if err != nil {
		return err
	}
	if q.form != formJSON {
		s := &stream{form: q.form, tell: recordForm{trace: true}, left: q.limit, cursor: q.cursor, page: func(_ context.Context, cursor string, limit int) ([]*cimeter.Record, string, error) {
			return a.o.Store.List(cursor, limit, q.wanted)
		}}
		return s.send(w, r)
	}
	written, cursor := 0, q.cursor
	for {
		want := min(chunk, q.limit-written)
		found, next, err := a.o.Store.List(cursor, want, q.wanted)
		if err != nil {
			return err // when half the page is written, fail breaks the connection
		}
		if written == 0 {
			w.Header().Set("Content-Type", "application/json")
			w.Write([]byte(`{"builds":[`))
		}
		for _, record := range found {
			b, err := json.Marshal(record)
			if err != nil {
				return fmt.Errorf("encode record %s: %w", record.Key, err)
			}
			if written > 0 {
				w.Write([]byte(",\n"))
			}
			if _, err := w.Write(display.JSON(b)); err != nil {
				return nil // the client is gone
			}
			written++
		}
		cursor = next
		if next == "" || written >= q.limit || len(found) < want {
			break
		}
	}
	end := "]}\n"
	if cursor != "" {
		b, err := json.Marshal(cursor)
		if err != nil {
			return err
		}
		end = `],"next":` + string(b) + "}\n"
	}
	w.Write([]byte(end))
	return nil
}

// build is GET /api/v1/builds/{key}: the record as JSON, or its summary as
// plain text or markdown, as the Accept header asks.
func (a *API) build(w http.ResponseWriter, r *http.Request) error {
	values, err := parseQuery(r.URL.RawQuery, func(name string) bool { return (name == "sections" || name == "machines") && a.o.Query != nil })
	if err != nil {
		return err
	}
	sections, err := (&question{values: values}).choice("sections", "false", "true")
	if err != nil {
		return err
	}
	machines, err := (&question{values: values}).choice("machines", "false", "true")
	if err != nil {
		return err
	}
	w.Header().Set("Vary", "Accept")
	form := accepted(r.Header.Values("Accept"))
	if form == "" {
		return &problem{Status: http.StatusNotAcceptable, Detail: "want application/json, text/plain or text/markdown"}
	}
	// A key is percent-encoded already: it is looked up as it stands in the path.
	key := strings.TrimPrefix(r.URL.EscapedPath(), buildsPath+"/")
	record, err := a.get(r.Context(), key)
	if err != nil {
		return err
	}
	switch form {
	case "text/plain":
		var b strings.Builder
		parts, err := a.keptOf(r.Context(), record)
		if err != nil {
			return err
		}
		on, err := a.machinesOf(r.Context(), record.Key)
		if err != nil {
			return err
		}
		if err := summary.Text(&b, record, summary.TextOptions{UTF8: true, Sections: parts, Machines: on}); err != nil {
			return err
		}
		writeText(w, "text/plain; charset=utf-8", b.String())
	case "text/markdown":
		var b strings.Builder
		if err := summary.Markdown(&b, record); err != nil {
			return err
		}
		writeText(w, "text/markdown; charset=utf-8", b.String())
	default:
		if sections == "false" && machines == "false" {
			return writeTagged(w, r, record)
		}
		tell := recordForm{trace: true}
		if sections == "true" {
			tell.beside = a.keptOf
		}
		doc, err := tell.append(r.Context(), nil, record)
		if err != nil {
			return err
		}
		if machines == "true" {
			on, err := a.machinesOf(r.Context(), record.Key)
			if err != nil {
				return err
			}
			if doc, err = withMachines(doc, on); err != nil {
				return err
			}
		}
		return writeTagged(w, r, document(doc))
	}
	return nil
}

// running is GET /api/v1/running: {"builds": [...]}, the builds that run now.
func (a *API) running(w http.ResponseWriter, r *http.Request) error {
	if _, err := parseQuery(r.URL.RawQuery, func(string) bool { return false }); err != nil {
		return err
	}
	builds := a.o.Running()
	if builds == nil {
		builds = []*cimeter.Record{}
	}
	return writeJSON(w, "application/json", http.StatusOK, map[string]any{"builds": builds})
}

// accepted picks the form that an Accept header wants most, JSON where it does
// not say, "" where it wants none of ours (RFC 9110, 12.5.1).
func accepted(headers []string) string {
	header := strings.TrimSpace(strings.Join(headers, ","))
	if header == "" {
		return "application/json"
	}
	best, bestQ := "", 0.0
	for _, form := range []string{"application/json", "text/plain", "text/markdown"} {
		if q := quality(header, form); q > bestQ {
			best, bestQ = form, q
		}
	}
	return best
}

// quality is the weight that the most specific range of an Accept header gives
// to a form.
func quality(header, form string) float64 {
	kind, _, _ := strings.Cut(form, "/")
	weight, specific := 0.0, 0
	for part := range strings.SplitSeq(header, ",") {
		media, parameters, _ := strings.Cut(part, ";")
		level := 0
		switch strings.ToLower(strings.TrimSpace(media)) {
		case form:
			level = 3
		case kind + "/*":
			level = 2
		case "*/*":
			level = 1
		}
		if level <= specific {
			continue
		}
		q := 1.0
		for p := range strings.SplitSeq(parameters, ";") {
			if v, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(p)), "q="); ok {
				parsed, err := strconv.ParseFloat(v, 64)
				if err != nil || !(parsed >= 0 && parsed <= 1) {
					parsed = 0
				}
				q = parsed
			}
		}
		weight, specific = q, level
	}
	return weight
}
