package web_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/webtest"
)

// Where records tell the default branch, trends and figures are of it, and the URL says
// it where they are of another ref or of all.
func TestTrends_ref(t *testing.T) {
	m := many(100)
	for i, r := range m.Records {
		r.Ref, r.DefaultBranch = "trunk", "trunk"
		if i%4 == 0 {
			r.Ref = "feature/a"
		}
	}
	h := pages(t, m)
	for _, page := range []string{"/job?project=group%2Fapp&name=many", "/project?name=group%2Fapp"} {
		for _, c := range []struct{ add, of, builds string }{
			{"", "Of trunk, the default branch, alone.", "75"}, {"&refs=all", "Of all refs.", "100"}, {"&ref=feature%2Fa", "Of feature/a alone.", "25"},
		} {
			_, body := get(t, h, page+c.add)
			wants(t, body, c.of, "<dt>builds</dt><dd>"+c.builds+"</dd>", `aria-label="Ref"`, "<dt>of the fleet</dt>")
			_, nav, _ := strings.Cut(body, `aria-label="Ref"`)
			nav, _, _ = strings.Cut(nav, "</nav>")
			wants(t, nav, ">trunk</a>", ">all refs</a>", ">feature/a</a>", "refs=all")
			if n := strings.Count(nav, "aria-current"); n != 1 {
				t.Errorf("%s: %d current refs", page+c.add, n)
			}
			_, figure, _ := strings.Cut(body, `class="plot" data-brush`)
			figure, _, _ = strings.Cut(figure, "</figure>")
			if got := fmt.Sprint(strings.Count(figure, "h0")); got != c.builds {
				t.Errorf("%s: %s dots: want %s", page+c.add, got, c.builds)
			}
		}
	}
	few := many(100)
	for i, r := range few.Records {
		r.Ref, r.DefaultBranch = "feature/a", "trunk"
		if i < 3 {
			r.Ref = "trunk"
		}
	}
	_, body := get(t, pages(t, few), "/job?project=group%2Fapp&name=many")
	wants(t, body, "Trends begin at 5 builds; there are 3 in this time. Of trunk, the default branch, alone.")
	_, body = get(t, h, "/job?project=group%2Fapp&name=many&t=1h&refs=all") // too short for whole hours
	lacks(t, body, "of the fleet")
}

// What a job's figures depend on is marked where it changed, not where builds take turns.
func TestTrends_settings(t *testing.T) {
	m := many(60)
	for i, r := range m.Records { // the latest first
		r.Image, r.Host = "registry.example.com/golang:1.26", cimeter.HostSize{CPUs: 4, MemoryBytes: 16<<30 - 100<<20}
		if i < 20 {
			r.Image = "registry.example.com/golang:1.27"
		}
		if i < 30 {
			r.Host = cimeter.HostSize{CPUs: 8, MemoryBytes: 32 << 30}
		}
		if i > 50 && i%2 == 0 {
			r.Image = "other"
		}
	}
	_, body := get(t, pages(t, m), "/job?project=group%2Fapp&name=many")
	wants(t, body, "image registry.example.com/golang:1.26 → registry.example.com/golang:1.27 since ", "machine 4 CPUs, 16.0 GiB → 8 CPUs, 32.0 GiB since ")
	if n := strings.Count(body, ">golang:1.27</text>"); n != 3 {
		t.Errorf("the image is marked on %d charts: want 3", n)
	}
	if n := strings.Count(body, ">8 CPUs, 32.0 GiB</text>"); n != 3 {
		t.Errorf("the machine is marked on %d charts: want 3", n)
	}
	lacks(t, body, "image other", "→ other")
	hostile := webtest.Hostile[0]
	for _, r := range m.Records[:20] {
		r.Image = hostile
	}
	_, body = get(t, pages(t, m), "/job?project=group%2Fapp&name=many")
	lacks(t, body, "<script>alert", "<img")
}

// Builds that were killed are counted once, at the end of the histogram, whatever peak was
// read of them.
func TestJob_killed(t *testing.T) {
	m := many(20)
	for i, peak := range []uint64{1, 3, 4} {
		r := m.Records[i]
		usage := *r.Usage.MemoryBytes
		usage.Peak = cimeter.Some(peak << 30)
		r.Usage.MemoryBytes, r.Verdicts = &usage, []cimeter.Verdict{{Kind: "oom"}}
	}
	_, body := get(t, pages(t, m), "/job?project=group%2Fapp&name=many")
	if n := strings.Count(body, `<text class="killed"`); n != 1 || !strings.Contains(body, ">3 killed</text>") {
		t.Errorf("%d labels: want one of 3", n)
	}
	wants(t, body, "1 build at 20 to 30 % of the limit, 1 killed")
}
