package forge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/ci/askhttp"
	"github.com/cimeter/cimeter/internal/ci/forge"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/testtools"
)

const marker = "<!-- cimeter: the note -->"

// A real Gitea shows the status, and one comment that is edited in place.
func TestRealGitea(t *testing.T) {
	g := testtools.StartGitea(t)
	g.Ask(t, http.MethodPost, "/user/repos", map[string]any{"name": "a.b", "auto_init": true, "default_branch": "main"}, nil)
	repo := "/repos/" + g.User + "/a.b"
	s, err := askhttp.New(askhttp.Options{URL: g.URL, Token: func() (string, error) { return g.Token, nil }})
	if err != nil {
		t.Fatal(err)
	}
	f := forge.Forge{Ask: s, Base: "/api/v1"}
	var branch struct{ Commit struct{ ID string } }
	g.Ask(t, http.MethodGet, repo+"/branches/main", nil, &branch)
	project := g.User + "/a.b"
	for _, text := range []string{"1 s CPU", "392 s CPU (+12 %), 3.10 of 4.00 GiB"} {
		if err := f.PutStatus(t.Context(), project, branch.Commit.ID, forge.Status{Name: "cimeter/build", Description: text, URL: "https://cimeter.example.com/builds/1"}); err != nil {
			t.Fatal(err)
		}
	}
	var all struct {
		State    string
		Statuses []struct {
			Context, Description string
			TargetURL            string `json:"target_url"`
		}
	}
	g.Ask(t, http.MethodGet, repo+"/commits/"+branch.Commit.ID+"/status", nil, &all)
	if len(all.Statuses) != 1 || all.State != "success" || all.Statuses[0].Context != "cimeter/build" || all.Statuses[0].Description != "392 s CPU (+12 %), 3.10 of 4.00 GiB" || all.Statuses[0].TargetURL != "https://cimeter.example.com/builds/1" {
		t.Errorf("Gitea shows %+v", all)
	}

	g.Ask(t, http.MethodPost, repo+"/issues", map[string]any{"title": "change"}, nil)
	bodies := func() (all []string) {
		var cs []struct{ Body string }
		g.Ask(t, http.MethodGet, repo+"/issues/1/comments", nil, &cs)
		for _, c := range cs {
			all = append(all, c.Body)
		}
		return all
	}
	for i := range 60 { // more than a page
		g.Ask(t, http.MethodPost, repo+"/issues/1/comments", map[string]any{"body": fmt.Sprint("talk ", i)}, nil)
	}
	known := int64(0)
	for i, text := range []string{"first\n", "first\n", "second\n| a |\n", "third"} {
		text += "\n" + marker
		if i < 3 { // it is looked for
			known = 0
		}
		id, err := f.PutNote(t.Context(), project, 1, marker, text, known)
		if err != nil || id == 0 || known != 0 && id != known {
			t.Fatalf("%d, %v", id, err)
		}
		known = id
		got := bodies()
		if n := len(got); n != 61 || strings.TrimSpace(got[60]) != strings.TrimSpace(text) {
			t.Errorf("%d comments, the last is %q: want 61 and %q", n, got[n-1], text)
		}
	}
	g.Ask(t, http.MethodDelete, repo+"/issues/comments/"+fmt.Sprint(known), nil, nil)
	if id, err := f.PutNote(t.Context(), project, 1, marker, marker, known); err != nil || id == known || len(bodies()) != 61 {
		t.Errorf("after somebody deleted it: %d, %v, %d comments", id, err, len(bodies()))
	}
	if err := f.PutStatus(t.Context(), g.User+"/none", branch.Commit.ID, forge.Status{Name: "c"}); !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("no such repository: got %v, want not found", err)
	}
}

// doer answers as GitHub does, with pages of comments, and notes what it is asked.
type doer struct {
	comments []map[string]any
	asked    []string
	status   int
}

func (d *doer) Do(_ context.Context, q ask.Request) (ask.Answer, error) {
	body, _ := json.Marshal(q.JSON)
	d.asked = append(d.asked, strings.TrimSpace(q.Method+" "+q.Path+"?"+q.Query.Encode()+" "+string(body)))
	if d.status != 0 {
		return ask.Answer{Status: d.status}, nil
	}
	answer := any(map[string]any{"id": 7})
	if q.Method == "" && strings.HasSuffix(q.Path, "/comments") {
		page := 1
		fmt.Sscan(q.Query.Get("page"), &page)
		from := min((page-1)*50, len(d.comments))
		answer = append([]map[string]any{}, d.comments[from:min(from+50, len(d.comments))]...)
	}
	b, err := json.Marshal(answer)
	return ask.Answer{Status: 200, Body: b}, err
}

func TestPutNote(t *testing.T) {
	comment := func(id, user int, body string) map[string]any {
		return map[string]any{"id": id, "body": body, "user": map[string]any{"id": user}}
	}
	many := make([]map[string]any, 120)
	for i := range many {
		many[i] = comment(1000+i, 8, "talk")
	}
	const body = `{"body":"new\n\u003c!-- cimeter: the note --\u003e"}`
	for name, c := range map[string]struct {
		comments []map[string]any
		id       int64
		want     string // the last that is asked
	}{
		"none":            {nil, 0, `POST /repos/o/r/issues/3/comments? ` + body},
		"ours":            {[]map[string]any{comment(5, 7, "old\r\n"+marker)}, 0, `PATCH /repos/o/r/issues/comments/5? ` + body},
		"ours, the same":  {[]map[string]any{comment(5, 7, "new\r\n"+marker+"\n")}, 0, `/repos/o/r/issues/3/comments?limit=50&page=1&per_page=50 null`},
		"another one's":   {[]map[string]any{comment(5, 8, "new\n"+marker)}, 0, `POST /repos/o/r/issues/3/comments? ` + body},
		"ours, no note":   {[]map[string]any{comment(5, 7, "talk")}, 0, `POST /repos/o/r/issues/3/comments? ` + body},
		"on a third page": {append(slices.Clone(many), comment(5, 7, marker)), 0, `PATCH /repos/o/r/issues/comments/5? ` + body},
		"known":           {nil, 9, `PATCH /repos/o/r/issues/comments/9? ` + body},
	} {
		d := &doer{comments: c.comments}
		id, err := (forge.Forge{Ask: d}).PutNote(t.Context(), "o/r", 3, marker, "new\n"+marker, c.id)
		if err != nil || id == 0 || d.asked[len(d.asked)-1] != c.want || c.id != 0 && len(d.asked) != 1 {
			t.Errorf("%s: %d, %v, asked\n%s\nwant\n%s", name, id, err, strings.Join(d.asked, "\n"), c.want)
		}
	}
	// A page that is given again and again ends it.
	d := &doer{comments: many[:50]}
	again := forge.Forge{Ask: endless{d}}
	if _, err := again.PutNote(t.Context(), "o/r", 3, "m", "new m", 0); err != nil || len(d.asked) > 5 {
		t.Errorf("%v, %d questions", err, len(d.asked))
	}
}

// endless gives the first page for every page.
type endless struct{ *doer }

func (e endless) Do(ctx context.Context, q ask.Request) (ask.Answer, error) {
	if q.Query != nil {
		q.Query.Set("page", "1")
	}
	return e.doer.Do(ctx, q)
}

func TestForge_Invalid(t *testing.T) {
	d := &doer{}
	f := forge.Forge{Ask: d, Base: "/api/v1"}
	commit := strings.Repeat("a", 40)
	for _, project := range []string{"", "o", "o/r/x", "o/..", "./r", "/r", "o/"} {
		if err := f.PutStatus(t.Context(), project, commit, forge.Status{}); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %v", project, err)
		}
		if _, err := f.PutNote(t.Context(), project, 1, "m", "m", 0); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %v", project, err)
		}
	}
	for _, bad := range []string{"", "main", commit[1:], commit + "/../x", strings.ToUpper(commit)} {
		if err := f.PutStatus(t.Context(), "o/r", bad, forge.Status{}); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("commit %q: %v", bad, err)
		}
	}
	for _, bad := range []string{strings.Repeat("m", 64<<10+1), "", "m\n/close", "m\n  /merge\n"} {
		if _, err := f.PutNote(t.Context(), "o/r", 1, "marker", strings.Replace(bad, "m", "marker", 1), 0); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
	if _, err := f.PutNote(t.Context(), "o/r", 0, "m", "m", 0); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("no number: %v", err)
	}
	if len(d.asked) > 0 {
		t.Errorf("asked %q", d.asked)
	}
	if err := f.PutStatus(t.Context(), "o r/?x", commit, forge.Status{Name: strings.Repeat("c", 500), Description: "a\nb\x1b[2J" + strings.Repeat("d", 500)}); err != nil {
		t.Error(err)
	}
	got := d.asked[0]
	if !strings.HasPrefix(got, "POST /api/v1/repos/o%20r/%3Fx/statuses/"+commit+"? ") || strings.Contains(got, `\n`) || strings.Contains(got, "u001b") || len(got) > 500 || strings.Contains(got, "target_url") {
		t.Errorf("asked %s", got)
	}
	d.status = 429
	source := (*queue.SourceError)(nil)
	if err := f.PutStatus(t.Context(), "o/r", commit, forge.Status{}); !errors.As(err, &source) || source.Status != 429 {
		t.Errorf("refused: %v", err)
	}
}

func TestPullRequest(t *testing.T) {
	for _, c := range []struct {
		ref, event string
		want       int64
	}{
		{"12/merge", "pull_request", 12}, {"refs/pull/12/head", "pull_request_sync", 12}, {"12/head", "", 12}, {"refs/pull/12/merge", "pull_request_target", 12},
		{"main", "pull_request", 0}, {"12/merge", "push", 0}, {"x/12/merge", "", 0}, {"0/merge", "", 0}, {"12/merge/x", "", 0}, {"99999999999999999999/merge", "", 0}, {"", "", 0},
	} {
		n, ok := forge.PullRequest(&cimeter.Build{Ref: c.ref, Event: c.event})
		if n != c.want || ok != (c.want > 0) {
			t.Errorf("%s of %s: got %d, %t, want %d", c.ref, c.event, n, ok, c.want)
		}
	}
}
