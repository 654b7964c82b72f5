package scrape

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/series"
)

const (
	// DefaultBytes and DefaultSeries bound a page where nothing else is said:
	// more than a node_exporter or a cAdvisor of a hundred containers has.
	DefaultBytes  = 16 << 20
	DefaultSeries = 20_000

	accept = "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.8,*/*;q=0.1"
)

// Options of a source.
type Options struct {
	URL       string
	Expvar    bool                   // it is a page of expvar; else of Prometheus
	MaxBytes  int                    // of a page; 0 is DefaultBytes
	MaxSeries int                    // of a page; 0 is DefaultSeries
	Token     func() (string, error) // bearer token, asked for each time; nil: none
	Prefix    string                 // stands before each name
	Keep      *regexp.Regexp         // names, without Prefix, that are kept; nil: all
	Drop      *regexp.Regexp         // names, without Prefix, that are not; nil: none
	Labels    []series.Label         // are added, unless the point has them
	Rename    map[string]string      // label to its new name; "" drops it
}

// Page is what a source said at one time.
type Page struct {
	Families []series.Family
	// Skipped is what was left out: families by the reasons syntax and type,
	// points by value, duplicate and series.
	Skipped []series.Drop
}

// Source is one page of another program.
type Source struct {
	o      Options
	client *http.Client
}

// New returns the source that the options describe.
func New(o Options) *Source {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultBytes
	}
	if o.MaxSeries == 0 {
		o.MaxSeries = DefaultSeries
	}
	return &Source{o: o, client: &http.Client{
		Transport: &http.Transport{MaxIdleConns: 1, MaxConnsPerHost: 1, MaxResponseHeaderBytes: 64 << 10},
		// A redirect could lead the token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Scrape reads the page once, within ctx. Errors wrap cimeter.ErrUnavailable when
// it may work later, and cimeter.ErrInvalid when what answered is no such page.
func (s *Source) Scrape(ctx context.Context) (Page, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.o.URL, nil)
	if err != nil {
		return Page{}, fmt.Errorf("scrape: the address is no URL: %w", cimeter.ErrInvalid)
	}
	req.Header.Set("User-Agent", "cimeter")
	if !s.o.Expvar {
		req.Header.Set("Accept", accept)
	}
	if s.o.Token != nil {
		token, err := s.o.Token()
		if err != nil {
			return Page{}, fmt.Errorf("scrape: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := s.client.Do(req)
	if err != nil {
		if u := (*url.Error)(nil); errors.As(err, &u) {
			err = u.Err // without the address, whose query may hold a key
		}
		return Page{}, fmt.Errorf("scrape: %w: %w", err, cimeter.ErrUnavailable)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		kind := cimeter.ErrUnavailable
		if res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden {
			kind = cimeter.ErrUnauthorized
		}
		return Page{}, fmt.Errorf("scrape: answered %d: want 200: %w", res.StatusCode, kind)
	}
	// What is unpacked is bounded, not what came over the wire.
	body, err := io.ReadAll(io.LimitReader(res.Body, int64(s.o.MaxBytes)+1))
	if err != nil {
		return Page{}, fmt.Errorf("scrape: read: %w: %w", err, cimeter.ErrUnavailable)
	}
	if len(body) > s.o.MaxBytes {
		return Page{}, fmt.Errorf("scrape: want at most %d bytes: %w", s.o.MaxBytes, cimeter.ErrInvalid)
	}
	return s.o.Parse(body, strings.HasPrefix(res.Header.Get("Content-Type"), "application/openmetrics-text"))
}

// Parse makes families of the bytes of a page. The error, which wraps
// cimeter.ErrInvalid, says that nothing could be read at all.
func (o *Options) Parse(body []byte, openMetrics bool) (Page, error) {
	m := maker{o: o, most: o.MaxSeries, seen: map[string]bool{}, skipped: map[string]int{}, at: map[string]int{}}
	if m.most == 0 {
		m.most = DefaultSeries
	}
	if o.Expvar {
		if err := m.expvar(body); err != nil {
			return Page{}, err
		}
	} else {
		m.text(body, openMetrics)
		if len(m.families) == 0 && m.skipped["syntax"] > 0 {
			return Page{}, fmt.Errorf("scrape: nothing in it is a metric: %w", cimeter.ErrInvalid)
		}
	}
	return m.page(), nil
}
