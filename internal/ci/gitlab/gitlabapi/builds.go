package gitlabapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	gl "gitlab.com/gitlab-org/api/client-go/v2"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
	"github.com/cimeter/cimeter/internal/section"
)

// history is where a reader of past builds is: its text is the cursor of Builds.
type history struct {
	Server bool     `json:"s,omitempty"` // all jobs of the server, by GraphQL
	After  string   `json:"a,omitempty"` // the last page's end
	Last   int64    `json:"l,omitempty"` // the last project that was listed
	Listed bool     `json:"e,omitempty"` // there are no more
	Left   []pathID `json:"p,omitempty"` // projects that are listed and not done
	Page   string   `json:"q,omitempty"` // query of the next page of the first of them
}

type pathID struct {
	ID   string `json:"i"`
	Path string `json:"p"`
}

// Builds returns a page of the builds that were created since then and are over,
// newest first in the server or in each project, and the cursor of the next page: ""
// behind the last. A page is one request or two; whoever asks paces them. A cursor is
// good for as long as the server lists what it names.
func (c *Client) Builds(ctx context.Context, since time.Time, cursor string) (jobs []cimeter.Job, next string, err error) {
	ctx, x := c.start(ctx, mayRead)
	var h history
	switch {
	case cursor != "":
		if json.Unmarshal([]byte(cursor), &h) != nil {
			return nil, "", fmt.Errorf("cursor of builds: want one that was given: %w", cimeter.ErrInvalid)
		}
	case len(c.o.Projects) > 0:
		h.Listed = true
		for _, p := range c.o.Projects {
			h.Left = append(h.Left, pathID{p, p})
		}
	default:
		var list []struct{}
		if _, err := c.get(ctx, "list runners", "runners/all", url.Values{"per_page": {"1"}}, &list); err == nil {
			h.Server = true
		} else if x.status != http.StatusForbidden {
			return nil, "", err
		}
	}
	more := false
	if h.Server {
		jobs, more, err = c.serverHistory(ctx, since, &h)
	} else {
		jobs, more, err = c.projectHistory(ctx, since, &h)
	}
	if err != nil || !more {
		return jobs, "", err
	}
	text, err := json.Marshal(h)
	return jobs, string(text), err
}

func (c *Client) serverHistory(ctx context.Context, since time.Time, h *history) (jobs []cimeter.Job, more bool, err error) {
	nodes, next, err := c.jobPage(ctx, "list past jobs", []string{"success", "failed", "canceled"}, h.After)
	if err != nil {
		return nil, false, err
	}
	for _, n := range nodes {
		if !n.CreatedAt.IsZero() && n.CreatedAt.Before(since) {
			return jobs, false, nil
		}
		if j, ok := c.fromGraph(n); ok {
			jobs = append(jobs, j)
		}
	}
	h.After = next
	return jobs, next != "", nil
}

func (c *Client) projectHistory(ctx context.Context, since time.Time, h *history) (jobs []cimeter.Job, more bool, err error) {
	if len(h.Left) == 0 && !h.Listed {
		var list []struct {
			ID   int64  `json:"id"`
			Path string `json:"path_with_namespace"`
		}
		q := url.Values{"membership": {"true"}, "simple": {"true"}, "order_by": {"id"}, "sort": {"asc"}, "per_page": {strconv.Itoa(pageSize)}}
		if h.Last > 0 {
			q.Set("id_after", strconv.FormatInt(h.Last, 10))
		}
		if _, err := c.get(ctx, "list projects", "projects", q, &list); err != nil {
			return nil, false, err
		}
		for _, p := range list {
			if p.ID > h.Last {
				h.Last = p.ID
				h.Left = append(h.Left, pathID{strconv.FormatInt(p.ID, 10), p.Path})
			}
		}
		h.Listed = len(list) < pageSize || len(h.Left) == 0
	}
	if len(h.Left) == 0 {
		return nil, false, nil
	}
	project := h.Left[0]
	q := url.Values{"scope[]": {"success", "failed", "canceled"}, "pagination": {"keyset"}, "order_by": {"id"}, "sort": {"desc"}, "per_page": {strconv.Itoa(pageSize)}}
	if h.Page != "" {
		if q, err = url.ParseQuery(h.Page); err != nil {
			return nil, false, fmt.Errorf("cursor of builds: want one that was given: %w", cimeter.ErrInvalid)
		}
	}
	var list []restJob
	next, err := c.get(ctx, "list past jobs of project "+project.ID, "projects/"+url.PathEscape(project.ID)+"/jobs", q, &list)
	if s := exchangeOf(ctx).status; err != nil && s != http.StatusNotFound && s != http.StatusForbidden {
		return nil, false, err
	}
	for i := range list {
		if at := list[i].CreatedAt; !at.IsZero() && at.Before(since) {
			next = nil
			break
		}
		if list[i].ID > 0 {
			jobs = append(jobs, c.fromREST(&list[i], project.Path))
		}
	}
	if h.Page = next.Encode(); next == nil {
		h.Left = h.Left[1:]
	}
	return jobs, len(h.Left) > 0 || !h.Listed, nil
}

// jobOf is the number of a job of this server by its key.
func (c *Client) jobOf(key string) (int64, error) {
	number := key[strings.LastIndexByte(key, '/')+1:]
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || !ci.IsDecimal(number) || key != gitlab.JobKey(c.server, n) {
		return 0, fmt.Errorf("key of a build: want gitlab/%s/NUMBER: %w", c.server, cimeter.ErrNotFound)
	}
	return n, nil
}

// Cancel ends a build by its key, with the token that may. The error wraps
// [cimeter.ErrNotFound], [cimeter.ErrUnauthorized] or [cimeter.ErrConflict]: it is
// over already.
func (c *Client) Cancel(ctx context.Context, key string) error {
	n, err := c.jobOf(key)
	if err != nil {
		return err
	}
	if c.o.CancelToken == nil {
		return fmt.Errorf("cancel %s: no token that may is given: %w", key, cimeter.ErrUnauthorized)
	}
	ctx, _ = c.start(ctx, mayCancel)
	what := fmt.Sprintf("cancel job %d", n)
	var data struct {
		Cancel *struct {
			Errors []string `json:"errors"`
		} `json:"jobCancel"`
	}
	// By its global id no project has to be known.
	err = c.query(ctx, what, fmt.Sprintf(`mutation{jobCancel(input:{id:"gid://gitlab/Ci::Build/%d"}){errors}}`, n), nil, &data)
	switch {
	case err != nil && exchangeOf(ctx).status == 200 && strings.Contains(err.Error(), "does not exist or you don't have"):
		return fmt.Errorf("%s: %w", what, cimeter.ErrNotFound)
	case err != nil:
		return err
	case data.Cancel == nil:
		return c.failed(ctx, what, fmt.Errorf("no answer to it: %w", cimeter.ErrInvalid))
	case len(data.Cancel.Errors) > 0:
		return fmt.Errorf("%s: GitLab says %s: %w", what, ci.Quote(data.Cancel.Errors[0]), cimeter.ErrConflict)
	}
	return nil
}

// Sections reads a job's log as it comes and returns the names and times of its
// sections. project is its path. The error wraps [cimeter.ErrNotFound] for a log that
// is gone.
func (c *Client) Sections(ctx context.Context, project, key string) (section.Log, error) {
	n, err := c.jobOf(key)
	if err != nil {
		return section.Log{}, err
	}
	ctx, x := c.start(ctx, mayRead)
	x.limit = maxTrace
	what := fmt.Sprintf("read log of job %d", n)
	req, err := c.gl.NewRequest(http.MethodGet, fmt.Sprintf("projects/%s/jobs/%d/trace", url.PathEscape(project), n), nil, []gl.RequestOptionFunc{gl.WithContext(ctx)})
	if err != nil {
		return section.Log{}, c.failed(ctx, what, err)
	}
	var s gitlab.Sections
	if _, err := c.gl.Do(req, &s); err != nil && !errors.Is(x.fault, errTooLong) { // of a log that is too long its beginning counts
		return section.Log{}, c.failed(ctx, what, err)
	}
	return s.Log(), nil
}
