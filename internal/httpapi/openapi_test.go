package httpapi_test

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/wire"
)

// The description as far as the tests read it.
type (
	openAPI struct {
		OpenAPI    string
		Paths      map[string]map[string]operation
		Components struct {
			Schemas    map[string]*schema
			Parameters map[string]parameter
			Responses  map[string]response
		}
	}
	operation struct {
		Security   []map[string][]string
		Parameters []parameter
		Responses  map[string]response
	}
	parameter struct {
		Ref      string `json:"$ref"`
		Name, In string
		Required bool
		Schema   *schema
	}
	response struct {
		Ref     string `json:"$ref"`
		Headers map[string]any
		Content map[string]struct{ Schema *schema }
	}
	schema struct {
		Ref                  string `json:"$ref"`
		Type                 any
		Properties           map[string]*schema
		Required             []string
		Items                *schema
		Enum                 []any
		Default              any
		Minimum, Maximum     *int
		MaxLength            int
		AdditionalProperties *bool
	}
)

func readDescription(t *testing.T, api http.Handler) openAPI {
	t.Helper()
	w := get(t, api, "/api/v1/openapi.json")
	var d openAPI
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil || w.Code != http.StatusOK || d.OpenAPI != "3.1.0" {
		t.Fatalf("%d, version %q, %v", w.Code, d.OpenAPI, err)
	}
	return d
}

// check holds a JSON value against a schema.
func (d *openAPI) check(s *schema, v any, path string) (problems []string) {
	for s != nil && s.Ref != "" {
		name := strings.TrimPrefix(s.Ref, "#/components/schemas/")
		if s = d.Components.Schemas[name]; s == nil {
			return []string{path + ": no schema " + name}
		}
	}
	if s == nil {
		return []string{path + ": no schema"}
	}
	kinds, _ := s.Type.([]any)
	if one, ok := s.Type.(string); ok {
		kinds = []any{one}
	}
	kind := "null"
	switch v := v.(type) {
	case map[string]any:
		kind = "object"
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				problems = append(problems, path+"."+name+": is required")
			}
		}
		for name, member := range v {
			switch known, ok := s.Properties[name]; {
			case ok:
				problems = append(problems, d.check(known, member, path+"."+name)...)
			case s.AdditionalProperties != nil && !*s.AdditionalProperties:
				problems = append(problems, path+"."+name+": is not described")
			}
		}
	case []any:
		kind = "array"
		for i, item := range v {
			problems = append(problems, d.check(s.Items, item, fmt.Sprintf("%s[%d]", path, i))...)
		}
	case string:
		kind = "string"
	case bool:
		kind = "boolean"
	case float64:
		kind = "number"
		if v == float64(int64(v)) && slices.Contains(kinds, any("integer")) {
			kind = "integer"
		}
	}
	if len(kinds) > 0 && !slices.Contains(kinds, any(kind)) {
		problems = append(problems, fmt.Sprintf("%s: is %s: want %v", path, kind, kinds))
	}
	if s.Enum != nil && !slices.Contains(s.Enum, v) {
		problems = append(problems, fmt.Sprintf("%s: is %v: want one of %v", path, v, s.Enum))
	}
	return problems
}

func (d *openAPI) response(op operation, status int) (response, bool) {
	r, ok := op.Responses[fmt.Sprint(status)]
	if !ok {
		r, ok = op.Responses["default"]
	}
	return d.resolve(r), ok
}

// resolve is the response that a reference stands for.
func (d *openAPI) resolve(r response) response {
	if name, isRef := strings.CutPrefix(r.Ref, "#/components/responses/"); isRef {
		return d.Components.Responses[name]
	}
	return r
}

// described is the path of a route as the description writes it.
func described(path string) string {
	if path == httpapi.HooksPath {
		return path + "{ci}"
	}
	if strings.HasSuffix(path, "/") {
		return path + "{key}"
	}
	return path
}

// Every route is described with its method, its role and its parameters, and
// nothing else is.
func TestOpenAPI_isTheRoutes(t *testing.T) {
	api, _ := newServer(t, 0)
	d := readDescription(t, api)
	seen := map[string]bool{}
	for _, rt := range api.Table() {
		path, method := described(rt.Path), "get"
		if rt.Post {
			method = "post"
		}
		seen[path] = true
		op, ok := d.Paths[path][method]
		if !ok || len(d.Paths[path]) != 1 {
			t.Errorf("%s %s: %d methods are described: want it alone", method, path, len(d.Paths[path]))
			continue
		}
		role := "anybody"
		if len(op.Security) > 0 {
			for role = range op.Security[0] {
			}
		}
		if role != rt.Role.String() {
			t.Errorf("%s: role %s is described: want %s", path, role, rt.Role)
		}
		var names []string
		for _, p := range op.Parameters {
			if name, isRef := strings.CutPrefix(p.Ref, "#/components/parameters/"); isRef {
				p = d.Components.Parameters[name]
				if p.Name != name {
					t.Errorf("%s: parameter %s is not described", path, name)
				}
			}
			if p.In == "query" {
				names = append(names, p.Name)
			}
		}
		want := slices.Sorted(slices.Values(rt.Parameters))
		slices.Sort(names)
		if !slices.Equal(names, want) {
			t.Errorf("%s: parameters %v are described: want %v", path, names, want)
		}
	}
	for path := range d.Paths {
		if !seen[path] {
			t.Errorf("%s is described and not there", path)
		}
	}
}

// Every answer is what the description says, errors included.
func TestOpenAPI_isTheAnswers(t *testing.T) {
	api, in := newServer(t, 5)
	spread(t, in)
	d := readDescription(t, api)
	asked := map[string]bool{}
	hold := func(t *testing.T, path, method string, w *httptest.ResponseRecorder, want int) {
		t.Helper()
		asked[path] = true
		if w.Code != want {
			t.Errorf("%s: %d %s: want %d", path, w.Code, w.Body, want)
		}
		r, ok := d.response(d.Paths[path][method], w.Code)
		if !ok {
			t.Fatalf("%s: answer %d is not described", path, w.Code)
		}
		if w.Body.Len() == 0 {
			if len(r.Content) > 0 && w.Code != http.StatusNotModified {
				t.Errorf("%s: %d without a body: want %v", path, w.Code, r.Content)
			}
			return
		}
		kind, _, err := mime.ParseMediaType(w.Header().Get("Content-Type"))
		content, ok := r.Content[kind]
		if err != nil || !ok {
			t.Fatalf("%s: %d is %q: want one of %v", path, w.Code, kind, r.Content)
		}
		var v any = w.Body.String()
		if strings.HasSuffix(kind, "json") && kind != "application/x-ndjson" {
			if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range d.check(content.Schema, v, path) {
			t.Error(p)
		}
	}
	const key = "gitlab/gitlab.example.com/"
	for target, status := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/version": 200, "/metrics": 200,
		"/api/v1/builds": 200, "/api/v1/builds?trace=true&limit=2": 200, "/api/v1/builds?limit=0": 400, "/api/v1/builds?format=csv": 200, "/api/v1/builds?format=ndjson": 200, "/api/v1/builds?format=xml": 400, "/api/v1/builds?cursor=x": 400,
		"/api/v1/builds/" + key + "0": 200, "/api/v1/builds/none": 404, "/api/v1/traces/" + key + "0": 200, "/api/v1/traces/none": 404,
		"/api/v1/sections/" + key + "0": 200, "/api/v1/sections/" + key + "77": 404, "/api/v1/sections/": 404, "/api/v1/sections/" + key + "0?kept=true": 200, "/api/v1/builds/" + key + "0?sections=true": 200, "/api/v1/builds?sections=true": 200, "/api/v1/builds/jenkins/ci.example.com/app/17?machines=true": 200,
		"/api/v1/summary": 200, "/api/v1/summary?q=cpu%3E1d": 200, "/api/v1/projects": 200, "/api/v1/jobs": 200, "/api/v1/stages": 200,
		"/api/v1/machines": 200, "/api/v1/runners": 200, "/api/v1/totals": 200, "/api/v1/totals?bucket=1m": 400,
		"/api/v1/compare?a=" + key + "0&b=" + key + "1": 200, "/api/v1/compare?a=none&b=none": 404, "/api/v1/names": 200,
		"/api/v1/work/pending": 200, "/api/v1/work/started?limit=1": 200, "/api/v1/work/assignments": 200, "/api/v1/workers": 200, "/api/v1/work/started?limit=0": 400,
		"/api/v1/running": 200, "/api/v1/agents": 200, "/api/v1/sd/prometheus": 200, "/api/v1/openapi.json": 200,
	} {
		path, _, _ := strings.Cut(target, "?")
		for _, below := range []string{"/api/v1/builds/", "/api/v1/traces/", "/api/v1/sections/"} {
			if strings.HasPrefix(path, below) {
				path = below + "{key}"
			}
		}
		hold(t, path, "get", get(t, api, target), status)
	}
	hold(t, "/api/v1/builds/{key}", "get", get(t, api, "/api/v1/builds/"+key+"0", "Accept", "text/markdown"), 200)
	hold(t, "/api/v1/builds/{key}", "get", get(t, api, "/api/v1/builds/"+key+"0", "Accept", "text/plain"), 200)
	hold(t, "/api/v1/builds", "get", get(t, api, "/api/v1/builds", "If-None-Match", "*"), 304)
	mixed := append(batch(t, build(0), build(9)), "{}\n"...)
	hold(t, wire.RecordsPath, "post", post(t, api, wire.RecordsPath, mixed, "Content-Type", wire.ContentType()), 200)
	hold(t, wire.RecordsPath, "post", post(t, api, wire.RecordsPath, nil), 415)
	beat := []byte(`{"agent":"a","machine":"m","interval_seconds":5,"running":[]}`)
	hold(t, wire.HeartbeatPath, "post", post(t, api, wire.HeartbeatPath, beat, "Content-Type", "application/json"), 204)
	hold(t, wire.HeartbeatPath, "post", post(t, api, wire.HeartbeatPath, []byte("x")), 400)
	cancel := []byte(`{"key":"gitlab/gitlab.example.com/1"}`)
	hold(t, "/api/v1/work/cancel", "post", post(t, api, "/api/v1/work/cancel", cancel, "Content-Type", "application/json"), 202)
	hold(t, "/api/v1/work/cancel", "post", post(t, api, "/api/v1/work/cancel", cancel), 415)
	hold(t, "/api/v1/hooks/{ci}", "post", post(t, api, httpapi.HooksPath+"gitlab", []byte("{}"), "X-Secret", "right"), 200)
	hold(t, "/api/v1/hooks/{ci}", "post", post(t, api, httpapi.HooksPath+"gitlab", []byte("{}"), "X-Secret", "wrong"), 401)
	for path := range d.Paths {
		if !asked[path] {
			t.Errorf("%s was not asked", path)
		}
	}
	// Both ends of a heartbeat and of a record are one form.
	for name, v := range map[string]any{"Heartbeat": wire.Heartbeat{Agent: "a", Machine: "m", IntervalSeconds: 5, Spool: &wire.Spool{}, Host: host(), Scrape: &wire.Scrape{Runner: "r", Targets: []wire.Target{{Job: "cimeter", Address: ":1", Scheme: "https"}}}, Running: []wire.Running{{Key: "a/b"}}}, "Record": build(1)} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var doc any
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		for _, p := range d.check(d.Components.Schemas[name], doc, name) {
			t.Error(p)
		}
	}
}
