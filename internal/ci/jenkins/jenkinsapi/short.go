package jenkinsapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/ci/jenkins"
	"github.com/cimeter/cimeter/internal/queue"
)

const (
	countEvery = 30 * time.Second // how often jobs are asked for the number of their newest build
	maxFolders = 10               // depth of folders that one question reaches
	maxShort   = 10               // requests of one poll for builds that no poll saw, of 100 builds each
	maxFresh   = 200              // jobs that can be new at once
)

// counted is how far the builds of a job are known. Jenkins numbers them upwards.
type counted struct {
	last int64 // number of the newest one, or less than that of the next
	upTo int64 // all up to that number are told of
	seen map[int64]bool
	late int64 // a newest number that no build had yet when it was looked for
	// from is when a job was not there yet that is new; what ended before is its past,
	// under another name.
	from time.Time
}

// countTree asks folders in folders for the number that the next build of each job will
// have. Jenkins knows it without looking at builds.
var countTree = strings.Repeat("jobs[url,nextBuildNumber,", maxFolders-1) + "jobs[url,nextBuildNumber]" + strings.Repeat("]", maxFolders-1)

// count asks how many builds each job has had. What they had when it asks for the first
// time is the past.
func (c *Client) count(ctx context.Context, r *ask.Round) error {
	if age := r.Now().Sub(c.countedAt); age.Abs() < countEvery {
		return nil
	}
	var all listed
	q := ask.Request{Path: "/api/json", Query: url.Values{"tree": {countTree}}}
	if _, err := r.JSON(ctx, q, &all); errors.Is(err, cimeter.ErrNotFound) {
		c.countedAt = r.Now()
		return nil
	} else if err != nil {
		return err
	}
	jobs, fresh := map[string]*counted{}, []*counted(nil)
	c.countBelow("", all.Jobs, jobs, &fresh)
	if c.jobs != nil && len(fresh) <= maxFresh { // else the user sees more than before
		for _, k := range fresh {
			k.upTo, k.from = max(0, k.last-pastBuilds), c.countedAt.Add(-countEvery)
		}
	}
	c.jobs, c.countedAt = jobs, r.Now()
	return nil
}

func (c *Client) countBelow(at string, list []listed, jobs map[string]*counted, fresh *[]*counted) {
	for i := range list {
		l := &list[i]
		path := jobPath(l.URL)
		if !child(at, path) {
			continue
		}
		c.countBelow(path, l.Jobs, jobs, fresh)
		if l.Next <= 0 {
			continue
		}
		k := &counted{last: l.Next - 1, upTo: l.Next - 1, seen: map[int64]bool{}}
		if was := c.jobs[path]; was != nil && was.upTo <= k.last {
			k.upTo, k.seen, k.late, k.from = was.upTo, was.seen, was.late, was.from
		} else { // it is new, or was made anew
			*fresh = append(*fresh, k)
		}
		jobs[path] = k
	}
}

// see notes that builds are known, and end as such.
func (c *Client) see(now map[string]running) {
	for _, b := range now {
		k := c.jobs[b.job]
		n, err := strconv.ParseInt(b.number, 10, 64)
		if k != nil && err == nil && n > k.upTo {
			k.seen[n] = true
		}
	}
}

// unseen reports whether there may be builds of a job that no poll saw.
func (c *Client) unseen(path string, k *counted, now map[string]running) bool {
	for n := k.upTo + 1; n <= k.last; n++ {
		if _, runs := now[jenkins.Key(c.server, path, strconv.FormatInt(n, 10))]; !runs && !k.seen[n] {
			return true
		}
	}
	return false
}

// found is what a poll has found so far.
type found struct {
	now    map[string]running // builds that run, by key
	begun  map[int64]bool     // items of the queue that are builds
	report *queue.Report
}

// behind is a job with builds that are not known.
type behind struct {
	path string
	*counted
	done int64 // all up to that number will be known when the poll is over
}

// short tells of the builds that came and ended between two polls: those of the jobs
// with the fewest of them first. What there are no requests for waits for the next poll.
func (c *Client) short(ctx context.Context, r *ask.Round, f found) error {
	var asked, done []behind
	for path, k := range c.jobs {
		switch b := (behind{path, k, k.last}); {
		case k.upTo == k.last:
		case c.unseen(path, k, f.now):
			asked = append(asked, b)
		default:
			done = append(done, b)
		}
	}
	slices.SortFunc(asked, func(a, b behind) int {
		return cmp.Or(cmp.Compare(a.last-a.upTo, b.last-b.upTo), cmp.Compare(a.path, b.path))
	})
	left := maxShort
	for _, b := range asked {
		pages := int(min((b.last-b.upTo+pastBuilds-1)/pastBuilds, maxShort))
		if left -= pages; left < 0 {
			break
		}
		newest, err := c.shortOf(ctx, r, b, pages, f)
		if err != nil {
			return err
		}
		if newest < b.last && b.late != b.last { // it is being made, or was deleted
			b.late = b.last
			b.done--
		}
		done = append(done, b)
	}
	for _, b := range done { // not before: a poll that fails tells nothing
		b.upTo = b.done
		maps.DeleteFunc(b.seen, func(n int64, _ bool) bool { return n <= b.upTo })
	}
	return nil
}

// shortOf lists the newest builds of one job, in so many pages, and returns the number
// of the newest.
func (c *Client) shortOf(ctx context.Context, r *ask.Round, of behind, pages int, f found) (newest int64, err error) {
	told := map[int64]bool{}
	for page := range pages {
		from, to := page*pastBuilds, (page+1)*pastBuilds
		if pages == 1 {
			to = int(of.last-of.upTo) + 3 // some that began meanwhile
		}
		var list folder
		q := ask.Request{Path: apiPath(of.path, "api", "json"), Query: url.Values{"tree": {fmt.Sprintf("allBuilds[%s]{%d,%d}", endTree, from, to)}}}
		if _, err := r.JSON(ctx, q, &list); errors.Is(err, cimeter.ErrNotFound) {
			return newest, nil // deleted
		} else if err != nil {
			return 0, err
		}
		for i := range list.Builds {
			b := &list.Builds[i]
			newest = max(newest, b.Number)
			if b.Number > of.upTo && b.Number <= of.last && !told[b.Number] && !of.seen[b.Number] {
				told[b.Number] = true
				c.tell(b, of, f)
			}
		}
		if n := len(list.Builds); n < to-from || list.Builds[n-1].Number <= of.upTo+1 {
			break
		}
	}
	return newest, nil
}

// tell tells of a build that no poll saw. One that runs began after the nodes were asked.
func (c *Client) tell(b *build, of behind, f found) {
	j, ok := c.ran(b, b.BuiltOn)
	if _, runs := f.now[j.Key]; !ok || j.Project != of.path || b.Building == nil || runs {
		return
	}
	if ended := ask.Milli(b.Timestamp + b.Duration); !*b.Building && ended.Before(of.from) {
		return
	}
	if j.QueuedAt = c.items[b.QueueID]; *b.Building {
		f.now[j.Key] = running{job: j.Project, number: j.Number, worker: j.Worker, queued: j.QueuedAt}
	}
	f.begun[b.QueueID] = true
	f.report.Jobs = append(f.report.Jobs, j)
	f.report.Moved = append(f.report.Moved, c.moved(b.QueueID, j.Key)...)
}

// Begin says that polls begin anew, after others polled: what came and ended before the
// first one is not told of.
func (c *Client) Begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs, c.countedAt = nil, time.Time{}
}
