package web_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/web"
	"github.com/cimeter/cimeter/internal/webtest"
)

// The page of a build that worked on several machines says what it did on each, and of
// which machine the rest of it is.
func TestSpread(t *testing.T) {
	a := webtest.Example()
	b := *a
	a.CI, a.Server, a.Key, a.Machine = "jenkins", "ci.example.com", "jenkins/ci.example.com/app/17", "node-1"
	b.CI, b.Server, b.Key, b.Machine = a.CI, a.Server, a.Key+"/@node-2", `node-2"><script>`
	b.StartedAt, b.EndedAt = a.StartedAt.Add(time.Minute), a.EndedAt.Add(-time.Second)
	b.Usage = cimeter.Usage{WallSeconds: 30, CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(77.0)}}
	m := &webtest.Memory{Records: []*cimeter.Record{a, &b}}
	on := []*cimeter.Record{a, &b}
	p, err := web.New(web.Options{Source: m, Totals: m, Fleet: m, Now: func() time.Time { return webtest.Now },
		Machines: func(_ context.Context, key string) ([]*cimeter.Record, error) {
			if !strings.HasPrefix(key, a.Key) {
				return nil, cimeter.ErrNotFound
			}
			return on, nil
		},
		Report: func(route string, err error) { t.Errorf("%s: %v", route, err) }})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range on {
		_, body := get(t, p, key(r))
		_, table, _ := strings.Cut(body, `<section id="machines"`)
		table, _, _ = strings.Cut(table, "</section>")
		wants(t, body, "2 machines", `href="#machines"`)
		wants(t, table, "node-1", "node-2&#34;", "all machines", "77", `aria-current="true"`, `href="`+key(on[1-i])+`"`)
		lacks(t, body, "<script>node", `"><script>"`)
		lacks(t, table, `href="`+key(r)+`"`, "NaN", "0001")
		_, peers, _ := strings.Cut(body, `<section id="peers"`)
		lacks(t, peers, `href="`+key(on[1-i])+`"`) // the same build is not one before it
		_, figures, _ := strings.Cut(body, `id="figures"`)
		figures, _, _ = strings.Cut(figures, "</ul>")
		wants(t, figures, fmt.Sprintf("%.0f s", a.Usage.CPUSeconds.Total.Value+77)) // of both
		_, text := get(t, p, key(r)+"?as=text")
		wants(t, text, "all machines")
	}
	before := *webtest.Example()
	before.Key, before.StartedAt, before.EndedAt = "jenkins/ci.example.com/app/16", a.StartedAt.AddDate(0, 0, -1), a.EndedAt.AddDate(0, 0, -1)
	m.Records = append(m.Records, &before)
	for _, of := range []string{"median:20", "last-green"} {
		_, body := get(t, p, "/compare?a="+of+"&b="+url.QueryEscape(b.Key))
		wants(t, body, fmt.Sprintf("| **total** | %.1f | %.1f |", before.Usage.CPUSeconds.Total.Value, a.Usage.CPUSeconds.Total.Value+77)) // beside whole builds
	}
	on = on[:1]
	_, body := get(t, p, key(a))
	lacks(t, body, `id="machines"`)
}
