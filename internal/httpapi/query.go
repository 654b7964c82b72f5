package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/summary"
)

// Query is the store of a server. With it the routes of builds know the whole
// language of filters, and those of totals are there. See package store for
// what its methods do; they are called by many goroutines at once.
type Query interface {
	Get(ctx context.Context, key string) (*cimeter.Record, error)
	Trace(ctx context.Context, key string) (*cimeter.Trace, error)
	Machines(ctx context.Context, key string) ([]*cimeter.Record, error)
	List(ctx context.Context, q store.Query) (store.Page, error)
	Sum(ctx context.Context, f filter.Filter) (store.Sum, error)
	Groups(ctx context.Context, q store.GroupQuery) (store.Groups, error)
	Buckets(ctx context.Context, q store.BucketQuery) ([]store.Bucket, error)
	Names(ctx context.Context, kind, part string, limit int) ([]string, error)
}

// queryTime bounds one question to the store, so that no filter holds it.
const queryTime = 2 * time.Second

// The parameters that are the same in several routes.
const (
	wantTime = "want a time such as 2026-11-30T12:00:00Z, a day such as 2026-11-30, or a span back from now such as 7d"
)

// terms are the parameters that ask for an exact value of a build.
var terms = map[string]filter.Field{
	"project": filter.Project, "ci": filter.CI, "name": filter.Job, "ref": filter.Ref, "stage": filter.Stage, "runner": filter.Runner,
	"machine": filter.Machine, "result": filter.Result, "event": filter.Event, "pipeline": filter.Pipeline, "verdict": filter.Verdict,
}

// queryRoutes are the routes of a server's store, with their parameters.
func (a *API) queryRoutes() []route {
	if a.o.Query == nil {
		return nil
	}
	filters := func(more ...string) []string {
		names := append([]string{"q", "since", "before"}, more...)
		for name := range terms {
			names = append(names, name)
		}
		return names
	}
	groups := func(by store.By, names ...string) func(*question) (any, error) {
		return func(q *question) (any, error) { return a.groups(q, by, names) }
	}
	routes := []route{
		a.ask(buildsPath, a.list, filters("sort", "order", "cursor", "limit", "trace", "sections", "format")...),
		a.ask("/api/v1/traces/", a.trace),
		a.ask("/api/v1/summary", a.sum, filters()...),
		a.ask("/api/v1/projects", groups(store.ByProject), "from", "to", "sort", "limit"),
		a.ask("/api/v1/jobs", groups(store.ByJob, "project"), "from", "to", "sort", "limit", "project"),
		a.ask("/api/v1/stages", groups(store.ByStage, "project", "name"), "from", "to", "sort", "limit", "project", "name"),
		a.ask("/api/v1/machines", groups(store.ByMachine), "from", "to", "sort", "limit"),
		a.ask("/api/v1/runners", groups(store.ByRunner), "from", "to", "sort", "limit"),
		a.ask("/api/v1/totals", a.buckets, "from", "to", "bucket", "project", "name", "machine", "runner"),
		a.ask("/api/v1/compare", a.compare, "a", "b"),
		a.ask("/api/v1/names", a.names, "kind", "part", "limit"),
	}
	return append(routes,
		route{path: buildsPath + "/", handle: a.build, parameters: []string{"machines", "sections"}, role: Read},
		route{path: "/api/v1/openapi.json", handle: a.openapi, role: Read})
}

// question is one request to the store.
type question struct {
	ctx    context.Context
	r      *http.Request
	values map[string]string
	now    time.Time
}

// ask makes a route of a function that answers with a JSON document. Each takes
// the parameters that are named and no others.
func (a *API) ask(path string, answer func(*question) (any, error), names ...string) route {
	known := make(map[string]bool, len(names))
	for _, n := range names {
		known[n] = true
	}
	return route{path: path, role: Read, parameters: names, handle: func(w http.ResponseWriter, r *http.Request) error {
		values, err := parseQuery(r.URL.RawQuery, func(name string) bool { return known[name] })
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(r.Context(), queryTime)
		defer cancel()
		v, err := answer(&question{ctx: ctx, r: r, values: values, now: a.now()})
		switch {
		case err != nil && ctx.Err() != nil && r.Context().Err() == nil:
			return tooSlow()
		case err != nil:
			return err
		}
		if s, ok := v.(*stream); ok {
			return s.send(w, r)
		}
		return writeTagged(w, r, v)
	}}
}

func (a *API) now() time.Time {
	if a.o.Now != nil {
		return a.o.Now()
	}
	return time.Now()
}

// filter joins the parameters of a filter: each must be met, and q too.
func (q *question) filter() (filter.Filter, error) {
	f, err := filter.Parse(q.values["q"])
	if err != nil {
		return nil, badParameter("q", err.Error())
	}
	for name, field := range terms {
		if v, ok := q.values[name]; ok {
			f = append(f, filter.Is(field, v))
		}
	}
	for name, field := range map[string]filter.Field{"since": filter.Since, "before": filter.Before} {
		v, ok := q.values[name]
		if !ok {
			continue
		}
		at, err := q.time(name, v)
		if err != nil {
			return nil, err
		}
		f = append(f, filter.Term{Field: field, Op: filter.Eq, At: at})
	}
	return f.Resolve(q.now), nil
}

// time reads an instant as the language of filters does.
func (q *question) time(name, v string) (time.Time, error) {
	f, err := filter.Parse("since:" + strconv.Quote(v))
	if err != nil || len(f) != 1 || f[0].Field != filter.Since {
		return time.Time{}, badParameter(name, fmt.Sprintf("%q: %s", display.Fit(v, 64, "…"), wantTime))
	}
	return f.Resolve(q.now)[0].At, nil
}

// number reads a whole number; none is what without says.
func (q *question) number(name string, without, most int) (int, error) {
	v, ok := q.values[name]
	if !ok {
		return without, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > most {
		return 0, badParameter(name, fmt.Sprintf("%q: want 1 to %d", display.Fit(v, 32, "…"), most))
	}
	return n, nil
}

func (q *question) choice(name string, choices ...string) (string, error) {
	v, ok := q.values[name]
	if !ok {
		return choices[0], nil
	}
	for _, c := range choices {
		if v == c {
			return v, nil
		}
	}
	return "", badParameter(name, fmt.Sprintf("%q: want one of %s", display.Fit(v, 32, "…"), strings.Join(choices, ", ")))
}

// sorts are the values of the parameter sort; the first is what holds without it.
func sorts(first store.Sort) []string {
	names := []string{string(first)}
	for _, s := range []store.Sort{store.SortEnded, store.SortCPU, store.SortMemory, store.SortWall, store.SortIO, store.SortNet, store.SortQueue} {
		if s != first {
			names = append(names, string(s))
		}
	}
	return names
}

// span reads from and to; without them it is the last 30 days.
func (q *question) span() (from, to time.Time, err error) {
	from, to = q.now.Add(-30*24*time.Hour), q.now
	if v, ok := q.values["from"]; ok {
		if from, err = q.time("from", v); err != nil {
			return from, to, err
		}
	}
	if v, ok := q.values["to"]; ok {
		if to, err = q.time("to", v); err != nil {
			return from, to, err
		}
	}
	if !from.Before(to) {
		return from, to, badParameter("from", "want a time before to")
	}
	return from.UTC(), to.UTC(), nil
}

// list is GET /api/v1/builds of a server.
func (a *API) list(q *question) (any, error) {
	f, err := q.filter()
	if err != nil {
		return nil, err
	}
	form, err := q.choice("format", formJSON, formNDJSON, formCSV)
	if err != nil {
		return nil, err
	}
	limit, err := q.number("limit", defaultLimit, maxLimit)
	if form != formJSON {
		limit, err = q.streamLimit()
	}
	if err != nil {
		return nil, err
	}
	sort, err := q.choice("sort", sorts(store.SortEnded)...)
	if err != nil {
		return nil, err
	}
	order, err := q.choice("order", "desc", "asc")
	if err != nil {
		return nil, err
	}
	traces, err := q.choice("trace", "false", "true")
	if err != nil {
		return nil, err
	}
	sections, err := q.choice("sections", "false", "true")
	if err != nil {
		return nil, err
	}
	query := store.Query{Filter: f, Sort: store.Sort(sort), Asc: order == "asc", Cursor: q.values["cursor"], Limit: limit, Trace: traces == "true"}
	tell := recordForm{trace: query.Trace}
	if sections == "true" && form != formCSV {
		tell.beside, query.Trace = a.keptOf, true // they are divided by it
	}
	if form != formJSON {
		return a.newStream(form, query, tell), nil
	}
	page, err := a.o.Query.List(q.ctx, query)
	if err != nil {
		return nil, err
	}
	return listAnswer(q.ctx, page, tell)
}

// document is an answer that is JSON already.
type document []byte

// listAnswer is {"builds": [...], "next": "..."}; next is absent on the last page.
func listAnswer(ctx context.Context, page store.Page, form recordForm) (document, error) {
	b := []byte(`{"builds":[`)
	for i, r := range page.Records {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = form.append(ctx, b, r); err != nil {
			return nil, err
		}
	}
	b = append(b, ']')
	if page.Next != "" {
		next, err := json.Marshal(page.Next)
		if err != nil {
			return nil, fmt.Errorf("encode answer: %w", err)
		}
		b = append(append(b, `,"next":`...), next...)
	}
	return append(b, '}'), nil
}

// trace is GET /api/v1/traces/{key}.
func (a *API) trace(q *question) (any, error) {
	return a.o.Query.Trace(q.ctx, strings.TrimPrefix(q.r.URL.EscapedPath(), "/api/v1/traces/"))
}

func (a *API) names(q *question) (any, error) {
	kind, err := q.choice("kind", "project", "job", "ref", "runner", "machine", "stage")
	if err != nil {
		return nil, err
	}
	limit, err := q.number("limit", 20, store.MaxGroups)
	if err != nil {
		return nil, err
	}
	names, err := a.o.Query.Names(q.ctx, kind, q.values["part"], limit)
	if names == nil {
		names = []string{}
	}
	return map[string]any{"names": names}, err
}

// compare is GET /api/v1/compare?a=KEY&b=KEY.
func (a *API) compare(q *question) (any, error) {
	for _, name := range []string{"a", "b"} {
		if q.values[name] == "" {
			return nil, badParameter(name, "want the key of a build")
		}
	}
	left, err := a.o.Query.Get(q.ctx, q.values["a"])
	if err != nil {
		return nil, err
	}
	right, err := a.o.Query.Get(q.ctx, q.values["b"])
	if err != nil {
		return nil, err
	}
	return summary.Compare(left, right), nil
}

// get returns the record of a key from whatever store there is.
func (a *API) get(ctx context.Context, key string) (*cimeter.Record, error) {
	if a.o.Query != nil {
		ctx, cancel := context.WithTimeout(ctx, queryTime)
		defer cancel()
		return a.o.Query.Get(ctx, key)
	}
	return a.o.Store.Get(key)
}

// writeTagged answers with a JSON document and its entity tag, or with 304 when
// the client has it.
func writeTagged(w http.ResponseWriter, r *http.Request, v any) error {
	b, ok := v.(document)
	if !ok {
		var err error
		if b, err = json.Marshal(v); err != nil {
			return fmt.Errorf("encode answer: %w", err)
		}
	}
	return writeBytes(w, r, "application/json", append(display.JSON(b), '\n'))
}
