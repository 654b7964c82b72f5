package scrape_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/output/expvar"
	"github.com/cimeter/cimeter/internal/output/prometheus"
	"github.com/cimeter/cimeter/internal/scrape"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

// shown is a page as lines.
func shown(p scrape.Page) string {
	var b strings.Builder
	for _, f := range p.Families {
		fmt.Fprintf(&b, "%s %s %q\n", f.Kind, f.Name, f.Help)
		for _, p := range f.Points {
			b.WriteString(" ")
			for _, l := range p.Labels {
				fmt.Fprintf(&b, " %s=%q", l.Name, l.Value)
			}
			switch {
			case p.Buckets != nil:
				fmt.Fprintln(&b, "", p.Buckets.Bounds, p.Buckets.Counts, p.Buckets.Sum)
			case p.Quantiles != nil:
				fmt.Fprintln(&b, "", p.Quantiles.Ranks, p.Quantiles.Values, p.Quantiles.Count)
			default:
				fmt.Fprintln(&b, "", p.Value)
			}
		}
	}
	for _, d := range p.Skipped {
		fmt.Fprintln(&b, "skipped", d.Reason, d.Points)
	}
	return b.String()
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		o    scrape.Options
		om   bool
		page string
		want string
	}{
		"text": {page: "# HELP a_total Help\\nof a.\n# TYPE a_total counter\na_total{x=\"q\\\"}\\n\",y=\"\"} 3 1700000000000\n\n# TYPE g gauge\ng -1.5e3\n" +
			"# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 5\nh_sum 9.5\nh_count 5\n# TYPE s summary\ns{quantile=\"0.5\"} 1\ns_sum 2\ns_count 3\nu 7",
			want: "counter a_total \"Help\\nof a.\"\n  x=\"q\\\"}\\n\" 3\ngauge g \"\"\n  -1500\nhistogram h \"\"\n  [1] [2 3] 9.5\nsummary s \"\"\n  [0.5] [1] 3\nunknown u \"\"\n  7\n"},
		// A bad family is skipped, not the page (google/mtail#64 wrote the first).
		"bad families": {page: "# TYPE http_requests_total counter\nhttp_requests_total{code=200} 20\n# TYPE ok gauge\nok 1\nbad{ 2\nworse\n# TYPE h histogram\n" +
			"h_bucket{le=\"1\"} 5\nh_bucket{le=\"2\"} 3\nh_sum 1\nh_count 5\n# TYPE n gauge\nn NaN\n# TYPE c_total counter\nc_total -1\nlast 2\n",
			want: "unknown last \"\"\n  2\ngauge ok \"\"\n  1\nskipped syntax 3\nskipped value 3\n"},
		"interleaved": {page: "a{x=\"1\"} 1\nb 2\na{x=\"2\"} 3\n", want: "unknown a \"\"\n  x=\"1\" 1\n  x=\"2\" 3\nunknown b \"\"\n  2\n"},
		"OpenMetrics": {om: true, page: "# HELP a Help.\n# TYPE a counter\n# UNIT a seconds\na_total 3 1700000000.5 # {build=\"}7\"} 1 1\na_created 1.7e9\n# TYPE b info\nb_info{v=\"1\"} 1\n" +
			"# TYPE st stateset\nst{st=\"on\"} 1\n# TYPE gh gaugehistogram\ngh_bucket{le=\"+Inf\"} 1\n# TYPE u unknown\nu 1\n" +
			"# TYPE h histogram\nh_bucket{le=\"1.0\"} 1 # {build=\"x # {\"} 0.5\nh_bucket{le=\"+Inf\"} 1\nh_count 1\nh_sum 0.5\n# EOF\n",
			want: "counter a_total \"Help.\"\n  3\ngauge b_info \"\"\n  v=\"1\" 1\nhistogram h \"\"\n  [1] [1 0] 0.5\ngauge st \"\"\n  st=\"on\" 1\nunknown u \"\"\n  1\nskipped type 1\n"},
		"labels": {o: scrape.Options{
			Prefix: "ci.", Rename: map[string]string{"id": "", "name": "container"}, Labels: []series.Label{{Name: "source", Value: "cadvisor"}, {Name: "env", Value: "x"}},
			Keep: regexp.MustCompile("^c"), Drop: regexp.MustCompile("_seconds$"),
		}, page: "c_bytes{id=\"/docker/1\",name=\"web\",env=\"prod\"} 1\nc_bytes{id=\"/docker/2\",name=\"web\",env=\"prod\"} 2\nc_seconds 1\nother 1\n",
			want: "unknown ci_c_bytes \"\"\n  container=\"web\" env=\"prod\" source=\"cadvisor\" 1\nskipped duplicate 1\n"},
		"names of UTF-8": {page: "{\"http.requests\",\"code.x\"=\"ok\"} 1\n", want: "unknown http_requests \"\"\n  code_x=\"ok\" 1\n"},
		"too many":       {o: scrape.Options{MaxSeries: 2}, page: "a 1\nb 2\nc 3\nd 4\n", want: "unknown a \"\"\n  1\nunknown b \"\"\n  2\nskipped series 2\n"},
		"expvar": {o: scrape.Options{Expvar: true, Prefix: "drone_"}, page: `{"cmdline":["x"],"queue":{"queueLen":2,"worker0":{"repo":"a/b"}},"up":true,"memstats":{"PauseNs":[1,2],"Alloc":12345678901},"n":null,"big":1e999}`,
			want: "unknown drone_memstats_Alloc \"\"\n  1.2345678901e+10\nunknown drone_queue_queueLen \"\"\n  2\nunknown drone_up \"\"\n  1\nskipped value 1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := c.o.Parse([]byte(c.page), c.om)
			if err != nil || shown(p) != c.want {
				t.Errorf("%v\n%s\nwant\n%s", err, shown(p), c.want)
			}
		})
	}
}

// What we expose ourselves comes back whole, in both formats and as expvar.
func TestScrape_ownPages(t *testing.T) {
	table := tally.New(tally.Options{})
	table.Stage(tally.Labels{CI: "gitlab", Project: `MacBook Pro 14" R/W`}).Ended(5, cimeter.Some(uint64(1)), cimeter.Some(0.5))
	table.Build(tally.BuildLabels{CI: "drone"}).Started()
	for name, c := range map[string]struct {
		page http.Handler
		o    scrape.Options
		want int
	}{
		"prometheus": {prometheus.New(table), scrape.Options{}, 7},
		"expvar":     {expvar.New(expvar.Options{}), scrape.Options{Expvar: true}, 20},
	} {
		server := httptest.NewServer(c.page)
		c.o.URL = server.URL + "?key=seeded-too"
		p, err := scrape.New(c.o).Scrape(t.Context())
		server.Close()
		if err != nil || len(p.Families) < c.want || len(p.Skipped) > 0 {
			t.Errorf("%s: %v, %d families, skipped %v", name, err, len(p.Families), p.Skipped)
		}
	}
}

func TestScrape_errors(t *testing.T) {
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	for name, c := range map[string]struct {
		h    http.HandlerFunc
		o    scrape.Options
		want error
	}{
		"away":         {answer(503, ""), scrape.Options{}, cimeter.ErrUnavailable},
		"forbidden":    {answer(403, ""), scrape.Options{}, cimeter.ErrUnauthorized},
		"redirect":     {answer(302, ""), scrape.Options{}, cimeter.ErrUnavailable},
		"huge":         {answer(200, strings.Repeat("a 1\n", 1000)), scrape.Options{MaxBytes: 100}, cimeter.ErrInvalid},
		"a web page":   {answer(200, "<html>\n<body>\n"), scrape.Options{}, cimeter.ErrInvalid},
		"not JSON":     {answer(200, "a 1\n"), scrape.Options{Expvar: true}, cimeter.ErrInvalid},
		"list of JSON": {answer(200, "[]"), scrape.Options{Expvar: true}, cimeter.ErrInvalid},
	} {
		server := httptest.NewServer(c.h)
		c.o.URL = server.URL
		c.o.Token = func() (string, error) { return "seeded-secret-7", nil }
		_, err := scrape.New(c.o).Scrape(t.Context())
		if !errors.Is(err, c.want) || strings.Contains(fmt.Sprint(err), "seeded") {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		server.Close()
		if _, err := scrape.New(c.o).Scrape(t.Context()); !errors.Is(err, cimeter.ErrUnavailable) || strings.ContainsAny(err.Error(), "\n?") {
			t.Errorf("%s gone: %v: want one line without what stands behind the address", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("# TYPE a counter\na_total{x=\"q\\\"}\"} 3 1 # {b=\"c\"} 1\n# EOF\n"), true, false)
	f.Add([]byte("# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_sum 9.5\nh_count 5\n{\"a.b\"} 1\n"), false, false)
	f.Add([]byte(`{"a":{"b":[1],"c":1e308,"d":true}}`), false, true)
	f.Fuzz(func(t *testing.T, page []byte, om, vars bool) {
		o := scrape.Options{MaxSeries: 50, Expvar: vars, Labels: []series.Label{{Name: "source", Value: "s"}}}
		p, err := o.Parse(bytes.Clone(page), om)
		n, seen := 0, map[string]bool{}
		for _, f := range p.Families {
			for _, p := range f.Points {
				if n++; seen[p.Key] || p.Buckets != nil && len(p.Buckets.Counts) != len(p.Buckets.Bounds)+1 {
					t.Errorf("%s: there twice, or no histogram", p.Key)
				}
				seen[p.Key] = true
			}
		}
		if n > 50 || err != nil && n > 0 {
			t.Errorf("%d points, %v", n, err)
		}
	})
}
