package gitlabapi

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/cimeter/cimeter"
)

const (
	endsFor    = 45 * time.Second // after a new pipeline, or the end of one, is asked a second time what ended
	endsEvery  = time.Minute      // how often that is asked where pipelines go on
	listEvery  = 2 * time.Minute  // how often the ended builds of a project are listed by themselves
	maxLists   = 2                // of these requests in one look
	maxEnds    = 8                // pages of the server's ended builds in one look
	maxOver    = 50_000
	maxPast    = 24 * time.Hour // what ended longer ago is not told of: a retried pipeline has its old builds
	endedWords = "SUCCESS FAILED CANCELED"
)

// watched is what is known of how a project's builds ended. A build that comes and ends
// between two looks is in a pipeline that is new, or was active at one of them.
type watched struct {
	seen   bool // it was looked at: what is newer is new
	newest int64
	busy   bool
	endsAt time.Time // when was asked what ended
	since  time.Time // when something happened last by which builds can have ended
	again  time.Time // from when is asked once more; zero: nothing happened
	whole  int64     // the newest pipeline of which all ends are told, with those before it

	listAt   time.Time  // from when its ended builds are listed by themselves; zero: they need not
	listPage url.Values // the page to go on with; nil is the first
	listedAt time.Time
	listedTo int64 // the greatest number of a job that such a list had
	listing  int64
}

// watch takes up what a project's pipelines tell.
func (w *watched) watch(is pulse, now time.Time) {
	switch {
	case !w.seen:
		w.seen, w.whole = true, is.newest
	case is.newest > w.newest, w.busy && !is.busy:
		w.since, w.again = now, now.Add(endsFor)
	case is.busy && w.again.IsZero() && now.Sub(w.endsAt) >= endsEvery:
		w.since, w.again = now, now
	}
	w.newest, w.busy = max(is.newest, w.newest), is.busy
}

// due reports whether is to be asked what ended.
func (w *watched) due(now time.Time) bool {
	return !w.again.IsZero() && (w.endsAt.Before(w.since) || !now.Before(w.again))
}

// Begin says that polls begin anew, after others polled: what came and ended before the
// first one is not told of. It is not called beside Poll.
func (c *Client) Begin() {
	p := &c.poll
	p.began, p.newest, p.endsNext = time.Time{}, 0, ""
	for _, pr := range p.projects {
		pr.watched = watched{}
	}
}

// askEnds asks which builds ended in the newest pipelines of projects and in those that
// run, fifty projects in one request, those that were not asked for longest first. Where
// that is not all of them the project is listed by itself.
func (c *Client) askEnds(ctx context.Context, now time.Time, all []*project) error {
	p := &c.poll
	due := slices.DeleteFunc(slices.Clone(all), func(pr *project) bool { return pr.gid == "" || !pr.due(now) })
	slices.SortFunc(due, func(a, b *project) int { return cmp.Or(a.endsAt.Compare(b.endsAt), cmp.Compare(a.id, b.id)) })
	for len(due) > 0 && p.left(ctx) >= 1+reserved {
		batch := due[:min(openSize, len(due))]
		due = due[len(batch):]
		var found map[*project]*twoPipes
		if !p.endsOff {
			var err error
			if found, err = c.askPipes(ctx, "list jobs that are over", batch, "", endedWords); refused(ctx, err) {
				p.endsOff = true
			} else if err != nil {
				return err
			}
		}
		for _, pr := range batch {
			if n := found[pr]; n != nil {
				c.takeEnds(ctx, now, pr, n)
			} else if p.endsOff && pr.listAt.IsZero() {
				pr.listAt = now
			}
			if pr.endsAt = now; !now.Before(pr.again) {
				pr.again = time.Time{}
			}
		}
	}
	return nil
}

func (c *Client) takeEnds(ctx context.Context, now time.Time, pr *project, n *twoPipes) {
	newest, old := int64(0), len(n.W.Nodes) < activePipes
	for _, pipe := range n.W.Nodes {
		if pipe == nil {
			continue
		}
		id, _ := numberOf(pipe.ID)
		newest, old = max(newest, id), old || id <= pr.whole
	}
	told := map[string]cimeter.Job{}
	n.W.Page.More = false // there are older ones nearly always
	more := c.pipes(&n.W, told)
	more = c.pipes(&n.R, told) || more || !old
	for _, key := range slices.Sorted(maps.Keys(told)) {
		c.ends(ctx, now, pr, told[key], false)
	}
	if more && pr.listAt.IsZero() {
		pr.listAt = now
		if next := pr.listedAt.Add(listEvery); next.After(now) {
			pr.listAt = next
		}
	}
	pr.whole = max(pr.whole, newest)
}

// listEnds lists the ended builds of projects, newest first, as far as there is anything
// new; a page is a request.
func (c *Client) listEnds(ctx context.Context, now time.Time, all []*project, keep float64) error {
	p := &c.poll
	due := slices.DeleteFunc(slices.Clone(all), func(pr *project) bool { return pr.gone || pr.listAt.IsZero() || now.Before(pr.listAt) })
	slices.SortFunc(due, func(a, b *project) int { return cmp.Or(a.listAt.Compare(b.listAt), cmp.Compare(a.id, b.id)) })
	asked := 0
	for _, pr := range due {
		for !pr.listAt.IsZero() {
			if left := p.left(ctx); asked == maxLists || left < 1 || asked > 0 && left < 1+keep {
				return nil
			}
			asked++
			if err := c.listPage(ctx, now, pr); err != nil && exchangeOf(ctx).status < 500 {
				return err
			} else if err != nil { // a project that its server cannot list hides no other
				pr.listAt = now.Add(listEvery)
				break
			}
		}
	}
	return nil
}

func (c *Client) listPage(ctx context.Context, now time.Time, pr *project) error {
	q := pr.listPage
	if q == nil {
		q = url.Values{"scope[]": {"success", "failed", "canceled"}, "pagination": {"keyset"}, "order_by": {"id"}, "sort": {"desc"}, "per_page": {strconv.Itoa(pageSize)}}
		pr.listing = 0
	}
	var list []restJob
	next, err := c.get(ctx, "list jobs that are over of project "+pr.id, "projects/"+url.PathEscape(pr.id)+"/jobs", q, &list)
	if errors.Is(err, cimeter.ErrNotFound) || exchangeOf(ctx).status == 403 {
		next, err = nil, nil
	}
	if err != nil {
		return err
	}
	news, past := false, true
	for i := range list {
		if list[i].ID <= 0 {
			continue
		}
		pr.listing = max(pr.listing, list[i].ID)
		news = c.ends(ctx, now, pr, c.fromREST(&list[i], pr.path), false) || news
		past = list[i].ID <= pr.listedTo || list[i].CreatedAt.Before(c.past(ctx, now)) // of the last one: they are in order
	}
	if pr.listPage = next; next == nil || !news && past {
		pr.listPage, pr.listAt, pr.listedAt = nil, time.Time{}, now
		pr.listedTo = max(pr.listedTo, pr.listing)
		if again := pr.since.Add(endsFor); c.poll.activityOff && again.After(now) { // was pushed to just now
			pr.listAt = again
		}
	}
	return nil
}

// serverTime is the server's clock.
func (c *Client) serverTime(ctx context.Context, now time.Time) time.Time {
	return now.Add(exchangeOf(ctx).clock.Value)
}

// past is when what a look may tell of ended at the soonest.
func (c *Client) past(ctx context.Context, now time.Time) time.Time {
	at := c.serverTime(ctx, now).Add(-maxPast)
	if began := c.poll.began; began.IsZero() || began.After(at) {
		return began
	}
	return at
}

// ends tells how a build ended, unless that is told, or is the past. pr may be nil. fresh
// says that it cannot have ended before the last look.
func (c *Client) ends(ctx context.Context, now time.Time, pr *project, j cimeter.Job, fresh bool) (news bool) {
	p := &c.poll
	id := numberIn(&j)
	if !j.Status.Ended() || id == 0 || p.over[id] {
		return false
	}
	if _, known := p.known[j.Key]; !known && !fresh && (p.began.IsZero() || j.EndedAt.Before(c.past(ctx, now))) {
		return false
	}
	delete(p.known, j.Key)
	p.behind = slices.DeleteFunc(p.behind, func(o open) bool { return o.key == j.Key })
	if pr != nil {
		pr.open = slices.DeleteFunc(slices.Clone(pr.open), func(o cimeter.Job) bool { return o.Key == j.Key })
	}
	p.tell(j)
	return true
}

// tell tells of builds that are over with this look, or the next good one.
func (p *pollState) tell(jobs ...cimeter.Job) {
	p.untold = append(p.untold, jobs...)
	if p.over == nil {
		p.over = map[int64]bool{}
	}
	for i := range jobs {
		p.over[numberIn(&jobs[i])] = true
	}
	if len(p.over) > maxOver {
		ids := slices.Sorted(maps.Keys(p.over))
		for _, id := range ids[:len(ids)/2] {
			delete(p.over, id)
		}
	}
}

// newEnds asks for the newest builds of the server that are over: by one request it
// learns how most of those ended that were not over at the last look, and of those that
// came and ended since. Where more than a page are new it reads on, as far as maxEnds
// pages, and with the next looks. jobs are the ones that are not over.
func (c *Client) newEnds(ctx context.Context, now time.Time, jobs []cimeter.Job) error {
	p := &c.poll
	open := make(map[string]bool, len(jobs))
	newest := p.newest
	for i := range jobs {
		open[jobs[i].Key] = true
		newest = max(newest, numberIn(&jobs[i]))
	}
	pages, first := 0, p.began.IsZero() // what is over then is the past
	read := func(after string, down int64) (next string, err error) {
		for ; pages < maxEnds; pages++ {
			nodes, next, err := c.jobPage(ctx, "list jobs that are over", []string{"success", "failed", "canceled"}, after)
			if err != nil {
				return "", err
			}
			last := int64(0)
			for _, n := range nodes {
				if j, ok := c.fromGraph(n); ok && !open[j.Key] {
					last = numberIn(&j)
					newest = max(newest, last)
					c.ends(ctx, now, nil, j, !first && last > down)
				}
			}
			if after = next; next == "" || first || last <= down {
				return "", nil
			}
		}
		return after, nil
	}
	next, err := read("", p.newest)
	switch {
	case err != nil:
		return err
	case next != "":
		if p.endsNext == "" {
			p.endsDown = p.newest
		}
		p.endsNext = next
	case p.endsNext != "": // what an earlier look left
		if next, err = read(p.endsNext, p.endsDown); err != nil {
			return err
		}
		p.endsNext = next
	}
	p.newest = newest // not before: what a look that fails did not read is read by the next
	return nil
}

// numberIn is a job's number; 0 where it has none.
func numberIn(j *cimeter.Job) int64 {
	n, err := strconv.ParseInt(j.Number, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
