package gitlabapi

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/cimeter/cimeter"
)

// MergeRequest is what notes need to know of one.
type MergeRequest struct {
	Number int64  // as the project counts; 0: there is none
	Target string // branch that it would be merged into
}

// maxRequestPages bounds the merge requests of one commit that are looked through: a
// GitLab before 18.2 lists merged and closed ones too.
const maxRequestPages = 5

// restMergeRequest is a merge request as REST tells it, as far as it is of use
// (doc/api/commits.md).
type restMergeRequest struct {
	IID    int64  `json:"iid"`
	State  string `json:"state"` // opened, closed, locked or merged
	SHA    string `json:"sha"`   // of its source branch, now
	Target string `json:"target_branch"`
}

// FindMergeRequest returns the open merge request of a project whose source branch is
// at a commit now, of several the newest; the zero MergeRequest where there is none.
// It asks with the token of notes. A merge request from a fork is one of the project
// that it would be merged into, where the commit of the fork is not looked for.
func (c *Client) FindMergeRequest(ctx context.Context, project, sha string) (MergeRequest, error) {
	ctx, _ = c.start(ctx, mayWrite)
	const what = "find merge request of a commit"
	if !hexDigits(sha) {
		return MergeRequest{}, fmt.Errorf("%s: want a SHA: %w", what, cimeter.ErrInvalid)
	}
	path := "projects/" + url.PathEscape(project) + "/repository/commits/" + sha + "/merge_requests"
	q := url.Values{"state": {"opened"}, "per_page": {"100"}} // state is ignored before 18.2
	var newest MergeRequest
	for range maxRequestPages {
		var list []restMergeRequest
		next, err := c.get(ctx, what, path, q, &list)
		if errors.Is(err, cimeter.ErrNotFound) {
			return MergeRequest{}, nil // a commit that was force-pushed away
		}
		if err != nil {
			return MergeRequest{}, err
		}
		for _, m := range list { // one that only has the commit in it is another's
			if m.State == "opened" && (m.SHA == sha || m.SHA == "") && m.IID > newest.Number {
				newest = MergeRequest{m.IID, m.Target}
			}
		}
		if q = next; q == nil {
			break
		}
	}
	return newest, nil
}

// MergeRequestTarget returns the branch that a merge request would be merged into.
func (c *Client) MergeRequestTarget(ctx context.Context, project string, number int64) (string, error) {
	ctx, _ = c.start(ctx, mayWrite)
	var m restMergeRequest
	what := fmt.Sprintf("read merge request %d", number)
	_, err := c.get(ctx, what, fmt.Sprintf("projects/%s/merge_requests/%d", url.PathEscape(project), number), nil, &m)
	return m.Target, err
}
