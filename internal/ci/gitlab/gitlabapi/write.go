package gitlabapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	gl "gitlab.com/gitlab-org/api/client-go/v2"

	"github.com/cimeter/cimeter"
)

const (
	// maxNotePages bounds the search for an own note: 500 notes, the newest first.
	maxNotePages = 5
	maxNoteBytes = 1000 * 1000 // what GitLab takes
	maxStatus    = 255         // characters of a description, likewise
)

// note is a note as REST tells it.
type note struct {
	ID     int64  `json:"id"`
	Body   string `json:"body"`
	System bool   `json:"system"`
	Author struct {
		ID int64 `json:"id"`
	} `json:"author"`
}

// PutNote makes body the one note of a merge request that holds marker and is of the
// token's own user, and returns its id: pass it the next time, 0 when it is not known.
// A note that says body already is left alone. The body must not come from a build's
// author: a line that starts with a slash is a command that runs with the token's
// rights. Such a body is refused with [cimeter.ErrInvalid].
//
// It makes one request when the id is known, and at most seven otherwise.
func (c *Client) PutNote(ctx context.Context, project string, mergeRequest int64, marker, body string, id int64) (int64, error) {
	what := fmt.Sprintf("put note of merge request %d", mergeRequest)
	if err := checkNote(marker, body); err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	ctx, x := c.start(ctx, mayWrite)
	if id != 0 {
		err := c.writeNote(ctx, what, http.MethodPut, project, mergeRequest, id, body, nil)
		if !errors.Is(err, cimeter.ErrNotFound) || x.status != http.StatusNotFound {
			return id, err
		}
	}
	old, err := c.ownNote(ctx, what, project, mergeRequest, marker)
	if err != nil {
		return 0, err
	}
	if old.ID != 0 && old.Body == strings.TrimRight(body, "\n") || old.Body == body && old.ID != 0 {
		return old.ID, nil
	}
	if old.ID != 0 {
		return old.ID, c.writeNote(ctx, what, http.MethodPut, project, mergeRequest, old.ID, body, nil)
	}
	var made note
	err = c.writeNote(ctx, what, http.MethodPost, project, mergeRequest, 0, body, &made)
	return made.ID, err
}

// checkNote refuses what would be a command, whatever made it.
func checkNote(marker, body string) error {
	if marker == "" || !strings.Contains(body, marker) || len(body) > maxNoteBytes {
		return fmt.Errorf("body: want at most %d bytes with the marker: %w", maxNoteBytes, cimeter.ErrInvalid)
	}
	for line := range strings.Lines(body) {
		if strings.HasPrefix(strings.TrimLeft(line, " \t"), "/") {
			return fmt.Errorf("body: want no line that starts with a slash: %w", cimeter.ErrInvalid)
		}
	}
	return nil
}

// ownNote finds the note with the marker. Who else writes the marker into a note is
// not its author.
func (c *Client) ownNote(ctx context.Context, what, project string, mergeRequest int64, marker string) (note, error) {
	var user struct {
		ID int64 `json:"id"`
	}
	if _, err := c.get(ctx, what, "user", nil, &user); err != nil {
		return note{}, err
	}
	q := url.Values{"order_by": {"created_at"}, "sort": {"desc"}, "per_page": {strconv.Itoa(pageSize)}}
	for range maxNotePages {
		var list []note
		next, err := c.get(ctx, what, notesPath(project, mergeRequest, 0), q, &list)
		if err != nil {
			return note{}, err
		}
		for _, n := range list {
			if user.ID != 0 && n.Author.ID == user.ID && !n.System && n.ID != 0 && strings.Contains(n.Body, marker) {
				return n, nil
			}
		}
		if q = next; q == nil {
			break
		}
	}
	return note{}, nil
}

func notesPath(project string, mergeRequest, id int64) string {
	p := fmt.Sprintf("projects/%s/merge_requests/%d/notes", url.PathEscape(project), mergeRequest)
	if id != 0 {
		p += "/" + strconv.FormatInt(id, 10)
	}
	return p
}

func (c *Client) writeNote(ctx context.Context, what, method, project string, mergeRequest, id int64, body string, v any) error {
	return c.write(ctx, what, method, notesPath(project, mergeRequest, id), map[string]string{"body": body}, v)
}

// write sends JSON to one path and decodes the answer into v, nil to leave it.
func (c *Client) write(ctx context.Context, what, method, path string, body, v any) error {
	req, err := c.gl.NewRequest(method, path, body, []gl.RequestOptionFunc{gl.WithContext(ctx)})
	if err != nil {
		return c.failed(ctx, what, err)
	}
	if v == nil {
		v = &struct{}{}
	}
	if _, err := c.gl.Do(req, v); err != nil {
		return c.failed(ctx, what, err)
	}
	return nil
}

// Status is a commit status: a line at a commit, with a link.
type Status struct {
	Name        string // what tells it from others, such as cimeter
	Description string
	URL         string // ours; "" is none
	Ref         string // branch or tag; "" is the default branch
	Pipeline    int64  // of which it is one of the jobs; 0 makes GitLab choose or make one
}

// PutStatus sets the commit status to success, whatever a build cost. The error wraps
// [cimeter.ErrConflict] when the commit has it already: GitLab changes no status to
// what it is, so a description is written once.
func (c *Client) PutStatus(ctx context.Context, project, sha string, s Status) error {
	ctx, x := c.start(ctx, mayWrite)
	what := "set status of a commit"
	if !hexDigits(sha) || s.Name == "" {
		return fmt.Errorf("%s: want a SHA and a name: %w", what, cimeter.ErrInvalid)
	}
	body := map[string]any{"state": "success", "name": s.Name, "description": firstRunes(s.Description, maxStatus)}
	if s.URL != "" {
		body["target_url"] = s.URL
	}
	if s.Ref != "" {
		body["ref"] = s.Ref
	}
	if s.Pipeline > 0 {
		body["pipeline_id"] = s.Pipeline
	}
	err := c.write(ctx, what, http.MethodPost, "projects/"+url.PathEscape(project)+"/statuses/"+sha, body, nil)
	if err != nil && x.status == http.StatusBadRequest {
		return fmt.Errorf("%w: %w", err, cimeter.ErrConflict)
	}
	return err
}

func hexDigits(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}
