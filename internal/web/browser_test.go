package web_test

import (
	"net/http/httptest"
	"testing"

	"github.com/cimeter/cimeter/internal/webtest"
)

func TestPagesInBrowser(t *testing.T) {
	m := &webtest.Memory{Records: webtest.History(200)}
	s := httptest.NewServer(pages(t, m))
	defer s.Close()
	b := webtest.Open(t)
	for _, l := range webtest.Looks {
		for _, p := range []struct{ name, path string }{
			{"builds", "/builds?t=7d"}, {"build", "/builds/" + webtest.Example().Key},
			{"oom", "/builds/" + webtest.OOM().Key}, {"incomplete", "/builds/" + webtest.Incomplete().Key}, {"absent", "/builds/" + webtest.Absent().Key},
			{"help", "/help"},
		} {
			t.Run(p.name+" "+l.String(), func(t *testing.T) {
				tab := b.Tab(t, l)
				tab.Go(s.URL + p.path)
				tab.Shot(t, p.name+"-"+l.String())
				for _, problem := range tab.Problems() {
					t.Error(problem)
				}
				if w := webtest.Eval[int64](tab, "document.documentElement.scrollWidth"); w > l.Width {
					t.Errorf("page is %d wide: want at most %d", w, l.Width)
				}
			})
		}
	}
}
