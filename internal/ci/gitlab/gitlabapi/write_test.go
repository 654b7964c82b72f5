package gitlabapi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/gitlab/gitlabapi"
)

const marker = "<!-- m -->"

func TestPutNote(t *testing.T) {
	s := newStandin(t)
	s.projects = 1
	for id := range int64(150) { // of others, with the marker
		s.notes[id+1] = map[string]any{"id": id + 1, "body": "x " + marker, "author": map[string]any{"id": 8}, "system": false}
	}
	s.notes[99]["author"], s.notes[99]["system"] = map[string]any{"id": 7}, true
	c := client(t, s)
	put := func(body string, known int64) int64 {
		t.Helper()
		id, err := c.PutNote(context.Background(), pathOf(1), 5, marker, body, known)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	id := put("one\n"+marker, 0)
	if id < 151 || len(s.notes) != 151 {
		t.Fatalf("note %d of %d: want a new one", id, len(s.notes))
	}
	if again := put("one\n"+marker, 0); again != id || len(s.writes) != 1 {
		t.Errorf("note %d, %d writes: want what is there", again, len(s.writes))
	}
	if again := put("two\n"+marker, 0); again != id || s.notes[id]["body"] != "two\n"+marker || len(s.notes) != 151 {
		t.Errorf("note %d: %v: want it edited", again, s.notes[id])
	}
	before := s.made()
	if again := put("three\n"+marker, id); again != id || s.made()-before != 1 || s.notes[id]["body"] != "three\n"+marker {
		t.Errorf("%d requests: want 1 with a known id", s.made()-before)
	}
	s.with(func() { delete(s.notes, id) })
	if again := put("four\n"+marker, id); s.notes[again]["body"] != "four\n"+marker {
		t.Errorf("a deleted note is not made anew: %d", again)
	}
	writes := len(s.writes)
	for _, body := range []string{"/merge\n" + marker, marker + "\n  /close", marker + "\n\t/approve\n", "no marker", marker + strings.Repeat("x", 1<<20)} {
		if _, err := c.PutNote(context.Background(), pathOf(1), 5, marker, body, 0); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%.20q: %v: want it refused", body, err)
		}
	}
	none := client(t, s, func(o *gitlabapi.Options) { o.WriteToken = nil })
	if _, err := none.PutNote(context.Background(), pathOf(1), 5, marker, marker, 0); !errors.Is(err, cimeter.ErrUnauthorized) {
		t.Errorf("without a token: %v", err)
	}
	if len(s.writes) != writes {
		t.Error("something was written")
	}
}

func TestPutStatus(t *testing.T) {
	s := newStandin(t)
	s.projects = 1
	c := client(t, s)
	sha := strings.Repeat("7e", 20)
	err := c.PutStatus(context.Background(), pathOf(1), sha, gitlabapi.Status{Name: "cimeter", Description: "392 s CPU" + strings.Repeat("é", 300), URL: "https://x/y", Pipeline: 9})
	want := fmt.Sprintf(`{"description":"392 s CPU%s","name":"cimeter","pipeline_id":9,"state":"success","target_url":"https://x/y"}`, strings.Repeat("é", 246))
	if err != nil || len(s.writes) != 1 || s.writes[0] != want || s.log[0] != "POST /api/v4/projects/group%2Fapp-1/statuses/"+sha {
		t.Errorf("%v: %q %q", err, s.log, s.writes)
	}
	for _, sha := range []string{"", "main", sha + "/../../x", strings.ToUpper(sha)} {
		if err := c.PutStatus(context.Background(), pathOf(1), sha, gitlabapi.Status{Name: "cimeter"}); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %v", sha, err)
		}
	}
}

// The merge request of a commit is the newest open one whose branch is at it.
func TestFindMergeRequest(t *testing.T) {
	s := newStandin(t)
	s.projects = 1
	sha, older := strings.Repeat("7e", 20), strings.Repeat("ab", 20)
	add := func(iid int64, state, head, target string) {
		s.requests = append(s.requests, mergeRequest(iid, state, head, target, sha, older))
	}
	add(3, "opened", sha, "main")
	add(5, "opened", sha, "stable")
	add(6, "merged", sha, "main")
	add(7, "opened", strings.Repeat("cd", 20), "main") // stacked on it
	c := client(t, s)
	want := gitlabapi.MergeRequest{Number: 5, Target: "stable"}
	before := s.made()
	if got, err := c.FindMergeRequest(context.Background(), pathOf(1), sha); err != nil || got != want || s.made() != before+1 {
		t.Errorf("%+v, %v, %d requests: want %+v by one", got, err, s.made()-before, want)
	}
	// One before 18.2 lists all states, over several pages.
	all := s.requests
	s.noState, s.requests = true, nil
	for iid := range int64(250) {
		add(1000+iid, []string{"merged", "closed", "locked"}[iid%3], sha, "main")
	}
	s.requests = append(s.requests, all...)
	before = s.made()
	if got, err := c.FindMergeRequest(context.Background(), pathOf(1), sha); err != nil || got != want || s.made() != before+3 {
		t.Errorf("before 18.2: %+v, %v, %d requests: want %+v by three", got, err, s.made()-before, want)
	}
	s.noState, s.requests = false, all
	for _, none := range []string{older, strings.Repeat("00", 20)} {
		if got, err := c.FindMergeRequest(context.Background(), pathOf(1), none); err != nil || got.Number != 0 {
			t.Errorf("%s: %+v, %v: want none", none, got, err)
		}
	}
	if target, err := c.MergeRequestTarget(context.Background(), pathOf(1), 3); err != nil || target != "main" {
		t.Errorf("%q, %v", target, err)
	}
	if _, err := c.MergeRequestTarget(context.Background(), pathOf(1), 4); !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}
	if _, err := c.FindMergeRequest(context.Background(), pathOf(1), "../../x"); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("%v", err)
	}
	none := client(t, s, func(o *gitlabapi.Options) { o.WriteToken = nil })
	if _, err := none.FindMergeRequest(context.Background(), pathOf(1), sha); !errors.Is(err, cimeter.ErrUnauthorized) {
		t.Errorf("without a token: %v", err)
	}
}
