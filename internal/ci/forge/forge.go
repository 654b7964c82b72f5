// Package forge writes what a build cost where GitHub, Gitea and Forgejo show
// it: the status of a commit, and one comment of a pull request that is kept up
// to date in place. Their APIs are the same in this.
//
// It asks nobody: an [ask.Doer] does. One try each; every error is a
// [queue.SourceError]. It calls only paths below the server's configured
// address, never one that a build or an answer names. Start with [Forge].
package forge

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/display"
)

// Forge is one server.
type Forge struct {
	Ask  ask.Doer
	Base string // of its API below what Ask asks: /api/v1 of Gitea and Forgejo, "" of GitHub
}

// Status is what stands beside a commit. Its state is always success: whether
// the job failed is told by the CI system itself, and what a build cost keeps
// nobody from merging.
type Status struct {
	Context     string // tells it from the other statuses of the commit: cimeter/JOB
	Description string // one line
	URL         string // "" is none
}

// The bounds of what is written and read.
const (
	maxDescription = 140      // columns: what GitHub takes
	maxContext     = 100      // columns
	maxBody        = 64 << 10 // bytes; GitHub takes 65,536 characters
	commentPage    = 50       // comments asked for at once: what Gitea gives at most as it comes
	maxPages       = 20       // of comments looked through
)

var sha = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// Status sets the status of a commit. cimeter.ErrInvalid: the build does not
// tell its repository or commit.
func (f Forge) Status(ctx context.Context, project, commit string, s Status) error {
	repo, err := f.repo(project)
	if err != nil {
		return err
	}
	if !sha.MatchString(commit) {
		return fmt.Errorf("commit %.80q: want 40 or 64 hex digits: %w", commit, cimeter.ErrInvalid)
	}
	body := map[string]string{
		"state": "success", "context": display.Fit(s.Context, maxContext, "…"), "description": display.Fit(s.Description, maxDescription, "…"),
	}
	if s.URL != "" {
		body["target_url"] = s.URL
	}
	_, err = ask.NewRound(f.Ask).Send(ctx, ask.Request{Method: "POST", Path: repo + "/statuses/" + commit, JSON: body})
	return err
}

// Comment writes text as the one comment of a pull request that has the marker
// and is ours: it is edited when it is there and says something else, which
// notifies nobody. Another one's comment with the marker is left alone.
func (f Forge) Comment(ctx context.Context, project string, number int, marker, text string) error {
	repo, err := f.repo(project)
	if err != nil {
		return err
	}
	if number <= 0 {
		return fmt.Errorf("pull request %d: want a number: %w", number, cimeter.ErrInvalid)
	}
	head := "<!-- " + marker + " -->\n"
	body := head + text
	if len(body) > maxBody || strings.Contains(marker, "--") {
		return fmt.Errorf("comment of %d bytes: want at most %d: %w", len(body), maxBody, cimeter.ErrInvalid)
	}
	r := ask.NewRound(f.Ask)
	var me struct {
		ID int64 `json:"id"`
	}
	if _, err := r.JSON(ctx, ask.Request{Path: f.Base + "/user"}, &me); err != nil {
		return err
	}
	issue := repo + "/issues/" + strconv.Itoa(number) + "/comments"
	type comment struct {
		ID   int64  `json:"id"`
		Body string `json:"body"`
		User struct {
			ID int64 `json:"id"`
		} `json:"user"`
	}
	seen := map[int64]bool{}
	for page := 1; page <= maxPages; page++ {
		var cs []comment
		q := url.Values{"page": {strconv.Itoa(page)}, "per_page": {strconv.Itoa(commentPage)}, "limit": {strconv.Itoa(commentPage)}}
		if _, err := r.JSON(ctx, ask.Request{Path: issue, Query: q, Fresh: true}, &cs); err != nil {
			return err
		}
		fresh := false // Gitea knows no pages here and gives all each time
		for _, c := range cs {
			fresh = fresh || !seen[c.ID]
			seen[c.ID] = true
			if me.ID == 0 || c.User.ID != me.ID || !strings.HasPrefix(c.Body, strings.TrimSpace(head)) {
				continue
			}
			if strings.TrimSpace(strings.ReplaceAll(c.Body, "\r", "")) == strings.TrimSpace(body) {
				return nil
			}
			_, err := r.Send(ctx, ask.Request{Method: "PATCH", Path: repo + "/issues/comments/" + strconv.FormatInt(c.ID, 10), JSON: map[string]string{"body": body}})
			return err
		}
		if len(cs) < commentPage || !fresh {
			break
		}
	}
	_, err = r.Send(ctx, ask.Request{Method: "POST", Path: issue, JSON: map[string]string{"body": body}})
	return err
}

// repo is where the API has a repository.
func (f Forge) repo(project string) (string, error) {
	parts := strings.Split(project, "/")
	if len(parts) != 2 {
		return "", fmt.Errorf("project %.100q: want OWNER/NAME: %w", project, cimeter.ErrInvalid)
	}
	for _, p := range parts {
		if p == "" || p == "." || p == ".." {
			return "", fmt.Errorf("project %.100q: want OWNER/NAME: %w", project, cimeter.ErrInvalid)
		}
	}
	return f.Base + "/repos" + ask.Path(parts...), nil
}

// pull is the name of the ref that a pull request's build has.
var pull = regexp.MustCompile(`^(?:refs/pull/)?([0-9]{1,9})/(?:merge|head)$`)

// PullRequest is the number of the pull request that a build is of; false: it
// is of none.
func PullRequest(b *cimeter.Build) (number int, ok bool) {
	m := pull.FindStringSubmatch(b.Ref)
	if m == nil || b.Event != "" && !strings.HasPrefix(b.Event, "pull_request") {
		return 0, false
	}
	number, err := strconv.Atoi(m[1])
	return number, err == nil && number > 0
}
