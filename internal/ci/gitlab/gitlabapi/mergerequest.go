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

// restMergeRequest is a merge request as REST tells it, as far as it is of use.
type restMergeRequest struct {
	IID    int64  `json:"iid"`
	State  string `json:"state"`
	SHA    string `json:"sha"` // of its source branch, now
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
	var list []restMergeRequest
	path := "projects/" + url.PathEscape(project) + "/repository/commits/" + sha + "/merge_requests"
	_, err := c.get(ctx, what, path, url.Values{"state": {"opened"}}, &list)
	if errors.Is(err, cimeter.ErrNotFound) {
		return MergeRequest{}, nil // a commit that was force-pushed away
	}
	var newest MergeRequest
	for _, m := range list { // one that only has the commit in it is another's
		if m.State == "opened" && (m.SHA == sha || m.SHA == "") && m.IID > newest.Number {
			newest = MergeRequest{m.IID, m.Target}
		}
	}
	return newest, err
}

// MergeRequestTarget returns the branch that a merge request would be merged into.
func (c *Client) MergeRequestTarget(ctx context.Context, project string, number int64) (string, error) {
	ctx, _ = c.start(ctx, mayWrite)
	var m restMergeRequest
	what := fmt.Sprintf("read merge request %d", number)
	_, err := c.get(ctx, what, fmt.Sprintf("projects/%s/merge_requests/%d", url.PathEscape(project), number), nil, &m)
	return m.Target, err
}
