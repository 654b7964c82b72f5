package gitlabapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
)

// write serves notes, statuses and the token's user.
func (s *standin) write(w http.ResponseWriter, r *http.Request, part []string) {
	if part[0] == "user" {
		answer(w, 200, map[string]any{"id": 7, "username": "cimeter-bot"})
		return
	}
	var body map[string]any
	if r.Method != http.MethodGet {
		b, _ := io.ReadAll(r.Body)
		if json.Unmarshal(b, &body) != nil {
			answer(w, 400, map[string]string{"error": "body is missing"})
			return
		}
		s.writes = append(s.writes, string(b))
	}
	switch {
	case part[2] == "statuses":
		if body["state"] == nil {
			answer(w, 400, map[string]string{"error": "state is missing"})
			return
		}
		answer(w, 201, map[string]any{"id": 1, "status": body["state"], "name": "default"})
	case r.Method == http.MethodPost:
		id := int64(len(s.notes) + 100)
		s.notes[id] = map[string]any{"id": id, "body": body["body"], "author": map[string]any{"id": 7}, "system": false}
		answer(w, 201, s.notes[id])
	case r.Method == http.MethodPut:
		id, _ := strconv.ParseInt(part[5], 10, 64)
		if s.notes[id] == nil {
			answer(w, 404, map[string]string{"message": "404 Not found"})
			return
		}
		s.notes[id]["body"] = body["body"]
		answer(w, 200, s.notes[id])
	default:
		var all []row
		for id := int64(1); id < 1000; id++ {
			if n := s.notes[id]; n != nil {
				all = append(all, row{id, n})
			}
		}
		s.list(w, r, all)
	}
}

// mergeRequest is one as doc/api/commits.md shows it, with what is not told by the test
// as in its example.
func mergeRequest(iid int64, state, sha, target string, commits ...string) map[string]any {
	return map[string]any{
		"id": 44 + iid, "iid": iid, "project_id": 35, "title": "Add new file", "description": "", "state": state, "created_at": "2018-03-26T17:26:30.916Z", "updated_at": "2018-03-26T17:26:30.916Z",
		"target_branch": target, "source_branch": "test-branch", "upvotes": 0, "downvotes": 0, "assignee": nil, "source_project_id": 35, "target_project_id": 35,
		"author": map[string]any{"web_url": "https://gitlab.example.com/janedoe", "name": "Jane Doe", "avatar_url": nil, "username": "janedoe", "state": "active", "id": 28},
		"labels": []string{}, "draft": false, "milestone": nil, "merge_when_pipeline_succeeds": false, "merge_status": "can_be_merged", "sha": sha, "merge_commit_sha": nil, "squash_commit_sha": nil,
		"user_notes_count": 0, "discussion_locked": nil, "should_remove_source_branch": nil, "force_remove_source_branch": false, "web_url": "https://gitlab.example.com/root/test-project/merge_requests/1",
		"time_stats": map[string]any{"time_estimate": 0, "total_time_spent": 0, "human_time_estimate": nil, "human_total_time_spent": nil},
		"commits":    commits, // for the stand-in alone
	}
}

// mergeRequests serves one by its number, and those that have a commit
// (lib/api/commits.rb): of any state where none is asked for, or where it is older than 18.2.
func (s *standin) mergeRequests(w http.ResponseWriter, r *http.Request, part []string) {
	if s.projectID(part[1]) == 0 {
		answer(w, 404, map[string]string{"message": "404 Project Not Found"})
		return
	}
	var all []row
	for _, m := range s.requests {
		id := m["iid"].(int64)
		if len(part) == 4 && strconv.FormatInt(id, 10) == part[3] {
			answer(w, 200, m)
			return
		}
		if state := r.URL.Query().Get("state"); slices.Contains(m["commits"].([]string), part[len(part)-2]) && (state == "" || s.noState || state == m["state"]) {
			all = append(all, row{id, m})
		}
	}
	if len(part) == 4 {
		answer(w, 404, map[string]string{"message": "404 Not found"})
		return
	}
	s.list(w, r, all)
}

// cancel is the mutation jobCancel (app/graphql/mutations/ci/job/cancel.rb).
func (s *standin) cancel(w http.ResponseWriter, number string) {
	id, _ := strconv.ParseInt(number, 10, 64)
	j := s.jobs[id]
	if j == nil || j.deleted {
		answer(w, 200, map[string]any{"data": map[string]any{"jobCancel": nil}, "errors": []any{map[string]any{
			"message": "The resource that you are attempting to access does not exist or you don't have permission to perform this action"}}})
		return
	}
	errs := []string{}
	if j.finished.IsZero() {
		j.status, j.finished = "canceled", s.at()
	} else {
		errs = append(errs, "Job is not cancelable")
	}
	answer(w, 200, map[string]any{"data": map[string]any{"jobCancel": map[string]any{"errors": errs}}})
}

// made is how many requests there were.
func (s *standin) made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.log)
}
