package droneapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/ci/drone"
	"github.com/cimeter/cimeter/internal/queue"
)

const (
	countEvery = 30 * time.Second // how often repositories are listed, for how many builds each has had
	// perList is what one answer has: Drone has no bound of its own, and its pages have
	// no order, so what is written meanwhile could be on none.
	perList  = 10_000
	maxLists = 4
	maxShort = 10 // builds that one poll looks for by number: a request each
	// maxNew is how many builds of a repository that was not there before can be new.
	maxNew   = 25
	maxFresh = 20 // repositories that can be new at once
)

// counted is how far the builds of a repository are known. Drone numbers them one by
// one, and never a number twice.
type counted struct {
	slug string
	last int64 // number of the newest one
	upTo int64 // all up to that number are told of
	seen map[int64]bool
	late int64 // a newest number that no build had yet when it was looked for
	// from is when a repository was not there yet that is new; what ended before is its
	// past, under another name or server.
	from time.Time
}

// repoLists are where repositories are listed: all of them, for an administrator, and
// for servers that do not have that those of the user.
var repoLists = [...]string{"/api/repos", "/api/user/repos"}

// count asks how many builds each repository has had. What they had when it asks for
// the first time is the past.
func (c *Client) count(ctx context.Context, r *ask.Round) error {
	if age := r.Now().Sub(c.countedAt); age.Abs() < countEvery {
		return nil
	}
	list, err := listRepos(ctx, r)
	if err != nil {
		return err
	}
	first := c.repos == nil
	if first {
		c.repos = make(map[int64]*counted, len(list))
	}
	var fresh []*counted
	for _, rp := range list {
		k := c.repos[rp.ID]
		switch {
		case rp.ID <= 0 || rp.Slug == "":
			continue
		case k == nil:
			k = &counted{upTo: rp.Counter, seen: map[int64]bool{}}
			c.repos[rp.ID] = k
			fresh = append(fresh, k)
		case k.upTo > rp.Counter: // a database of before
			k.upTo = rp.Counter
			clear(k.seen)
		}
		k.slug, k.last = rp.Slug, rp.Counter
	}
	if !first && len(fresh) <= maxFresh { // else the token sees more than it did
		for _, k := range fresh {
			k.upTo, k.from = max(0, k.last-maxNew), c.countedAt.Add(-countEvery)
		}
	}
	c.countedAt = r.Now()
	return nil
}

// listRepos lists the repositories of the server; none where it has no such list.
func listRepos(ctx context.Context, r *ask.Round) (list []repo, err error) {
	for at, path := range repoLists {
		list = nil
		for page := 1; page <= maxLists; page++ {
			q := ask.Request{Path: path, Query: url.Values{"page": {strconv.Itoa(page)}, "per_page": {strconv.Itoa(perList)}}}
			var some []repo
			if _, err = r.JSON(ctx, q, &some); err != nil {
				break
			}
			if list = append(list, some...); len(some) < perList || at > 0 {
				return list, nil
			}
		}
		if !missing(err) {
			return list, err
		}
	}
	return nil, nil
}

// missing reports whether a server does not have what it was asked for.
func missing(err error) bool {
	var e *queue.SourceError
	return errors.As(err, &e) && (e.Status == http.StatusNotFound || e.Status == http.StatusMethodNotAllowed)
}

// see notes that a build is known.
func (c *Client) see(id, number int64) {
	if k := c.repos[id]; k != nil && number > k.upTo {
		k.seen[number] = true
	}
}

// short looks for the builds that no poll saw, as they came and ended in between: by
// their numbers, those of the repositories with the fewest of them first. What it finds
// is told with the builds that are known.
func (c *Client) short(ctx context.Context, r *ask.Round, queued map[int64][]drone.StageRow) error {
	var behind []*counted
	for _, k := range c.repos {
		if k.upTo < k.last {
			behind = append(behind, k)
		}
	}
	slices.SortFunc(behind, func(a, b *counted) int {
		return cmp.Or(cmp.Compare(a.last-a.upTo, b.last-b.upTo), cmp.Compare(a.slug, b.slug))
	})
	looks := 0
repos:
	for _, k := range behind {
		for ; k.upTo < k.last; k.upTo++ {
			number := k.upTo + 1
			if k.seen[number] {
				delete(k.seen, number)
				continue
			}
			if looks == maxShort {
				return nil
			}
			looks++
			full, err := c.find(ctx, r, k.slug, number)
			switch {
			case errors.Is(err, cimeter.ErrNotFound) && number == k.last && number != k.late:
				k.late = number // it is being made
				continue repos
			case errors.Is(err, cimeter.ErrNotFound): // deleted, or never made
				continue
			case err != nil:
				return err
			case c.open[full.ID] != nil, full.Status == "blocked":
				continue
			}
			if ended := ask.Unix(full.Finished); ended.IsZero() || !ended.Before(k.from) {
				c.open[full.ID] = &known{slug: k.slug, build: full, looked: moved(queued[full.ID])}
			}
		}
	}
	return nil
}

// Begin says that polls begin anew, after others polled: what came and ended before the
// first one is not told of.
func (c *Client) Begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.repos, c.countedAt = nil, time.Time{}
}
