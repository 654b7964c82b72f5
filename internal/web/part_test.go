package web_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/section"
	"github.com/cimeter/cimeter/internal/web"
	"github.com/cimeter/cimeter/internal/webtest"
)

// failing is a Memory that counts the questions of a page and fails one of them.
type failing struct {
	*webtest.Memory
	asked int
	at    int // fails this one, from 0; -1: none
	err   error
	hangs bool // it does not fail, it does not answer
}

func (f *failing) fails(ctx context.Context) error {
	f.asked++
	if f.asked-1 != f.at {
		return nil
	}
	if f.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return f.err
}

func asks[T any](ctx context.Context, f *failing, ask func() (T, error)) (T, error) {
	if err := f.fails(ctx); err != nil {
		var none T
		return none, err
	}
	return ask()
}

func (f *failing) Builds(ctx context.Context, q web.Query) (web.Page, error) {
	return asks(ctx, f, func() (web.Page, error) { return f.Memory.Builds(ctx, q) })
}

func (f *failing) Build(ctx context.Context, key string) (r *cimeter.Record, running bool, err error) {
	if err := f.fails(ctx); err != nil {
		return nil, false, err
	}
	return f.Memory.Build(ctx, key)
}

func (f *failing) History(ctx context.Context, q web.HistoryQuery) ([]*cimeter.Record, error) {
	return asks(ctx, f, func() ([]*cimeter.Record, error) { return f.Memory.History(ctx, q) })
}

func (f *failing) Groups(ctx context.Context, q web.GroupQuery) ([]web.Group, error) {
	return asks(ctx, f, func() ([]web.Group, error) { return f.Memory.Groups(ctx, q) })
}

func (f *failing) Buckets(ctx context.Context, q web.BucketQuery) ([]web.Bucket, error) {
	return asks(ctx, f, func() ([]web.Bucket, error) { return f.Memory.Buckets(ctx, q) })
}

func (f *failing) Course(ctx context.Context, q web.CourseQuery) (web.Course, error) {
	return asks(ctx, f, func() (web.Course, error) { return f.Memory.Course(ctx, q) })
}

func (f *failing) Machines(ctx context.Context) (ms []web.Machine, gone int, err error) {
	if err := f.fails(ctx); err != nil {
		return nil, 0, err
	}
	return f.Memory.Machines(ctx)
}

func (f *failing) Past(ctx context.Context, machine string, since time.Time) ([]web.Moment, error) {
	return asks(ctx, f, func() ([]web.Moment, error) { return f.Memory.Past(ctx, machine, since) })
}

func (f *failing) Sections(ctx context.Context, r *cimeter.Record, keptOnly bool) (section.Parts, error) {
	return asks(ctx, f, func() (section.Parts, error) { return f.Memory.Sections(ctx, r, keptOnly) })
}

// Spread is a web.Machines: of one build a part is elsewhere, too.
func (f *failing) Spread(ctx context.Context, key string) ([]*cimeter.Record, error) {
	return asks(ctx, f, func() ([]*cimeter.Record, error) {
		r, _, err := f.Memory.Build(ctx, key)
		if err != nil || key != oom {
			return []*cimeter.Record{r}, err
		}
		other := *r
		other.Key, other.Machine = r.Key+"@ci-2", "ci-2"
		return []*cimeter.Record{r, &other}, nil
	})
}

// Neighbours is a web.Neighbours.
func (f *failing) Neighbours(ctx context.Context, r *cimeter.Record) (builds int, atOnce float64, err error) {
	if err := f.fails(ctx); err != nil {
		return 0, 0, err
	}
	if r.Key == oom {
		return 6, 2.34, nil
	}
	return 0, 0, nil
}

// pages are of a failing source; told is what the operator is told.
func (f *failing) pages(t *testing.T) (p *web.Pages, told *[]string) {
	t.Helper()
	told = &[]string{}
	p, err := web.New(web.Options{Source: f, Totals: f, Fleet: f, Queue: f.Queue, Sections: f.Sections, Machines: f.Spread, Neighbours: f.Neighbours, Names: f.Names, Past: f.Past, Now: func() time.Time { return webtest.Now },
		Report: func(route string, err error) { *told = append(*told, route+" "+err.Error()) }})
	if err != nil {
		t.Fatal(err)
	}
	return p, told
}

// onePart is a part of a page that a question of its own is for.
type onePart struct {
	name string // as the page says it; "": it is what the page is about
	lost string // what of the page is gone with it: ids
}

// parted is a page with its questions, as they are asked: those without which there is
// no page, and those of its parts.
type parted struct {
	name, path string
	main       int
	parts      []onePart
}

var (
	example, oom = webtest.Example().Key, webtest.OOM().Key
	together     = "a=" + url.QueryEscape(oom) + "&b=" + url.QueryEscape(example)
)

var partedPages = []parted{
	{"now", "/", 1, nil},
	{"idle", "/", 1, []onePart{{"The last build", ""}}},
	{"builds", "/builds?t=7d", 1, []onePart{{"The totals", ""}}},
	{"no builds", "/builds?q=project%3Anone", 1, []onePart{{"What hides every build", ""}, {"What hides every build", ""}}},
	{"build", "/builds/" + oom, 1, []onePart{{"The sections of the job&#39;s log", ""}, {"Its machines", "machines machines-h"}, {"The builds of the same job before", "peers peers-h"}}},
	{"running build", "/builds/" + webtest.Running().Key, 1, []onePart{{"The builds of the same job before", "peers peers-h"}}},
	{"queue", "/queue", 0, nil},
	{"machines", "/machines", 1, []onePart{{"What the machines&#39; builds used", ""}}},
	{"machine", "/machine?name=ci-7&t=24h", 0, []onePart{{"What the machine tells now", "place-now lately-h lately-t now-h l-cpu-h l-mem-h l-disk-h l-net-h l-psi-h l-cover-h"}, {}, {"The builds over time", "bars-h bars-t"},
		{"The last day", "day-h day-t d-cpu-h d-mem-h d-disk-h d-net-h d-psi-h d-cover-h"}, {"Who used it", "who-h"}}},
	{"runner", "/runner?key=s_ci-7&t=24h", 0, []onePart{{}, {"The builds over time", "bars-h bars-t"}, {"Its machines", "where-h day-h day-t d-cpu-h d-mem-h d-disk-h d-net-h d-psi-h d-cover-h"}, {"What its machines tell now", ""},
		{"The last day", "day-h day-t d-cpu-h d-mem-h d-disk-h d-net-h d-psi-h d-cover-h"}}},
	{"projects", "/projects?t=7d", 1, nil},
	{"project", "/project?name=group%2Fapp&t=7d", 1, []onePart{{"The latest builds", ""}, {"What the builds cost", ""}}},
	{"job", "/job?project=group%2Fapp&name=build-and-test&t=7d", 1, []onePart{{"What the builds cost", ""}}},
	{"idle queue", "/queue", 0, []onePart{{"The longest wait of the last day", ""}}},
	{"compare", "/compare?" + together, 2, []onePart{{"The job&#39;s last builds", ""}, {"What ran beside them", ""}, {"What ran beside them", ""}}},
	{"compare with a word", "/compare?a=last-green&b=" + url.QueryEscape(example), 3, []onePart{{"The job&#39;s last builds", ""}, {"The charts", "timeline timeline-h lanes cpu cpu-h cpu-l mem mem-h mem-l disk disk-h disk-l net net-h net-l"}, {"What ran beside them", ""}, {"What ran beside them", ""}}},
	{"compare with a median", "/compare?a=median%3A20&b=" + url.QueryEscape(example), 3, []onePart{{"The job&#39;s last builds", ""}}},
}

// idle is the fleet at rest.
func idle() *webtest.Memory {
	m := fleet()
	for i := range m.Fleet {
		m.Fleet[i].Running, m.Fleet[i].Runs = nil, 0
	}
	m.Waiting.Builds = nil
	for i := range m.Waiting.Servers {
		s := &m.Waiting.Servers[i]
		s.LongestDay, s.Waiting, s.Blocked, s.Running = queue.Longest{}, cimeter.Some(0), cimeter.Some(0), cimeter.Some(0)
	}
	return m
}

var idOf = regexp.MustCompile(` id="([^"]+)"`)

func idsOf(body string) (ids []string) {
	for _, m := range idOf.FindAllStringSubmatch(body, -1) {
		ids = append(ids, m[1])
	}
	return ids
}

// A page stays when the question of one of its parts fails: it says which in the place
// of the part, and everything else is there. Without what it is about it fails.
func TestPartFails(t *testing.T) {
	for _, page := range partedPages {
		t.Run(page.name, func(t *testing.T) {
			f := &failing{Memory: fleet(), at: -1}
			if strings.HasPrefix(page.name, "idle") {
				f.Memory = idle()
			}
			p, told := f.pages(t)
			code, whole := get(t, p, page.path)
			if questions := page.main + len(page.parts); code != http.StatusOK || f.asked != questions || strings.Contains(whole, "could not be read") || len(*told) > 0 {
				t.Fatalf("with nothing failed: %d, %d questions, told %q: want 200 and %d", code, f.asked, *told, questions)
			}
			for i := range page.main + len(page.parts) {
				f.asked, f.at, f.err, *told = 0, i, fmt.Errorf("select secret: %w", cimeter.ErrUnavailable), nil
				code, body := get(t, p, page.path)
				if len(*told) != 1 || !strings.Contains((*told)[0], "select secret") || strings.Contains(body, "secret") {
					t.Errorf("question %d fails: the operator is told %q: want once, and the reader not", i, *told)
				}
				if i < page.main || page.parts[i-page.main].name == "" {
					if code != http.StatusServiceUnavailable {
						t.Errorf("question %d, of what the page is about, fails: %d: want 503", i, code)
					}
					continue
				}
				part := page.parts[i-page.main]
				if code != http.StatusOK || strings.Count(body, "could not be read") != 1 || !strings.Contains(body, `role="status"><b>`+part.name+" could not be read:</b> the store does not answer now") {
					t.Errorf("%s fails: %d: want 200 and its name, in\n%s", part.name, code, body)
				}
				left := idsOf(body)
				for _, id := range idsOf(whole) {
					if !slices.Contains(left, id) && !slices.Contains(strings.Fields(part.lost), id) {
						t.Errorf("%s fails: #%s is gone, too", part.name, id)
					}
				}
			}
		})
	}
}

// An error is told by its kind, and a part that does not answer is waited for as long
// as a reader waits.
func TestPartFails_kinds(t *testing.T) {
	for _, c := range []struct {
		err  error
		says string
		told int
	}{
		{errors.New("select secret"), "something went wrong here; the server&#39;s log says what.", 1},
		{context.DeadlineExceeded, "the store took too long to answer; try again in a moment, or ask for less.", 1},
		{fmt.Errorf("cpu: want a number: %w", cimeter.ErrInvalid), "cpu: want a number", 0},
	} {
		f := &failing{Memory: fleet(), at: 1, err: c.err}
		p, told := f.pages(t)
		code, body := get(t, p, "/builds")
		if code != http.StatusOK || !strings.Contains(body, "The totals could not be read:</b> "+c.says) || strings.Contains(body, "secret") || len(*told) != c.told {
			t.Errorf("%v: %d, told %q, in\n%s", c.err, code, *told, body)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		f := &failing{Memory: fleet(), at: 1, hangs: true}
		p, told := f.pages(t)
		begun := time.Now()
		code, body := get(t, p, "/builds")
		if waited := time.Since(begun); code != http.StatusOK || waited != 5*time.Second || !strings.Contains(body, "took too long") || len(*told) != 1 {
			t.Errorf("%d after %s, told %q: want 200 after 5 s", code, waited, *told)
		}
	})
}
