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
	"errors"
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
	Name        string // tells it from the other statuses of the commit: cimeter/JOB
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

// PutStatus sets the status of a commit. cimeter.ErrInvalid: the build does not
// tell its repository or commit.
func (f Forge) PutStatus(ctx context.Context, project, commit string, s Status) error {
	repo, err := f.repo(project)
	if err != nil {
		return err
	}
	if !sha.MatchString(commit) {
		return fmt.Errorf("commit %.80q: want 40 or 64 hex digits: %w", commit, cimeter.ErrInvalid)
	}
	body := map[string]string{
		"state": "success", "context": display.Fit(s.Name, maxContext, "…"), "description": display.Fit(s.Description, maxDescription, "…"),
	}
	if s.URL != "" {
		body["target_url"] = s.URL
	}
	_, err = ask.NewRound(f.Ask).Send(ctx, ask.Request{Method: "POST", Path: repo + "/statuses/" + commit, JSON: body})
	return err
}

// comment is one as the API tells it.
type comment struct {
	ID   int64  `json:"id"`
	Body string `json:"body"`
	User struct {
		ID int64 `json:"id"`
	} `json:"user"`
}

// PutNote makes body the one comment of a pull request that holds marker and is
// of the token's own user, and returns its id: pass it the next time, 0 when it
// is not known. One that says body already is left alone; to edit one notifies
// nobody; another one's with the marker is left alone. cimeter.ErrInvalid: a body
// without the marker, or with a line that starts with a slash, which is a command
// to many a bot.
//
// It makes one request when the id is known.
func (f Forge) PutNote(ctx context.Context, project string, number int64, marker, body string, id int64) (int64, error) {
	repo, err := f.repo(project)
	if err != nil {
		return 0, err
	}
	if number <= 0 {
		return 0, fmt.Errorf("pull request %d: want a number: %w", number, cimeter.ErrInvalid)
	}
	if err := checkNote(marker, body); err != nil {
		return 0, err
	}
	r := ask.NewRound(f.Ask)
	text := map[string]string{"body": body}
	edit := func(id int64) error {
		_, err := r.Send(ctx, ask.Request{Method: "PATCH", Path: repo + "/issues/comments/" + strconv.FormatInt(id, 10), JSON: text})
		return err
	}
	if id > 0 {
		if err := edit(id); !errors.Is(err, cimeter.ErrNotFound) { // somebody may have deleted it
			return id, err
		}
	}
	issue := repo + "/issues/" + strconv.FormatInt(number, 10) + "/comments"
	old, err := f.own(ctx, r, issue, marker)
	switch {
	case err != nil:
		return 0, err
	case old.ID != 0 && strings.TrimSpace(strings.ReplaceAll(old.Body, "\r", "")) == strings.TrimSpace(body):
		return old.ID, nil
	case old.ID != 0:
		return old.ID, edit(old.ID)
	}
	var made comment
	_, err = r.JSON(ctx, ask.Request{Method: "POST", Path: issue, JSON: text}, &made)
	return made.ID, err
}

// checkNote refuses what would be a command, whatever made it.
func checkNote(marker, body string) error {
	if marker == "" || !strings.Contains(body, marker) || len(body) > maxBody {
		return fmt.Errorf("comment of %d bytes: want at most %d with the marker: %w", len(body), maxBody, cimeter.ErrInvalid)
	}
	for line := range strings.Lines(body) {
		if strings.HasPrefix(strings.TrimLeft(line, " \t"), "/") {
			return fmt.Errorf("comment: want no line that starts with a slash: %w", cimeter.ErrInvalid)
		}
	}
	return nil
}

// own finds the token's own comment with the marker; its id is 0 where there is
// none.
func (f Forge) own(ctx context.Context, r *ask.Round, issue, marker string) (comment, error) {
	var me struct {
		ID int64 `json:"id"`
	}
	if _, err := r.JSON(ctx, ask.Request{Path: f.Base + "/user"}, &me); err != nil {
		return comment{}, err
	}
	seen := map[int64]bool{}
	for page := 1; page <= maxPages; page++ {
		var cs []comment
		n := strconv.Itoa(commentPage)
		q := url.Values{"page": {strconv.Itoa(page)}, "per_page": {n}, "limit": {n}}
		if _, err := r.JSON(ctx, ask.Request{Path: issue, Query: q, Fresh: true}, &cs); err != nil {
			return comment{}, err
		}
		fresh := false // Gitea knows no pages here and gives all each time
		for _, c := range cs {
			if me.ID != 0 && c.User.ID == me.ID && c.ID != 0 && strings.Contains(c.Body, marker) {
				return c, nil
			}
			fresh = fresh || !seen[c.ID]
			seen[c.ID] = true
		}
		if len(cs) < commentPage || !fresh {
			break
		}
	}
	return comment{}, nil
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
func PullRequest(b *cimeter.Build) (number int64, ok bool) {
	m := pull.FindStringSubmatch(b.Ref)
	if m == nil || b.Event != "" && !strings.HasPrefix(b.Event, "pull_request") {
		return 0, false
	}
	number, err := strconv.ParseInt(m[1], 10, 64)
	return number, err == nil && number > 0
}
