package gitlabapi_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// job is one of the stand-in's.
type job struct {
	id, project, runner                int64
	pipeline                           int64 // 0 is one of its own
	status, name, manager              string
	created, queued, started, finished time.Time
	deleted                            bool
}

// standin speaks the parts of GitLab's REST and GraphQL that are asked for, as its
// source says (lib/api, app/graphql/types/ci), by a clock of its own.
type standin struct {
	*httptest.Server
	mu       sync.Mutex
	now      time.Time     // the client's clock
	ahead    time.Duration // of the server's clock
	admin    bool
	graphql  string // what all queries fail with; "" nothing
	oldJobs  bool   // single jobs are not in the schema
	oldPipes bool   // lists of pipelines take no status
	projects int64
	jobs     map[int64]*job
	hidden   map[int64]bool // of a pipeline that a project's list does not have
	runners  int64
	events   []event
	limit    func(h http.Header)                               // headers on each answer
	fault    func(w http.ResponseWriter, r *http.Request) bool // true: it has answered
	log      []string                                          // method and path with query of each request
	notMod   int
	notes    map[int64]map[string]any
	writes   []string         // bodies of writes
	requests []map[string]any // merge requests
	noState  bool             // before 18.2: the parameter state of a commit's merge requests is ignored
}

type event struct{ id, project int64 }

const token = "glpat-secret-of-the-test"

func newStandin(t *testing.T) *standin {
	t.Helper()
	s := &standin{now: time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC), admin: true, jobs: map[int64]*job{}, notes: map[int64]map[string]any{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// at is the server's time.
func (s *standin) at() time.Time { return s.now.Add(s.ahead) }

func (s *standin) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *standin) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *standin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	held := true
	defer func() {
		if held {
			s.mu.Unlock()
		}
	}()
	s.log = append(s.log, r.Method+" "+r.URL.RequestURI())
	w.Header().Set("Date", s.at().Format(http.TimeFormat))
	if s.limit != nil {
		s.limit(w.Header())
	}
	if fault := s.fault; fault != nil {
		s.mu.Unlock() // it may write until nobody reads, or end with a panic
		held = false
		answered := fault(w, r)
		s.mu.Lock()
		held = true
		if answered {
			return
		}
	}
	if r.Header.Get("PRIVATE-TOKEN") != token {
		answer(w, 401, map[string]string{"message": "401 Unauthorized"})
		return
	}
	if r.URL.Path == "/api/graphql" {
		s.graph(w, r)
		return
	}
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), "/api/v4/")
	if !ok {
		answer(w, 404, map[string]string{"error": "404 Not Found"})
		return
	}
	part := strings.Split(path, "/")
	switch {
	case path == "runners/all":
		if !s.admin {
			answer(w, 403, map[string]string{"message": "403 Forbidden"})
			return
		}
		s.list(w, r, nil)
	case path == "projects":
		var all []row
		for id := int64(1); id <= s.projects; id++ {
			all = append(all, row{id, map[string]any{"id": id, "path_with_namespace": pathOf(id)}})
		}
		s.list(w, r, all)
	case path == "events":
		var all []row
		for _, e := range slices.Backward(s.events) {
			all = append(all, row{e.id, map[string]any{"id": e.id, "project_id": e.project, "action_name": "pushed to"}})
		}
		s.list(w, r, all)
	case len(part) >= 3 && part[0] == "projects" && part[2] == "jobs":
		s.projectJobs(w, r, part)
	case len(part) == 6 && part[2] == "repository" && part[5] == "merge_requests", len(part) == 4 && part[2] == "merge_requests":
		s.mergeRequests(w, r, part)
	case len(part) >= 5 && part[2] == "merge_requests" && part[4] == "notes", len(part) == 4 && part[2] == "statuses", path == "user":
		s.write(w, r, part)
	default:
		answer(w, 404, map[string]string{"error": "404 Not Found"})
	}
}

func pathOf(id int64) string { return fmt.Sprintf("group/app-%d", id) }

func (s *standin) projectID(part string) int64 {
	name, _ := url.PathUnescape(part)
	id, err := strconv.ParseInt(strings.TrimPrefix(name, "group/app-"), 10, 64)
	if err != nil || id < 1 || id > s.projects {
		return 0
	}
	return id
}

func (s *standin) projectJobs(w http.ResponseWriter, r *http.Request, part []string) {
	project := s.projectID(part[1])
	if project == 0 {
		answer(w, 404, map[string]string{"message": "404 Project Not Found"})
		return
	}
	if len(part) >= 4 {
		id, _ := strconv.ParseInt(part[3], 10, 64)
		j := s.jobs[id]
		switch {
		case j == nil || j.project != project || j.deleted:
			answer(w, 404, map[string]string{"message": "404 Not found"})
		case len(part) == 5 && part[4] == "cancel" && r.Method == "POST":
			if j.finished.IsZero() {
				j.status, j.finished = "canceled", s.at()
			}
			answer(w, 201, s.rest(j))
		case len(part) == 5 && part[4] == "trace":
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprintf(w, "section_start:%d:step_script\r\x1b[0Ksecret text\nsection_end:%d:step_script\r\x1b[0K", j.started.Unix(), j.finished.Unix())
		default:
			answer(w, 200, s.rest(j))
		}
		return
	}
	scope := r.URL.Query()["scope[]"]
	var all []row
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(s.jobs))) {
		if j := s.jobs[id]; j.project == project && !j.deleted && (scope == nil || slices.Contains(scope, j.status)) {
			all = append(all, row{id, s.rest(j)})
		}
	}
	s.list(w, r, all)
}

func iso(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

func (j *job) queuedFor(now time.Time) any {
	switch {
	case j.queued.IsZero():
		return nil
	case j.started.IsZero():
		return now.Sub(j.queued).Seconds()
	}
	return j.started.Sub(j.queued).Seconds()
}

func (s *standin) rest(j *job) map[string]any {
	m := map[string]any{
		"id": j.id, "status": j.status, "stage": "test", "name": j.name, "ref": "main", "tag": false, "coverage": nil, "allow_failure": false,
		"created_at": iso(j.created), "started_at": iso(j.started), "finished_at": iso(j.finished), "erased_at": nil, "duration": nil,
		"queued_duration": j.queuedFor(s.at()), "commit": map[string]any{"id": "7e4d"}, "tag_list": []string{"docker"}, "runner": nil, "runner_manager": nil,
		"pipeline": map[string]any{"id": 991, "iid": 3, "project_id": j.project, "ref": "main", "sha": "7e4d", "status": "running", "source": "push"},
		"web_url":  fmt.Sprintf("%s/%s/-/jobs/%d", s.URL, pathOf(j.project), j.id),
	}
	if j.runner != 0 {
		m["runner"] = map[string]any{"id": j.runner, "description": fmt.Sprint("docker-", j.runner)}
		m["runner_manager"] = map[string]any{"system_id": j.manager}
	}
	if j.status == "failed" {
		m["failure_reason"] = "script_failure"
	}
	return m
}

type row struct {
	id int64
	v  any
}

// list answers one page with its headers: by Link rel=next, as keyset pages have it
// alone and offset pages beside x-next-page.
func (s *standin) list(w http.ResponseWriter, r *http.Request, all []row) {
	q := r.URL.Query()
	size, _ := strconv.Atoi(q.Get("per_page"))
	if size <= 0 || size > 100 {
		size = 20
	}
	if after, err := strconv.ParseInt(q.Get("cursor"), 10, 64); err == nil {
		i := slices.IndexFunc(all, func(r row) bool { return r.id == after })
		all = all[i+1:]
	}
	page := make([]any, 0, size)
	for _, r := range all[:min(size, len(all))] {
		page = append(page, r.v)
	}
	if len(all) > size {
		q.Set("cursor", fmt.Sprint(all[size-1].id))
		w.Header().Set("Link", fmt.Sprintf(`<%s%s?%s>; rel="next"`, s.URL, r.URL.EscapedPath(), q.Encode()))
	}
	b, _ := json.Marshal(page)
	etag := fmt.Sprintf(`W/"%x"`, sha256.Sum256(b))
	w.Header().Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		s.notMod++
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(b)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// words are all names of the schema that queries may use: fields of CiJob and its
// interface, CiRunner, CiRunnerManager, PageInfo and so on, and arguments.
var words = strings.Fields(`query String after first jobs statuses pageInfo hasNextPage endCursor nodes id name status kind tags createdAt queuedAt
startedAt finishedAt queuedDuration refName webPath stage pipeline project fullPath job runner description runnerManager systemId on CiJob runners currentUser
mutation jobCancel input errors SUCCESS FAILED CANCELED paused tagList contactedAt jobExecutionStatus managers version platformName architectureName
ids ID projects pipelines downstream w r n PENDING RUNNING CANCELING CREATED PREPARING SCHEDULED WAITING_FOR_RESOURCE WAITING_FOR_CALLBACK`)

var (
	literal = regexp.MustCompile(`"[^"]*"`)
	alias   = regexp.MustCompile(`^[bgp]\d+$`)
	word    = regexp.MustCompile(`[A-Za-z_]+[0-9]*`)
	single  = regexp.MustCompile(`(b\d+):project\(fullPath:"([^"]*)"\)\{job\(id:"gid://gitlab/Ci::Build/(\d+)"\)`)
	named   = regexp.MustCompile(`(b\d+):project\(fullPath:"([^"]*)"\)\{id\}`)
	cancel  = regexp.MustCompile(`^mutation\{jobCancel\(input:\{id:"gid://gitlab/Ci::Build/(\d+)"\}\)\{errors\}\}$`)
	status  = regexp.MustCompile(`statuses:\[([A-Z_ ]+)\],first:100`)
)

func (s *standin) graph(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Query     string
		Variables map[string]any
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		answer(w, 400, map[string]any{"errors": []any{map[string]any{"message": "Unexpected end of document"}}})
		return
	}
	fail := func(message string) {
		answer(w, 200, map[string]any{"errors": []any{map[string]any{"message": message}}})
	}
	if s.graphql != "" {
		fail(s.graphql)
		return
	}
	for _, name := range word.FindAllString(literal.ReplaceAllString(q.Query, ""), -1) {
		if !slices.Contains(words, name) && !alias.MatchString(name) {
			fail("Field '" + name + "' doesn't exist on type 'Query'")
			return
		}
	}
	if m := cancel.FindStringSubmatch(q.Query); m != nil {
		s.cancel(w, m[1])
		return
	}
	if n, most := complexity(q.Query), map[bool]int{true: 300, false: 250}[s.admin]; n > most {
		fail(fmt.Sprintf("Query has complexity of %d, which exceeds max complexity of %d", n, most))
		return
	}
	if strings.Contains(q.Query, "pipelines(") {
		if s.oldPipes {
			fail("Argument 'status' on Field 'pipelines' has an invalid value")
			return
		}
		answer(w, 200, map[string]any{"data": s.pipelines(q.Query, q.Variables)})
		return
	}
	if many := named.FindAllStringSubmatch(q.Query, -1); many != nil {
		data := map[string]any{}
		for _, m := range many {
			if data[m[1]] = nil; s.projectID(m[2]) != 0 {
				data[m[1]] = map[string]any{"id": fmt.Sprint("gid://gitlab/Project/", s.projectID(m[2]))}
			}
		}
		answer(w, 200, map[string]any{"data": data})
		return
	}
	after, _ := q.Variables["after"].(string)
	data := map[string]any{}
	switch many := single.FindAllStringSubmatch(q.Query, -1); {
	case many != nil:
		if s.oldJobs {
			fail("Field 'job' doesn't exist on type 'Project'")
			return
		}
		for _, m := range many {
			id, _ := strconv.ParseInt(m[3], 10, 64)
			project := map[string]any{"job": nil}
			if j := s.jobs[id]; j != nil && !j.deleted && pathOf(j.project) == m[2] {
				project["job"] = s.node(j)
			}
			data[m[1]] = project
		}
	case status.MatchString(q.Query):
		statuses := strings.Fields(strings.ToLower(status.FindStringSubmatch(q.Query)[1]))
		var all []row
		for _, id := range slices.Backward(slices.Sorted(maps.Keys(s.jobs))) {
			if j := s.jobs[id]; s.admin && !j.deleted && slices.Contains(statuses, j.status) {
				all = append(all, row{id, s.node(j)})
			}
		}
		data["jobs"] = connection(all, after)
	default:
		var all []row
		for id := int64(1); id <= s.runners; id++ {
			state := "IDLE"
			all = append(all, row{id, map[string]any{
				"id": fmt.Sprint("gid://gitlab/Ci::Runner/", id), "description": fmt.Sprint("docker-", id), "paused": id == 3, "status": "ONLINE",
				"tagList": []string{"docker"}, "contactedAt": iso(s.at()), "jobExecutionStatus": state,
				"managers": map[string]any{"nodes": []any{map[string]any{
					"systemId": fmt.Sprint("s_", id), "status": map[bool]string{true: "OFFLINE", false: "ONLINE"}[id == 2], "jobExecutionStatus": state,
					"contactedAt": iso(s.at()), "version": "18.4.0", "platformName": "linux", "architectureName": "amd64",
				}}},
			}})
		}
		if strings.Contains(q.Query, "currentUser") {
			data["currentUser"] = map[string]any{"runners": connection(all, after)}
		} else if s.admin {
			data["runners"] = connection(all, after)
		}
	}
	answer(w, 200, map[string]any{"data": data})
}

func connection(all []row, after string) map[string]any {
	if id, err := strconv.ParseInt(after, 10, 64); err == nil {
		all = all[slices.IndexFunc(all, func(r row) bool { return r.id == id })+1:]
	}
	nodes := make([]any, 0, 100)
	for _, r := range all[:min(100, len(all))] {
		nodes = append(nodes, r.v)
	}
	info := map[string]any{"hasNextPage": len(all) > 100, "endCursor": nil}
	if len(nodes) > 0 {
		info["endCursor"] = fmt.Sprint(all[len(nodes)-1].id)
	}
	return map[string]any{"pageInfo": info, "nodes": nodes}
}

func (s *standin) node(j *job) map[string]any {
	m := map[string]any{
		"id": fmt.Sprint("gid://gitlab/Ci::Build/", j.id), "name": j.name, "status": strings.ToUpper(j.status), "kind": "BUILD", "tags": []string{"docker"},
		"createdAt": iso(j.created), "queuedAt": iso(j.queued), "startedAt": iso(j.started), "finishedAt": iso(j.finished), "queuedDuration": j.queuedFor(s.at()),
		"refName": "main", "webPath": fmt.Sprintf("/%s/-/jobs/%d", pathOf(j.project), j.id), "stage": map[string]any{"name": "test"},
		"pipeline": map[string]any{"id": "gid://gitlab/Ci::Pipeline/991"}, "project": map[string]any{"fullPath": pathOf(j.project)},
		"runner": nil, "runnerManager": nil,
	}
	if j.runner != 0 {
		m["runner"] = map[string]any{"id": fmt.Sprint("gid://gitlab/Ci::Runner/", j.runner), "description": fmt.Sprint("docker-", j.runner)}
		m["runnerManager"] = map[string]any{"systemId": j.manager}
	}
	return m
}
